"""Cases of replaced-token detection: generator and discriminator in one step, with frozen samples."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.engines import get_engine
from glassbert.families.electra import ElectraConfig
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import pad_rows
from glassbert.models.heads.rtd import DIFFERENCE, WORDS
from glassbert.models.inputs import check_inputs, real_tokens, shape_of
from glassbert.models.model import Model
from glassbert.proof.cases import Fixture, case, settings
from glassbert.proof.deberta_cases import TINY_DEBERTA
from glassbert.proof.layer_cases import DROPOUT, IDS, MASK, NO_DROPOUT, SEGMENTS, Rng, random_parameters
from glassbert.proof.model_cases import MLM_LABELS, with_frozen_dropout
from glassbert.training.objectives import Objectives, rtd

TINY_ELECTRA = ElectraConfig(
    vocab_size=11, hidden_size=8, embedding_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=7,
    max_position_embeddings=8, pad_token_id=None, generator_width=0.5, **NO_DROPOUT,
)  # fmt: skip
SAMPLES = np.array([5, 7, 2, 5])  # of the four masked words: two are the original


def frozen_samples() -> AbstractContextManager[None]:
    """Samples that do not depend on the scores: with real ones the loss has jumps, which no gradient sees."""

    def chosen(scores: Array, uniform: Array) -> Array:
        return namespace(scores).array(np.resize(SAMPLES, scores.shape[0]))

    return settings(rtd, sample_columns=chosen)


def step_fixture(
    rng: Rng, config: EncoderConfig, inputs: Mapping[str, Any], training: bool = False, checkpointing: bool = False,
    objective: str = "generator+3*rtd", **options: Any,
) -> Fixture:  # fmt: skip
    """The weighted sum of both losses over all parameters of both models."""
    objectives = Objectives.parse(objective)
    skip = {"skip_padding": inputs["skip_padding"]} if "skip_padding" in inputs else {}
    checked = check_inputs(config, IDS, **{name: value for name, value in inputs.items() if name not in skip})
    specification = Model(config, "rtd", engine=get_engine("numpy", "float64", 1), initialize=False).specification
    values = random_parameters(rng, specification)
    built: dict[Any, tuple[Model, dict[str, Any]]] = {}  # by engine, which it keeps alive

    def build(engine: Any) -> tuple[Model, dict[str, Any]]:
        model = Model(config, "rtd", engine=with_frozen_dropout(engine), initialize=False)
        model.set_training(training)
        model.set_checkpointing(checkpointing)
        stop_gradient(model, values)
        given = {"labels": np.array(MLM_LABELS), "real_tokens": real_tokens(checked), "input_ids": checked["ids"]}
        prepared = objectives.prepare(model.head, given, shape_of(checked))  # type: ignore[arg-type]
        pad = pad_rows if engine.compiles else dict
        return model, {name: model.on_engine(pad(arrays)) for name, arrays in prepared.items()}

    def function(engine: Any, parameters: Mapping[str, Array]) -> Any:
        if engine not in built:
            built[engine] = build(engine)
        model, targets = built[engine]
        for name, value in parameters.items():
            model.parameters[name] = value
        run = model.run(checked, dropout=model.draw_dropout(), **skip)
        results = run.loss(objectives, targets)
        weights = objectives.weights.tolist()
        loss = sum(weight * one.loss for weight, one in zip(weights, results, strict=True))

        def backward(dloss: Array) -> Any:
            gradients = model.new_gradients()
            model.backward_into(gradients, run, dloss=[weight * dloss for weight in weights])
            gradients.fill_missing()
            return gradients

        return loss, backward

    return Fixture(values, function, around=frozen_samples, entries=1, **options)


def stop_gradient(model: Model, values: Mapping[str, np.ndarray]) -> None:
    """With disentangled embeddings the discriminator takes the generator's words as constants: so must differences."""
    head: Any = model.head
    if head.disentangled:
        words = model.engine.array(values[WORDS])
        head.computing = lambda given: {**given, DIFFERENCE: words + given[DIFFERENCE]}


def enter(situation: str, config: EncoderConfig, inputs: Mapping[str, Any], **options: Any) -> None:
    case("model", "rtd", situation)(lambda rng: step_fixture(rng, config, inputs, **options))


DISENTANGLED = TINY_DEBERTA.replace(mask_decoder=True, generator_width=0.5, generator_depth=1.0, num_hidden_layers=1)
enter("electra, shared embeddings, ragged", TINY_ELECTRA, {"attention_mask": MASK})
enter("electra, packed, dropout, two threads, checkpointing", TINY_ELECTRA.replace(**DROPOUT),
      {"segment_ids": SEGMENTS}, training=True, checkpointing=True, threads=2)  # fmt: skip
enter("electra, no projections, padding skipped", TINY_ELECTRA.replace(embedding_size=8, generator_width=1.0),
      {"attention_mask": MASK, "skip_padding": True}, on_mlx=False)  # fmt: skip
enter("deberta, disentangled embeddings, mask decoder", DISENTANGLED, {"attention_mask": MASK})
enter("deberta, disentangled embeddings, dropout, two threads", DISENTANGLED.replace(**DROPOUT),
      {"attention_mask": MASK}, training=True, threads=2)  # fmt: skip
