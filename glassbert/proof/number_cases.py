"""Cases of numbers beside words: the embedding of numbers, the layer, and whole models."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.engines.kernels import backward
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Batch
from glassbert.models.numbers import NumbersConfig
from glassbert.proof.cases import Fixture, case
from glassbert.proof.layer_cases import DROPOUT, IDS, MASK, TINY_BERT, TINY_MODERN, Rng, embeddings_of, layer_fixture
from glassbert.proof.model_cases import register

NUMBERS = NumbersConfig(((0.0, 1.0, 4.0), (-2.0, 2.0)))
# Two numbers in one interval, one beyond the last knot, one on a knot, one missing in each column.
FIELDS = [[0, 1, 1, 2, 0], [0, 0, 0, 0, 0], [1, 2, 1, 1, 2]]
VALUES = [[np.nan, 0.3, 0.8, 1.2, 7.0], [0.0] * 5, [9.0, np.nan, 1.0, np.nan, -1.0]]
GIVEN = {"fields": FIELDS, "values": VALUES}


def with_numbers(config: EncoderConfig) -> EncoderConfig:
    return config.replace(embeddings="numbers", numbers=NUMBERS)


def embedding_fixture(rng: Rng, fields: Any, values: Any, method: str = "central") -> Fixture:
    index, weights = NUMBERS.place(np.asarray(fields), np.asarray(values))

    def function(engine, inputs):
        y, state = engine.ops.number_embedding(inputs["steps"], engine.integers(index), engine.array(weights))
        return y, lambda dy: {"steps": backward(dy, state)}

    return Fixture({"steps": rng.standard_normal((NUMBERS.columns, NUMBERS.rows, 5))}, function, method=method)


@case("op", "number_embedding", "between, on and beyond knots, missing, no number")
def _(rng):
    return embedding_fixture(rng, FIELDS, VALUES)


@case("op", "number_embedding", "no numbers at all")
def _(rng):
    return embedding_fixture(rng, [[0, 0]], [[1.0, 2.0]])


@case("op", "number_embedding", "one token, complex step")
def _(rng):
    return embedding_fixture(rng, [[1]], [[2.5]], method="complex")


def numbers_fixture(rng: Rng, config: EncoderConfig, given: bool = True, dropout: bool = False) -> Fixture:
    layer = embeddings_of(config)
    index, weights = NUMBERS.place(np.array(FIELDS), np.array(VALUES))

    def batch(engine: Any) -> Batch:
        ids, positions = engine.integers(np.array(IDS)), engine.integers(np.arange(5)[None])
        if not given:
            return Batch(positions, ids)
        return Batch(positions, ids, number_index=engine.integers(index), number_weights=engine.array(weights))

    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(batch(engine), scope),
        lambda engine, dy, scope: layer.backward(dy, batch(engine), scope),
        shape=None,
        dropout=dropout,
    )


case("layer", "numbers", "beside words, token types, learned positions")(
    lambda rng: numbers_fixture(rng, with_numbers(TINY_BERT))
)
case("layer", "numbers", "a batch without numbers")(
    lambda rng: numbers_fixture(rng, with_numbers(TINY_BERT), given=False)
)
case("layer", "numbers", "rotary, dropout")(
    lambda rng: numbers_fixture(rng, with_numbers(TINY_MODERN.replace(**DROPOUT)), dropout=True)
)
case("layer", "numbers", "narrow embeddings")(
    lambda rng: numbers_fixture(rng, with_numbers(TINY_BERT.replace(embedding_size=4)))
)

register("bert", "numbers, classes, two threads", with_numbers(TINY_BERT), "sequence", num_labels=3,
         labels=[2, -100, 0], inputs={"attention_mask": MASK, **GIVEN}, threads=2)  # fmt: skip
register("modernbert", "numbers, ranks, mean pooling, dropout, checkpointing",
         with_numbers(TINY_MODERN.replace(**DROPOUT, classifier_pooling="mean")), "sequence", num_labels=4,
         loss="ordinal", labels=[3, -100, 1], inputs={"attention_mask": MASK, **GIVEN}, training=True,
         checkpointing=True)  # fmt: skip
register("modernbert", "numbers, padding skipped", with_numbers(TINY_MODERN),
         inputs={"attention_mask": MASK, "skip_padding": True, **GIVEN}, on_mlx=False)  # fmt: skip
