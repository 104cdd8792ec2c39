"""Cases for parts of one's own (`glassbert check --with mine.py`): cases that are made automatically.

    operations               those of one array; others need a case of their own (`glassbert.proof.cases.case`)
    parts of an encoder      a small BERT with the part in place of its own: padded, on two threads, checkpointed
    families                 the config at a small size, with the masked-language head
    heads, objectives        need `example`, a method that gives labels for a small batch
    optimizers               twenty steps of a small model must lower its loss

What is missing is named, and counts as a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from glassbert.checkpoints.family import FAMILIES
from glassbert.extensions import is_own
from glassbert.models.config import PARTS
from glassbert.models.heads import HEADS
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.ops.registry import OPERATIONS, SUFFIX
from glassbert.proof.cases import _CASES, Case, Fixture, case
from glassbert.proof.layer_cases import IDS, MASK, TINY_BERT
from glassbert.proof.model_cases import MLM_LABELS, PADDED, ModelSetup, model_fixture
from glassbert.proof.op_cases import one_input
from glassbert.training.objectives import OBJECTIVES, Objectives
from glassbert.training.optimizers import OPTIMIZERS, make_optimizer
from glassbert.training.step import TrainingStep

SMALL = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 7,
         "max_position_embeddings": 12, "pad_token_id": None}  # fmt: skip


class Missing(Exception):
    """Something that an extension must have before it can be checked."""


def extension_cases() -> list[Case]:
    """The cases of everything that extensions have registered, made and given."""
    for subject, situation, kind, build in _wanted():
        if f"{subject}: {situation}" not in _CASES:
            case(kind, subject, situation)(build)
    own_subjects = {subject for subject, *_ in _wanted()}
    return [one for one in _CASES.values() if one.subject in own_subjects or is_own(one.build)]


def _wanted() -> Iterator[tuple[str, str, str, Callable[[np.random.Generator], Fixture]]]:
    for name, function in OPERATIONS.items():
        if is_own(function) and not name.endswith(SUFFIX):
            given = [one for one in _CASES.values() if one.subject == name]
            if not given or any(one.name == f"{name}: one array" for one in given):
                yield name, "one array", "op", partial(_operation, name=name)
    for field, table in PARTS.items():
        for name, part in table.items():
            if is_own(part):
                yield name, "padded, two threads", "model", partial(_part, field=field, name=name, threads=2)
                yield name, "checkpointing", "model", partial(_part, field=field, name=name, checkpointing=True)
    for name, family in FAMILIES.items():
        if is_own(family.config_class):
            yield name, "mlm, padded, two threads", "model", partial(_family, config_class=family.config_class)
    for name, head in HEADS.items():
        if is_own(head):
            yield name, "loss, padded", "model", partial(_head, name=name)
    for name, objective in OBJECTIVES.items():
        if is_own(objective):
            yield name, "loss, padded", "model", partial(_objective, name=name)
    for name, kind in OPTIMIZERS.items():
        if is_own(kind):
            yield name, "twenty steps", "model", partial(_optimizer, name=name)


def _operation(rng: np.random.Generator, name: str) -> Fixture:
    if name + SUFFIX not in OPERATIONS:
        raise Missing(f"operation {name!r} has no backward: write {name}{SUFFIX}(dy, state) and mark it @operation")

    def run(engine: Any, x: Any) -> Any:
        try:
            return getattr(engine.ops, name)(x)
        except TypeError as error:
            raise Missing(
                f"operation {name!r} takes more than one array ({error}); write a case for it: "
                f'@glassbert.proof.cases.case("op", {name!r}, "some values")'
            ) from error

    return one_input(rng.standard_normal((3, 4, 5)), run)


def _part(rng: np.random.Generator, field: str, name: str, threads: int = 1, checkpointing: bool = False) -> Fixture:
    config = TINY_BERT.replace(hidden_size=8, num_hidden_layers=3, **{field: name})
    setup = ModelSetup(config, "mlm", labels=MLM_LABELS, inputs=PADDED, checkpointing=checkpointing)
    return model_fixture(rng, setup, threads=threads)


def _family(rng: np.random.Generator, config_class: Any) -> Fixture:
    known = {name: value for name, value in SMALL.items() if name in config_class.__dataclass_fields__}
    config = config_class(**known)
    narrow = {"embedding_size": 4} if config.embedding_size is not None else {}
    dropouts = {name: 0.0 for name in config_class.__dataclass_fields__ if name.endswith("_dropout")}
    dropouts.pop("span_dropout", None)
    config = config.replace(**narrow, **dropouts)
    return model_fixture(rng, ModelSetup(config, "mlm", labels=MLM_LABELS, inputs=PADDED), threads=2)


def _example(owner: Any, name: str, what: str) -> dict[str, Any]:
    example = getattr(owner, "example", None)
    if example is None:
        raise Missing(
            f"{what} {name!r} has no example: write a static method example(rows, length) that returns the labels of "
            'such a batch, {"labels": ..., "num_labels": ...}'
        )
    return dict(example(len(IDS), len(IDS[0])))


def _head(rng: np.random.Generator, name: str) -> Fixture:
    given = _example(HEADS[name], name, "head")
    setup = ModelSetup(
        TINY_BERT.replace(pooler=False), name, num_labels=given.get("num_labels", 0), labels=given["labels"],
        inputs=PADDED,
    )  # fmt: skip
    return model_fixture(rng, setup)


def _objective(rng: np.random.Generator, name: str) -> Fixture:
    """The loss of an objective over a small model, by its own loss and backward."""
    objective = OBJECTIVES[name]
    given = _example(objective, name, "objective")
    setup = ModelSetup(TINY_BERT, objective.part, num_labels=given.pop("num_labels", 0))
    fixture = model_fixture(rng, setup)

    def function(engine: Any, parameters: Any) -> Any:
        model = setup.model(engine)
        for key, value in parameters.items():
            model.parameters[key] = value
        objectives = Objectives.of(model.head, name)
        prepared = objectives.prepare(model.head, given, (len(IDS), len(IDS[0])))  # type: ignore[arg-type]
        run = model.run(check_inputs(model.config, IDS, MASK))
        targets = {key: model.on_engine(arrays) for key, arrays in prepared.items()}
        (found,) = run.loss(objectives, targets)

        def run_backward(dloss: Any) -> Any:
            gradients = model.new_gradients()
            model.backward_into(gradients, run, dloss=[dloss])
            gradients.fill_missing()
            return gradients

        return found.loss, run_backward

    return Fixture(fixture.inputs, function, entries=1, on_mlx=False)


def _optimizer(rng: np.random.Generator, name: str) -> Fixture:
    model = Model(TINY_BERT, "mlm", engine="numpy", dtype="float64", threads=1)
    step = TrainingStep(model, make_optimizer(name, model))
    losses = [float(step(IDS, MLM_LABELS, MASK).loss) for _ in range(20)]
    if not (np.isfinite(losses).all() and losses[-1] < losses[0]):
        raise Missing(f"twenty steps of optimizer {name!r} took the loss from {losses[0]:.3f} to {losses[-1]:.3f}")
    # An optimizer has no gradient of its own; a case needs one, so that of tanh stands here.
    return one_input(rng.standard_normal((2, 2)), lambda engine, x: engine.ops.tanh(x), on_mlx=False)
