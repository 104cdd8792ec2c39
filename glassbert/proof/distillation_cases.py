"""Cases of distillation: a student of another width than its teacher, with every loss that compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.engines import get_engine
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import pad_rows
from glassbert.models.inputs import check_inputs, real_tokens, shape_of
from glassbert.models.model import Model
from glassbert.proof.cases import Fixture, case
from glassbert.proof.layer_cases import DROPOUT, IDS, MASK, SEGMENTS, TINY_BERT, Rng, random_parameters
from glassbert.proof.model_cases import MLM_LABELS, with_frozen_dropout
from glassbert.training.objectives import Objectives
from glassbert.training.teacher import Teacher

WIDER = TINY_BERT.replace(hidden_size=2 * TINY_BERT.hidden_size, num_hidden_layers=1)
STUDENT = TINY_BERT.replace(teacher_size=WIDER.hidden_size)


def step_fixture(
    rng: Rng, objective: str, inputs: Mapping[str, Any], config: EncoderConfig = STUDENT, training: bool = False,
    **options: Any,
) -> Fixture:  # fmt: skip
    """The weighted sum of the losses over all parameters of the student; the teacher is a constant."""
    plain = get_engine("numpy", "float64", 1)
    checked = check_inputs(config, IDS, **inputs)
    values = random_parameters(rng, Model(config, "mlm", engine=plain, initialize=False).specification)
    known = random_parameters(rng, Model(WIDER, "mlm", engine=plain, initialize=False).specification)
    built: dict[Any, tuple[Model, Objectives, dict[str, Any]]] = {}  # by engine, which it keeps alive

    def build(engine: Any) -> tuple[Model, Objectives, dict[str, Any]]:
        model = Model(config, "mlm", engine=with_frozen_dropout(engine), initialize=False)
        model.set_training(training)
        wider = Model(WIDER, "mlm", engine=engine, initialize=False)
        for name, value in known.items():
            wider.parameters[name] = engine.array(value)
        objectives = Objectives.parse(objective).with_teacher(Teacher(wider))
        given = {"labels": np.array(MLM_LABELS), "real_tokens": real_tokens(checked), "input_ids": checked["ids"]}
        prepared = objectives.prepare(model.head, given, shape_of(checked))  # type: ignore[arg-type]
        pad = pad_rows if engine.compiles else dict
        targets = {name: model.on_engine(pad(arrays)) for name, arrays in prepared.items()}
        return model, objectives, objectives.teach(targets, check_inputs(WIDER, IDS, **inputs))

    def function(engine: Any, parameters: Mapping[str, Array]) -> Any:
        if engine not in built:
            built[engine] = build(engine)
        model, objectives, targets = built[engine]
        for name, value in parameters.items():
            model.parameters[name] = value
        run = model.run(checked, dropout=model.draw_dropout())
        results = run.loss(objectives, targets)
        weights = objectives.weights.tolist()
        loss = sum(weight * one.loss for weight, one in zip(weights, results, strict=True))

        def backward(dloss: Array) -> Any:
            gradients = model.new_gradients()
            model.backward_into(gradients, run, dloss=[weight * dloss for weight in weights])
            gradients.fill_missing()
            return gradients

        return loss, backward

    return Fixture(values, function, entries=1, **options)


def enter(situation: str, objective: str, inputs: Mapping[str, Any], **options: Any) -> None:
    case("model", "distillation", situation)(lambda rng: step_fixture(rng, objective, inputs, **options))


enter("projected hidden states, ragged", "hidden", {"attention_mask": MASK})
enter("relations, ragged", "relations", {"attention_mask": MASK})
enter("words, scores, hidden states and relations, packed, two threads", "mlm+2*distill+3*hidden+relations",
      {"segment_ids": SEGMENTS}, threads=2)  # fmt: skip
enter("hidden states and relations, dropout", "hidden+2*relations", {"attention_mask": MASK},
      config=STUDENT.replace(**DROPOUT), training=True)  # fmt: skip
