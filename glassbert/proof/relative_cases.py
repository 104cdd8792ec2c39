"""Cases of the operations of relative positions and of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.engines.kernels import backward
from glassbert.proof.cases import Fixture, case

Rng = np.random.Generator


def relative_fixture(
    rng: Rng,
    index: Sequence[int],
    keys: bool = True,
    queries: bool = True,
    shape: tuple[int, int, int] = (3, 2, 4),
    rows: int | None = None,
) -> Fixture:
    """`index` has an entry for each of 2T - 1 distances; `shape` is batch, heads, features."""
    batch, heads, size = shape
    length = (len(index) + 1) // 2
    rows = max(index) + 1 if rows is None else rows
    inputs = {name: rng.standard_normal((batch, heads, length, size)) for name in ("q", "k")}
    for name, wanted in (("keys", keys), ("queries", queries)):
        if wanted:
            inputs[name] = rng.standard_normal((rows, heads, size))
    names = ("q", "k", "keys", "queries")

    def function(engine: Any, given: Any) -> Any:
        arguments = [given.get(name) for name in names]
        y, state = engine.ops.relative_scores(*arguments, np.asarray(index), 0.7)

        def run_backward(dy: Any) -> dict[str, Any]:
            found = dict(zip(names, backward(dy, state), strict=True))
            zeros = {name: engine.xp.zeros_like(given[name]) for name in given}
            return {name: zeros[name] if found[name] is None else found[name] for name in given}

        return y, run_backward

    return Fixture(inputs, function, entries=24)


case("op", "relative_scores", "a row for every distance")(lambda rng: relative_fixture(rng, range(9)))
case("op", "relative_scores", "far distances share a row, one row is not used")(
    lambda rng: relative_fixture(rng, [0, 0, 1, 2, 4, 5, 6, 6, 6], rows=8)
)
case("op", "relative_scores", "content to position alone")(
    lambda rng: relative_fixture(rng, [0, 1, 2, 3, 3], queries=False)
)
case("op", "relative_scores", "position to content alone")(
    lambda rng: relative_fixture(rng, [0, 0, 1, 2, 3], keys=False)
)
case("op", "relative_scores", "one token")(lambda rng: relative_fixture(rng, [1], rows=2))
case("op", "relative_scores", "two tokens, one head, odd size")(
    lambda rng: relative_fixture(rng, [0, 1, 2], shape=(1, 1, 3))
)
case("op", "relative_scores", "many rows of a batch")(lambda rng: relative_fixture(rng, range(33), shape=(5, 3, 8)))


def convolution_fixture(rng: Rng, width: int, shape: tuple[int, int, int], outputs: int, near: bool) -> Fixture:
    batch, length, size = shape
    inputs = {
        "x": rng.standard_normal(shape),
        "weight": rng.standard_normal((outputs, size, width)),
        "bias": rng.standard_normal(outputs),
    }
    counts = (rng.random((batch, length, width)) < 0.6) if near else None

    def function(engine: Any, given: Any) -> Any:
        mask = None if counts is None else engine.integers(counts)
        y, state = engine.ops.convolution(given["x"], given["weight"], given["bias"], mask)
        return y, lambda dy: dict(zip(("x", "weight", "bias"), backward(dy, state), strict=True))

    return Fixture(inputs, function, entries=24)


case("op", "convolution", "three neighbours")(lambda rng: convolution_fixture(rng, 3, (2, 5, 4), 4, False))
case("op", "convolution", "five neighbours, some left out")(lambda rng: convolution_fixture(rng, 5, (3, 6, 3), 2, True))
case("op", "convolution", "wider than the row")(lambda rng: convolution_fixture(rng, 7, (2, 2, 3), 3, True))
case("op", "convolution", "one neighbour: a linear map")(lambda rng: convolution_fixture(rng, 1, (2, 4, 3), 5, False))
