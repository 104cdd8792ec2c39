"""Cases of pooling: ragged rows, rows of padding alone, no mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.engines.kernels import backward
from glassbert.proof.cases import Fixture, case
from glassbert.proof.op_cases import Rng, one_input


def pooling_fixture(rng: Rng, name: str, mask: Any = None) -> Fixture:
    def run(engine, x):
        return getattr(engine.ops, name)(x, None if mask is None else engine.integers(np.asarray(mask)))

    return one_input(rng.standard_normal((3, 4, 5)), run)


@case("op", "cls_pool", "padded batch")
def _(rng):
    return pooling_fixture(rng, "cls_pool", [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])


@case("op", "mean_pool", "ragged, one row all padding")
def _(rng):
    return pooling_fixture(rng, "mean_pool", [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])


@case("op", "mean_pool", "no mask")
def _(rng):
    return pooling_fixture(rng, "mean_pool")


@case("op", "max_pool", "ragged, one row all padding")
def _(rng):
    return pooling_fixture(rng, "max_pool", [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])


@case("op", "last_pool", "ragged, padding before and after, one row all padding")
def _(rng):
    return pooling_fixture(rng, "last_pool", [[1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0]])


@case("op", "last_pool", "no mask")
def _(rng):
    return pooling_fixture(rng, "last_pool")


@case("op", "max_pool", "no mask")
def _(rng):
    return pooling_fixture(rng, "max_pool")


def attention_pool_fixture(rng: Rng, mask: Any = None, method: str = "central") -> Fixture:
    def function(engine, inputs):
        real = None if mask is None else engine.integers(np.asarray(mask))
        y, state = engine.ops.attention_pool(inputs["x"], real, inputs["query"])
        return y, lambda dy: dict(zip(("x", "query"), backward(dy, state), strict=True))

    inputs = {"x": rng.standard_normal((3, 4, 5)), "query": 2.0 * rng.standard_normal(5)}
    return Fixture(inputs, function, method=method)


@case("op", "attention_pool", "ragged, one row all padding")
def _(rng):
    return attention_pool_fixture(rng, [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])


@case("op", "attention_pool", "no mask, complex step")
def _(rng):
    return attention_pool_fixture(rng, method="complex")
