"""Cases of the single operations, apart from attention."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from glassbert import ops
from glassbert.arrays import scatter_rows
from glassbert.engines.kernels import backward
from glassbert.ops.attention import split_heads
from glassbert.proof.cases import Fixture, away_from_zero, booleans, case

Rng = np.random.Generator


def one_input(x: np.ndarray, run: Callable[..., Any], **options: Any) -> Fixture:
    """A fixture for an operation with a gradient for x alone: `run(engine, x)` gives the output and the state."""

    def function(engine, inputs):
        y, state = run(engine, inputs["x"])
        return y, lambda dy: {"x": backward(dy, state)}

    return Fixture({"x": x}, function, **options)


# ---- linear --------------------------------------------------------------------------------------------------------


def linear_fixture(rng: Rng, shape: tuple[int, ...], outputs: int, bias: bool, method: str = "central") -> Fixture:
    inputs = {"x": rng.standard_normal(shape), "weight": rng.standard_normal((outputs, shape[-1]))}
    if bias:
        inputs["bias"] = rng.standard_normal(outputs)

    def function(engine, inputs):
        y, state = engine.ops.linear(inputs["x"], inputs["weight"], inputs.get("bias"))
        return y, lambda dy: dict(zip(("x", "weight", "bias"), backward(dy, state), strict=True))

    return Fixture(inputs, function, method=method)


@case("op", "linear", "odd sizes, bias")
def _(rng):
    return linear_fixture(rng, (2, 3, 5), 7, True)


@case("op", "linear", "no bias, complex step")
def _(rng):
    return linear_fixture(rng, (4, 3), 5, False, "complex")


@case("op", "linear", "square weight")
def _(rng):
    return linear_fixture(rng, (2, 4, 6), 6, True)


@case("op", "linear", "one token, one output")
def _(rng):
    return linear_fixture(rng, (1, 1, 3), 1, True)


# ---- embedding, chosen rows ----------------------------------------------------------------------------------------


def embedding_fixture(rng: Rng, ids: Any, padding_id: int | None = None, frozen: bool = False) -> Fixture:
    """With `frozen` the padding row enters as a constant, because its gradient is zero by definition."""
    table = rng.standard_normal((7, 5))
    ids = np.asarray(ids)
    is_padding = (np.arange(7) == padding_id)[:, None] if frozen else np.zeros((7, 1), np.bool_)

    def function(engine, inputs):
        constant = engine.array(table)
        if engine.name == "numpy" and inputs["table"].dtype.kind == "c":
            constant = constant.astype(inputs["table"].dtype)
        rows = engine.xp.where(booleans(engine, is_padding), constant, inputs["table"])
        y, state = engine.ops.embedding(rows, engine.integers(ids), padding_id)

        def gradients(dy):
            index, added = backward(dy, state)
            return {"table": scatter_rows(engine.xp.zeros((7, 5), dtype=added.dtype), index, added)}

        return y, gradients

    return Fixture({"table": table}, function)


@case("op", "embedding", "repeated ids")
def _(rng):
    return embedding_fixture(rng, [[3, 0, 3, 3], [6, 0, 1, 3]])


@case("op", "embedding", "frozen padding row")
def _(rng):
    return embedding_fixture(rng, [[3, 2, 3, 2], [0, 2, 1, 3]], padding_id=2, frozen=True)


@case("op", "embedding", "only padding")
def _(rng):
    return embedding_fixture(rng, [[4, 4, 4]], padding_id=4, frozen=True)


@case("op", "embedding", "one id")
def _(rng):
    return embedding_fixture(rng, [[5]])


def take_rows_fixture(rng: Rng, rows: list[int], **options: Any) -> Fixture:
    def run(engine, x):
        return engine.ops.take_rows(x, engine.integers(np.array(rows, np.int64)))

    return one_input(rng.standard_normal((2, 4, 3)), run, **options)


@case("op", "take_rows", "some rows, unsorted")
def _(rng):
    return take_rows_fixture(rng, [7, 0, 5])


@case("op", "take_rows", "a row twice")
def _(rng):
    return take_rows_fixture(rng, [2, 6, 2, 2])


@case("op", "take_rows", "no rows")
def _(rng):
    return take_rows_fixture(rng, [], on_mlx=False)


# ---- layer norm, softmax -------------------------------------------------------------------------------------------


def layer_norm_fixture(
    rng: Rng,
    shape: tuple[int, ...],
    beta: bool = True,
    eps: float = 1e-12,
    spread: float = 1.0,
    method: str = "central",
) -> Fixture:
    width = shape[-1]
    inputs = {"x": 3.0 + spread * rng.standard_normal(shape), "gamma": away_from_zero(rng.standard_normal(width), 0.3)}
    if beta:
        inputs["beta"] = rng.standard_normal(width)

    def function(engine, inputs):
        y, state = engine.ops.layer_norm(inputs["x"], inputs["gamma"], inputs.get("beta"), eps)
        return y, lambda dy: dict(zip(("x", "gamma", "beta"), backward(dy, state), strict=True))

    return Fixture(inputs, function, method=method)


@case("op", "layer_norm", "gamma not 1, odd width")
def _(rng):
    return layer_norm_fixture(rng, (2, 3, 7))


@case("op", "layer_norm", "complex step")
def _(rng):
    return layer_norm_fixture(rng, (3, 5), eps=1e-5, method="complex")


@case("op", "layer_norm", "no beta")
def _(rng):
    return layer_norm_fixture(rng, (4, 6), beta=False, eps=1e-5)


@case("op", "layer_norm", "one row, two features")
def _(rng):
    return layer_norm_fixture(rng, (1, 2), eps=0.3)


@case("op", "layer_norm", "2,000 rows of 64")
def _(rng):
    """Enough rows that the kernels cut them into pieces, and a width that fits the CUDA kernel."""
    return dataclasses.replace(layer_norm_fixture(rng, (2000, 64)), entries=4)


@case("op", "layer_norm", "variance as small as eps")
def _(rng):
    return layer_norm_fixture(rng, (3, 5), eps=1e-2, spread=0.1)


@case("op", "softmax", "complex step")
def _(rng):
    return softmax_fixture(2.0 * rng.standard_normal((2, 3, 5)), "complex")


@case("op", "softmax", "square, three axes")
def _(rng):
    return softmax_fixture(2.0 * rng.standard_normal((2, 4, 4)))


@case("op", "softmax", "scores around 1000")
def _(rng):
    return softmax_fixture(1000.0 + rng.standard_normal((3, 5)))


@case("op", "softmax", "one entry per row")
def _(rng):
    return softmax_fixture(rng.standard_normal((3, 1)))


def softmax_fixture(x: np.ndarray, method: str = "central") -> Fixture:
    return one_input(x, lambda engine, x: engine.ops.softmax(x), method=method)


# ---- activations ---------------------------------------------------------------------------------------------------


def activation_fixture(name: str, x: np.ndarray, method: str = "central") -> Fixture:
    return one_input(x, lambda engine, x: getattr(engine.ops, name)(x), method=method)


def geglu_fixture(x: np.ndarray, activation: str) -> Fixture:
    return one_input(x, lambda engine, x: engine.ops.geglu(x, activation))


# 3 · 7 · 41 = 861 entries: compiled loops run their vector part and their remainder.
SEVERAL_VECTORS = (3, 7, 41)


@case("op", "relu", "away from zero")
def _(rng):
    return activation_fixture("relu", away_from_zero(rng.standard_normal(SEVERAL_VECTORS), 0.1))


@case("op", "relu", "one entry")
def _(rng):
    return activation_fixture("relu", away_from_zero(rng.standard_normal((1, 1)), 0.1))


@case("op", "gelu", "from -7 to 7")
def _(rng):
    return activation_fixture("gelu", rng.permutation(np.linspace(-7, 7, 861)).reshape(SEVERAL_VECTORS))


@case("op", "gelu", "one entry")
def _(rng):
    return activation_fixture("gelu", rng.standard_normal((1, 1)))


@case("op", "gelu_tanh", "from -7 to 7")
def _(rng):
    return activation_fixture("gelu_tanh", np.linspace(-7, 7, 30).reshape(2, 15))


@case("op", "gelu_tanh", "complex step")
def _(rng):
    return activation_fixture("gelu_tanh", rng.standard_normal((3, 5)), "complex")


@case("op", "tanh", "complex step")
def _(rng):
    return activation_fixture("tanh", rng.standard_normal((3, 5)), "complex")


@case("op", "geglu", "gelu, odd width")
def _(rng):
    return geglu_fixture(rng.standard_normal((2, 3, 10)), "gelu")


@case("op", "geglu", "gelu, several rows of 82")
def _(rng):
    return geglu_fixture(rng.standard_normal((3, 7, 82)), "gelu")


@case("op", "geglu", "relu")
def _(rng):
    return geglu_fixture(away_from_zero(rng.standard_normal((2, 6)), 0.1), "relu")


@case("op", "geglu", "gelu_tanh, one feature")
def _(rng):
    return geglu_fixture(rng.standard_normal((1, 1, 2)), "gelu_tanh")


# ---- heads ----------------------------------------------------------------------------------------------------------


@case("op", "join_heads", "three heads")
def _(rng):
    inputs = {name: rng.standard_normal((2, 4, 3, 5)) for name in ("q", "k", "v")}

    def function(engine, inputs):
        y, state = engine.ops.join_heads(*(inputs[name] for name in ("q", "k", "v")))
        return y, lambda dy: dict(zip(("q", "k", "v"), backward(dy, state), strict=True))

    return Fixture(inputs, function)


@case("op", "join_heads", "heads that are parts of one array")
def _(rng):
    def function(engine, inputs):
        q, k, v = split_heads(inputs["qkv"], 2)
        y, state = engine.ops.join_heads(q, k + 0.0, v)
        return y, lambda dy: {"qkv": engine.ops.join_heads(*backward(dy, state))[0]}

    return Fixture({"qkv": rng.standard_normal((3, 2, 24))}, function)


# ---- dropout, rotary ------------------------------------------------------------------------------------------------


def dropout_fixture(rng: Rng, rate: float, masked: bool = True) -> Fixture:
    shape = (2, 7, 41)
    mask = rng.random(shape) >= rate if masked else None

    def run(engine, x):
        return engine.ops.dropout(x, None if mask is None else booleans(engine, mask), rate)

    return one_input(rng.standard_normal(shape), run)


@case("op", "dropout", "fixed mask")
def _(rng):
    return dropout_fixture(rng, 0.3)


@case("op", "dropout", "rate 0.9")
def _(rng):
    return dropout_fixture(rng, 0.9)


@case("op", "dropout", "no mask")
def _(rng):
    return dropout_fixture(rng, 0.3, masked=False)


def rotary_fixture(rng: Rng, positions: Any, heads: int, size: int, batch: int, method: str = "central") -> Fixture:
    positions = np.asarray(positions)

    def run(engine, x):
        dtype = np.dtype("float64" if engine.dtype_name == "float64" else "float32")
        cos, sin = map(engine.array, ops.rotary_angles(positions, size, 100.0, dtype))
        return engine.ops.rotary(x, cos, sin)

    return one_input(rng.standard_normal((batch, positions.shape[1], heads, size)), run, method=method)


@case("op", "rotary", "packed documents, each from position 0")
def _(rng):
    return rotary_fixture(rng, [[0, 1, 2, 0, 1], [0, 0, 1, 2, 3]], 3, 6, 2)


@case("op", "rotary", "one plane, complex step")
def _(rng):
    return rotary_fixture(rng, [[0, 1, 2, 3]], 1, 2, 2, "complex")
