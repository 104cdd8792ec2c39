"""Cases of whole models: both families, Mini and Larger, causal; padded, packed, checkpointed, on several threads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.families.bert import LARGER_BERT_CONFIG, MINI_BERT_CONFIG
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import with_pooling
from glassbert.models.model import Model
from glassbert.proof.cases import Fixture, FrozenDropout, case
from glassbert.proof.layer_cases import (
    DROPOUT,
    IDS,
    MASK,
    RATES,
    SEGMENTS,
    TINY_BERT,
    TINY_MODERN,
    TYPES,
    UNTIED,
    random_parameters,
    tiny_tiles,
)

Rng = np.random.Generator
ENTRIES = 1
KINK_MARGIN = 2e-3

MLM_LABELS = [[-100, 5, -100, 3, -100], [-100] * 5, [0, -100, 5, -100, -100]]
TOKEN_LABELS = [[0, 2, -100, 1, 2], [-100] * 5, [2, 2, 0, -100, -100]]
NOTHING = [[-100] * 5] * 3

SMALL = {"vocab_size": 11, "hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 7,
         "max_position_embeddings": 6, "pad_token_id": None}  # fmt: skip
TINY_MINI = MINI_BERT_CONFIG.replace(**SMALL, num_hidden_layers=2)
TINY_LARGER = LARGER_BERT_CONFIG.replace(**SMALL, num_hidden_layers=2, **dict.fromkeys(RATES, 0.2))
TINY_CAUSAL = TINY_BERT.replace(
    causal=True, norm_position="pre", final_norm=True, embedding_norm=False, type_vocab_size=0
)


def with_frozen_dropout(engine: Any) -> Any:
    """A copy of the engine whose dropout masks are the same in every pass."""
    frozen = copy.copy(engine)
    frozen.dropout = lambda seed: FrozenDropout(frozen)
    return frozen


@dataclass
class ModelSetup:
    """A model, its inputs and its modes. The gradient is that of the loss, or of the output if there are no labels."""

    config: EncoderConfig
    head: str | None = None
    num_labels: int = 0
    loss: str | None = None
    loss_options: dict[str, Any] | None = None
    ids: Any = field(default_factory=lambda: IDS)
    labels: Any = None
    inputs: dict[str, Any] = field(default_factory=dict)
    training: bool = False
    checkpointing: bool = False
    frozen_row: int | None = None
    constant: str = ""  # parameters whose names end so are not checked: their gradient is 0 in exact arithmetic

    def model(self, engine: Any) -> Model:
        engine = with_frozen_dropout(engine)
        model = Model(
            self.config,
            self.head,
            self.num_labels,
            loss=self.loss,
            loss_options=self.loss_options,
            engine=engine,
            initialize=False,
        )
        model.set_training(self.training)
        model.set_checkpointing(self.checkpointing)
        return model


def model_fixture(rng: Rng, setup: ModelSetup, **options: Any) -> Fixture:
    """A fixture over all parameters of a model. ReLU models get parameters that keep every unit off its kink."""
    from glassbert.engines import get_engine

    specification = setup.model(get_engine("numpy", "float64", 1)).specification
    models: dict[Any, Model] = {}  # by engine, which it keeps alive
    frozen: dict[str, np.ndarray] = {}
    constants: dict[str, np.ndarray] = {}

    def function(engine: Any, parameters: Mapping[str, Array]) -> tuple[Array, Callable[[Array], Mapping[str, Array]]]:
        if engine not in models:
            models[engine] = setup.model(engine)
        model = models[engine]
        for name, value in {**constants, **parameters}.items():
            model.parameters[name] = engine.array(value)
        if setup.frozen_row is not None:  # the padding row is a constant, so it must not change
            table = model.parameters["embeddings.token"]
            table[setup.frozen_row] = engine.array(frozen["row"])
            model.parameters["embeddings.token"] = table
        if setup.labels is None:
            output, cache = model.forward(setup.ids, **setup.inputs)
        else:
            output, cache = model.loss(setup.ids, setup.labels, **setup.inputs)
        return output, lambda dy: model.backward(cache, dy)

    for _attempt in range(50):
        inputs = random_parameters(rng, specification)
        if setup.frozen_row is not None:
            frozen["row"] = inputs["embeddings.token"][setup.frozen_row].copy()
        if setup.config.activation != "relu" or _distance_to_kink(setup, inputs, get_engine) > KINK_MARGIN:
            break
    if setup.constant:
        constants.update({name: inputs.pop(name) for name in list(inputs) if name.endswith(setup.constant)})
    return Fixture(inputs, function, entries=ENTRIES, **options)


def _distance_to_kink(setup: ModelSetup, parameters: Mapping[str, np.ndarray], get_engine: Any) -> float:
    """The smallest absolute input of any ReLU."""
    model = setup.model(get_engine("numpy", "float64", 1))
    model.set_checkpointing(False)
    for name, value in parameters.items():
        model.parameters[name] = value
    _, cache = model.forward(setup.ids, trace=True, **setup.inputs)
    hidden = [name for name in cache if name.endswith((".ffn.hidden", "transform.hidden"))]
    return min(float(np.abs(cache[name]).min()) for name in hidden)


def register(subject: str, situation: str, config: EncoderConfig, head: str | None = None, **options: Any) -> None:
    """Register a case; `options` are fields of `Fixture` or of `ModelSetup`."""
    fixture_options = {k: options.pop(k) for k in ("around", "threads", "engines_agree", "on_mlx") if k in options}
    setup = ModelSetup(config, head, **options)
    case("model", subject, situation)(lambda rng: model_fixture(rng, setup, **fixture_options))


PAIRS = np.stack([np.tril(np.ones((5, 5), int)), np.zeros((5, 5), int), np.eye(5, dtype=int)[::-1]])
PADDED = {"attention_mask": MASK}
PACKED = {"segment_ids": SEGMENTS}
MEAN = {"classifier_pooling": "mean", "pooler": False}

register("bert", "encoder, token types given, ragged and all-padding rows", TINY_BERT,
         inputs={**PADDED, "token_type_ids": TYPES})  # fmt: skip
register("bert", "encoder, token types omitted, one token", TINY_BERT, ids=[[3]])
register("bert", "mlm, tied, padded", TINY_BERT, "mlm", labels=MLM_LABELS, inputs=PADDED)
register("bert", "mlm, untied, padding ids among the words", UNTIED.replace(pad_token_id=3), "mlm",
         labels=MLM_LABELS, inputs=PADDED, frozen_row=3)  # fmt: skip
register("bert", "mlm, tied, padding row frozen", TINY_BERT.replace(pad_token_id=0), "mlm",
         ids=[[3, 1, 3, 3, 2], [0] * 5, [9, 1, 1, 0, 0]], labels=MLM_LABELS, inputs=PADDED)  # fmt: skip
register("bert", "mlm, all labels ignored", TINY_BERT, "mlm", labels=NOTHING, inputs=PADDED)
register("bert", "mlm, dropout, checkpointing", TINY_BERT.replace(**DROPOUT), "mlm", labels=MLM_LABELS,
         inputs=PADDED, training=True, checkpointing=True)  # fmt: skip
register("bert", "mlm, two threads, dropout", TINY_BERT.replace(**DROPOUT), "mlm", labels=MLM_LABELS,
         inputs=PADDED, training=True, threads=2)  # fmt: skip
register("bert", "mlm, three threads, packed", TINY_BERT, "mlm", labels=MLM_LABELS,
         inputs={**PACKED, "token_type_ids": TYPES}, threads=3)  # fmt: skip
register("bert", "encoder, padding skipped", TINY_BERT, inputs={**PADDED, "skip_padding": True}, on_mlx=False)
register("bert", "mlm, padding skipped, two threads", TINY_BERT, "mlm", labels=MLM_LABELS,
         inputs={**PADDED, "skip_padding": True}, threads=2, on_mlx=False)  # fmt: skip
register("bert", "mlm, tiled, dropout", TINY_BERT.replace(**DROPOUT), "mlm", labels=MLM_LABELS, inputs=PADDED,
         training=True, around=tiny_tiles, engines_agree=False)  # fmt: skip
register("bert", "sequence, pooler, dropout", TINY_BERT.replace(**DROPOUT), "sequence", num_labels=3,
         labels=[2, -100, 0], inputs=PADDED, training=True)  # fmt: skip
register("bert", "sequence, regression", TINY_BERT, "sequence", num_labels=1, labels=[0.7, -100.0, -1.5], inputs=PADDED)
register("bert", "sequence, many labels, mean pooling", TINY_BERT.replace(**MEAN), "sequence", num_labels=3,
         loss="binary_cross_entropy", labels=[[1, 0, 1], [1, 1, 0], [0, -100, 0]], inputs=PADDED)  # fmt: skip
register("bert", "pretraining, words and pairs, tied, token types", TINY_BERT, "pretraining", labels=MLM_LABELS,
         inputs={**PADDED, "token_type_ids": TYPES, "pair_labels": [1, -100, 0]})  # fmt: skip
register("bert", "pretraining, untied, dropout, two threads, checkpointing", UNTIED.replace(**DROPOUT), "pretraining",
         labels=MLM_LABELS, inputs={**PADDED, "pair_labels": [0, 1, 1]}, training=True, checkpointing=True,
         threads=2)  # fmt: skip
register("bert", "token labels", TINY_BERT, "token", num_labels=3, labels=TOKEN_LABELS, inputs=PADDED)
register("bert", "ranks, attention pooling, two threads", with_pooling(TINY_BERT, "attention"), "sequence",
         num_labels=4, loss="ordinal", labels=[3, -100, 1], inputs=PADDED, threads=2)  # fmt: skip
register("bert", "embedding, contrastive, padding skipped", TINY_BERT.replace(**MEAN), "embedding", loss="contrastive",
         loss_options={"temperature": 0.5}, ids=[*IDS, [2, 5, 7, 1, 0]], labels=[1] * 4,
         inputs={"attention_mask": [*MASK, [1, 1, 1, 1, 0]], "skip_padding": True}, on_mlx=False)  # fmt: skip
register("bert", "embedding, ranking, two threads", TINY_BERT.replace(**MEAN), "embedding", loss="ranking",
         loss_options={"temperature": 0.5}, ids=[*IDS, [2, 5, 7, 1, 0]], labels=[0.9, 0.9, 0.1, 0.1],
         inputs={"attention_mask": [*MASK, [1, 1, 1, 1, 0]]}, threads=2)  # fmt: skip
register("mini", "mlm, padded", TINY_MINI, "mlm", labels=MLM_LABELS, inputs=PADDED)
register("larger", "mlm, untied, dropout", TINY_LARGER, "mlm", labels=MLM_LABELS, inputs=PADDED, training=True)
register("larger", "mlm, tied, checkpointing", TINY_LARGER.replace(tie_word_embeddings=True), "mlm", labels=MLM_LABELS,
         inputs=PADDED, training=True, checkpointing=True)  # fmt: skip
register("modernbert", "encoder, local and global layers, ragged", TINY_MODERN, inputs=PADDED)
register("modernbert", "encoder, heads of 8, ragged", TINY_MODERN.replace(hidden_size=16), inputs=PADDED)
register("modernbert", "mlm, tied, packed", TINY_MODERN, "mlm", labels=MLM_LABELS, inputs=PACKED)
register("modernbert", "mlm, tiled, local, packed, two threads", TINY_MODERN, "mlm", labels=MLM_LABELS,
         inputs=PACKED, around=tiny_tiles, threads=2)  # fmt: skip
register("modernbert", "mlm, dropout, checkpointing", TINY_MODERN.replace(**DROPOUT), "mlm", labels=MLM_LABELS,
         inputs=PADDED, training=True, checkpointing=True)  # fmt: skip
register("modernbert", "encoder, padding skipped", TINY_MODERN, inputs={**PADDED, "skip_padding": True}, on_mlx=False)
register("modernbert", "encoder, one token", TINY_MODERN, ids=[[3], [10]])
register("modernbert", "sequence, mean pooling", TINY_MODERN.replace(classifier_pooling="mean"), "sequence",
         num_labels=3, labels=[2, 0, 1], inputs=PADDED)  # fmt: skip
register("modernbert", "pretraining, pairs without a pooler", TINY_MODERN, "pretraining", labels=MLM_LABELS,
         inputs={**PADDED, "pair_labels": [1, 0, -100]})  # fmt: skip
register("modernbert", "spans", TINY_MODERN, "span", ids=[[3, 1, 7, 5, 0], [0] * 5, [9, 1, 4, 10, 0]],
         labels=[[1, 4], [-100, -100], [2, 0]], inputs=PADDED)  # fmt: skip
register("modernbert", "embedding, cosine", TINY_MODERN.replace(classifier_pooling="mean"), "embedding",
         ids=[*IDS, [2, 5, 7, 1, 0]], labels=[0.8, 0.8, -0.3, -0.3])  # fmt: skip
register("modernbert", "many labels, focal, max pooling", TINY_MODERN.replace(classifier_pooling="max"), "sequence",
         num_labels=3, loss="binary_cross_entropy", loss_options={"focal_gamma": 1.5},
         labels=[[1, 0, 1], [1, 1, 0], [0, -100, 0]], inputs=PADDED)  # fmt: skip
register("modernbert", "token labels", TINY_MODERN, "token", num_labels=3, labels=TOKEN_LABELS, inputs=PADDED)
SHARED = TINY_BERT.replace(layer_groups=1)
register("bert", "mlm, shared layers, narrow embeddings, tied, two threads",
         SHARED.replace(embedding_size=4, num_hidden_layers=3), "mlm", labels=MLM_LABELS, inputs=PADDED,
         threads=2)  # fmt: skip
register("bert", "mlm, two groups of shared layers, checkpointing", SHARED.replace(layer_groups=2, num_hidden_layers=4),
         "mlm", labels=MLM_LABELS, inputs=PADDED, checkpointing=True)  # fmt: skip
register("bert", "mlm, positions from an offset, padding before it",
         TINY_BERT.replace(position_offset=2, pad_token_id=0, max_position_embeddings=9), "mlm", ids=[[3, 1, 3, 3, 2],
         [0] * 5, [9, 1, 1, 0, 0]], labels=MLM_LABELS, inputs=PADDED)  # fmt: skip
register("bert", "encoder, a mask of pairs", TINY_BERT, inputs={"attention_mask": PAIRS})
register("bert", "sequence, mean pooling, packed and padded", TINY_BERT.replace(**MEAN), "sequence", num_labels=3,
         labels=[2, 1, 0], inputs=PACKED)  # fmt: skip
register("causal", "encoder, ragged", TINY_CAUSAL, inputs=PADDED)
register("causal", "mlm, packed, tiled, tied", TINY_CAUSAL, "mlm", labels=MLM_LABELS, inputs=PACKED, around=tiny_tiles)
