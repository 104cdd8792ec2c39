"""Opening checkpoints. Everything is checked before the first weight is taken, so nothing is ever half-loaded."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints.description import CORE, Description, describe, differences, has_no_effect
from glassbert.checkpoints.family import FAMILIES
from glassbert.checkpoints.formats import EMBEDDING, Format, format_of_file
from glassbert.checkpoints.locate import Checkpoint, open_checkpoint
from glassbert.checkpoints.matching import Match, match, read_values, some
from glassbert.checkpoints.sentence import pooling_in
from glassbert.errors import CheckpointError, ConfigError, GlassBertError
from glassbert.models.heads import HEADS, head_names, resolve_head, with_pooling
from glassbert.models.initialize import initial_values
from glassbert.models.model import Model

CLASSIFIER = "head.classifier."
NOT_THE_ENCODER = ("head.", "pooler.")
POOLING = ("head.pool.", "pooler.")


def load(
    path_or_hub_id: str | Path,
    *,
    engine: Any = "auto",
    dtype: str = "float32",
    threads: int | None = None,
    kernels: str = "fast",
    head: str | None = None,
    num_labels: int | None = None,
    loss: str | None = None,
    loss_options: Mapping[str, Any] | None = None,
    pooling: str | None = None,
    revision: str | None = None,
    seed: int = 0,
) -> Model:
    """Open a saved model: a folder, a .safetensors file with config.json beside it, or an id of the Hugging Face hub.

    `head` is "mlm", "binary", "multiclass", "token", ... (`glassbert.head_names()`) or "core" (no head); without it the
    model gets the head, pooling, loss and options it was saved with. Where another head, number of labels, loss or
    pooling is given, the weights that the file does not have are initialised at random (from `seed`), and a warning
    names them. float16 and bfloat16 files are converted; `dtype` is the precision of the arithmetic.

    A folder of sentence-transformers opens as the encoder that its config.json names; head="embedding" adds the pooling
    of its modules.
    """
    if head is not None and head != CORE:
        if head not in head_names():
            raise CheckpointError(f"unknown head {head!r}; choose one of {', '.join((CORE, *head_names()))}")
        head, num_labels, loss = resolve_head(head, num_labels, loss)
    checkpoint = open_checkpoint(path_or_hub_id, revision)
    with _blaming(checkpoint.config_path):
        file_format = format_of_file(checkpoint.fields)
        tensors = file_format.plain_names(checkpoint.tensors)
        own_head = file_format.own_head(checkpoint.fields, tensors, head)
        wanted = head or own_head
        if wanted is None:
            raise CheckpointError(file_format.explain_unknown_head(checkpoint.fields))
        described = file_format.read(checkpoint.fields, wanted, tensors)
        new_head = wanted != own_head
        described, new_classifier = _as_asked(described, new_head, num_labels, loss, loss_options)
        if wanted == EMBEDDING and pooling is None:
            pooling = pooling_in(checkpoint.config_path.parent)
        described, new_pooling = _pooled_as_asked(described, new_head, pooling)
        model = _build(described, len(tensors), engine=engine, dtype=dtype, threads=threads, kernels=kernels, seed=seed)
    with _blaming(checkpoint.config_path.parent):
        entries = file_format.entries(described.config, wanted, model.layout.shapes)
        if new_classifier:  # a classifier of other labels is no beginning for these
            entries = {name: entry for name, entry in entries.items() if not name.startswith(CLASSIFIER)}
        matched = match(entries, model.layout.shapes, tensors)
        may_be_fresh = (*((CLASSIFIER,) if new_classifier else ()), *(POOLING if new_pooling else ()))
        may_be_fresh = NOT_THE_ENCODER if new_head else may_be_fresh
        fresh = [name for name in matched.missing if name.startswith(may_be_fresh)]
        _refuse(matched, fresh, described, file_format, checkpoint, another_head=new_classifier or new_pooling)
    if fresh:
        warnings.warn(
            f"{path_or_hub_id} has no weights for {some(fresh)}; they begin at random and must be trained", stacklevel=2
        )
    for name, parts in matched.sources.items():
        model.parameters[name] = model.engine.array(file_format.inward(described, name, read_values(parts)))
    beginning = [parameter for parameter in model.specification if parameter.name in fresh]
    for name, values in initial_values(beginning, described.config, seed):
        model.parameters[name] = model.engine.array(values)
    model.carried_fields = described.carried
    return model


def _as_asked(
    saved: Description,
    new_head: bool,
    num_labels: int | None,
    loss: str | None,
    loss_options: Mapping[str, Any] | None,
) -> tuple[Description, bool]:
    """What to build, and whether its classifier is a new one: of another head, number of labels or kind of rank.

    The options of a loss stay with the classifier and the loss they were made for.
    """
    other_labels = saved.head in HEADS and HEADS[saved.head].labelled and num_labels not in (None, saved.num_labels)
    other_loss = loss is not None and loss != saved.loss
    new_classifier = new_head or other_labels or (other_loss and "ordinal" in (loss, saved.loss))
    options = {} if new_classifier or other_loss else saved.loss_options
    described = dataclasses.replace(
        saved,
        num_labels=saved.num_labels if num_labels is None else num_labels,
        loss=loss or (None if new_classifier else saved.loss),
        loss_options=options if loss_options is None else dict(loss_options),
    )
    return described, new_classifier


def _pooled_as_asked(saved: Description, new_head: bool, pooling: str | None) -> tuple[Description, bool]:
    """With the pooling that was asked for, or that a fresh head prefers; and whether it is another one than saved."""
    head = HEADS.get(saved.head)
    if pooling is not None and not hasattr(head, "pooling"):
        raise CheckpointError(f"pooling makes one vector of a sequence, which a head {saved.head!r} does not ask for")
    pooling = head.default_pooling if head is not None and new_head and pooling is None else pooling
    if pooling is None:
        return saved, False
    config = with_pooling(saved.config, pooling)
    return dataclasses.replace(saved, config=config), config != saved.config


def load_weights(model: Model, folder: str | Path) -> None:
    """Take the weights of a saved model of the same config; nothing changes unless all of them fit."""
    checkpoint = open_checkpoint(folder)
    ours = describe(model)
    with _blaming(checkpoint.config_path):
        file_format = format_of_file(checkpoint.fields)
        tensors = file_format.plain_names(checkpoint.tensors)
        theirs = file_format.read(checkpoint.fields, ours.head, tensors)
        for name, here, there in differences(model.config, theirs.config):
            if not has_no_effect(name, model.config, ours.head):
                raise CheckpointError(f"this is another model: {name} is {there!r} there and {here!r} here")
    with _blaming(checkpoint.config_path.parent):
        matched = match(file_format.entries(model.config, ours.head, model.layout.shapes), model.layout.shapes, tensors)
        another_head = file_format.own_head(checkpoint.fields, tensors, ours.head) != ours.head
        _refuse(matched, [], ours, file_format, checkpoint, another_head)
    # Copies, all of them, before the first one is taken over: reading may still fail.
    read = {name: np.array(read_values(parts)) for name, parts in matched.sources.items()}
    arrays = {name: model.engine.array(file_format.inward(ours, name, values)) for name, values in read.items()}
    for name, array in arrays.items():
        model.parameters[name] = array


def _build(described: Description, tensors: int, **options: Any) -> Model:
    """A model of the class that the public API has for it, its parameters not yet filled."""
    config, head = described.config, described.head
    if config.num_hidden_layers > tensors:  # a list of so many layers may take for ever
        raise CheckpointError(f"num_hidden_layers is {config.num_hidden_layers}, but the file has {tensors} tensors")
    wanted = None if head == CORE else head
    model_class = FAMILIES[config.family].class_for(config, wanted) if config.family in FAMILIES else Model
    model = object.__new__(model_class)  # the classes differ in their defaults alone
    try:
        Model.__init__(
            model, config, wanted, described.num_labels, loss=described.loss, loss_options=described.loss_options,
            initialize=False, **options,
        )  # fmt: skip
        return model
    except GlassBertError:
        raise
    except (MemoryError, OverflowError, ValueError) as error:  # sizes beyond memory, or beyond any array
        raise CheckpointError(f"a model of these sizes cannot be made: {error}") from error


def _refuse(
    matched: Match,
    fresh: list[str],
    described: Description,
    file_format: Format,
    checkpoint: Checkpoint,
    another_head: bool,
) -> None:
    """An error where a tensor is missing that must be there, or there is one that nobody knows."""
    prefix = file_format.prefix_in(checkpoint.tensors)
    missing = [name for name in matched.missing if name not in fresh]
    if missing:
        entries = file_format.entries(described.config, described.head, missing, prefix)
        names = [name for entry in entries.values() for name in entry.theirs if name not in checkpoint.tensors]
        raise CheckpointError(f"tensors are missing from the file: {some(names)}")
    extra = [name for name in matched.unused if not file_format.may_be_left(name, another_head)]
    if extra:
        originals = file_format.plain_names({name: name for name in checkpoint.tensors})
        raise CheckpointError(
            f"the file has tensors that this model has not: {some([originals[name] for name in extra])}"
        )


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Errors in here are about this file; say so."""
    try:
        yield
    except (CheckpointError, ConfigError) as error:
        raise CheckpointError(f"{path}: {error}") from error
