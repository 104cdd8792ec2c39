"""Cases of attention: patterns, biases, scales and more keys than queries, with all weights kept and in tiles."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from glassbert import ops
from glassbert.engines.kernels import backward
from glassbert.engines.threads import using_threads
from glassbert.proof.cases import Fixture, FrozenDropout, case, settings

tiles = sys.modules["glassbert.ops.tiled_attention"]  # the module; `ops.tiled_attention` is the function

BATCH, HEADS, LENGTH = 3, 2, 7
RAGGED = [[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]]
HOLES = [[0, 1, 0, 1, 1, 0, 1], [1, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 0, 0, 0]]
PACKED = [[1, 1, 1, 2, 2, 3, 0], [1, 2, 2, 2, 2, 2, 2], [0, 0, 0, 0, 0, 0, 0]]
IN_PIECES = [[1, 2, 1, 2, 2, 0, 1], [3, 3, 1, 1, 3, 3, 1], [1, 0, 2, 0, 1, 0, 2]]
ANY_PAIRS = np.random.default_rng(11).random((BATCH, LENGTH, LENGTH)) < 0.5  # every query and key its own choice
ANY_PAIRS[0, 2] = ANY_PAIRS[1, :, 4] = False  # a query without keys, a key without queries

_BOTH = {"segments": PACKED, "keys": HOLES}

PATTERNS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "ragged and all-padding rows": {"keys": RAGGED},
    "padding in the middle": {"keys": HOLES},
    "packed documents": {"segments": PACKED},
    "documents in pieces": {"segments": IN_PIECES},
    "causal": {"causal": True},
    "causal, packed": {"causal": True, "segments": PACKED},
    "local window": {"window": 1},
    "local window, ragged": {"window": 2, "keys": RAGGED},
    "local, causal, packed, padded": {"window": 2, "causal": True, **_BOTH},
    "mask by pair": {"mask": ANY_PAIRS},
    "mask by pair, causal, padding in the middle": {"mask": ANY_PAIRS, "causal": True, "keys": HOLES},
}


def pattern_on(
    engine: Any,
    keys: Any = None,
    segments: Any = None,
    window: int | None = None,
    causal: bool = False,
    mask: Any = None,
    offset: int = 0,
    always: int = 0,
) -> ops.AttentionPattern:
    """The pattern with its arrays on an engine."""
    arrays = [None if values is None else engine.integers(np.asarray(values)) for values in (keys, segments, mask)]
    return ops.AttentionPattern(arrays[0], arrays[1], window, causal, arrays[2], offset, always)


@contextlib.contextmanager
def tiles_and_threads(tile: tuple[int, int]) -> Iterator[None]:
    """Tiles of this size, and two threads that share the heads."""
    with settings(tiles, QUERY_TILE=tile[0], KEY_TILE=tile[1]), using_threads(2):
        yield


def attention_fixture(
    rng: np.random.Generator,
    pattern: dict[str, Any],
    tiled: bool,
    rate: float = 0.0,
    shape: tuple[int, int, int, int] = (BATCH, HEADS, LENGTH, 4),
    keys: int | None = None,
    bias: tuple[int, int] | None = None,
    scale: float | None = None,
    spread: float = 1.0,
    tile: tuple[int, int] = (3, 2),
) -> Fixture:
    """Queries, keys and values of this shape; `keys` where there is another number of keys than of queries.

    `bias` gives the first two sizes of a bias [B or 1, heads or 1, Tq, Tk]. `spread` multiplies queries and keys.
    """
    batch, heads, queries, size = shape
    length = queries if keys is None else keys
    inputs = {"q": rng.standard_normal(shape) * spread, "k": rng.standard_normal((batch, heads, length, size)) * spread}
    inputs["v"] = rng.standard_normal((batch, heads, length, size))
    if bias is not None:
        inputs["bias"] = rng.standard_normal((*bias, queries, length))

    def function(engine, inputs):
        who = pattern_on(engine, **pattern)
        source = FrozenDropout(engine)

        def tile_mask(rows, queries, keys, shape):
            return source.mask(f"tile.{queries.start}.{keys.start}", shape, rate, row=rows.start)

        given = (inputs["q"], inputs["k"], inputs["v"], who, inputs.get("bias"), scale)
        if tiled:
            context, state = engine.ops.tiled_attention(*given, tile_mask if rate else None, rate)
        else:
            mask = source.mask("weights", (batch, heads, queries, length), rate) if rate else None
            context, state = engine.ops.attention(*given, mask, rate)
        return context, lambda dy: dict(zip(("q", "k", "v", "bias"), backward(dy, state), strict=True))

    return Fixture(
        inputs,
        function,
        entries=20,
        around=functools.partial(tiles_and_threads, tile),
        # On the host the plan of tiles follows mask and documents, on a device it cannot: other tiles, other masks.
        engines_agree=not (tiled and rate),
    )


def register(situation: str, pattern: dict[str, Any], **options: Any) -> None:
    case("op", "attention", situation)(lambda rng: attention_fixture(rng, pattern, False, **options))
    case("op", "tiled_attention", situation)(lambda rng: attention_fixture(rng, pattern, True, **options))


for _situation, _pattern in PATTERNS.items():
    register(_situation, _pattern)
register("dropout, ragged and all-padding rows", {"keys": RAGGED}, rate=0.4)
register("dropout, local, packed", {"segments": PACKED, "window": 2}, rate=0.4)
register("one token", {}, shape=(2, 1, 1, 3))
register("large scores", {"keys": RAGGED}, spread=6.0)

# Heads of 8 are the smallest that MLX's fused kernel takes.
register("heads of 8, no mask", {}, shape=(BATCH, HEADS, LENGTH, 8))
register("heads of 8, ragged and all-padding rows", {"keys": RAGGED}, shape=(BATCH, HEADS, LENGTH, 8))
register("heads of 8, causal, packed, padded", {"causal": True, **_BOTH}, shape=(BATCH, HEADS, LENGTH, 8))

BY_HEAD, BY_ROW, BY_BOTH, SHARED = (1, HEADS), (BATCH, 1), (BATCH, HEADS), (1, 1)
register("bias by head", {}, bias=BY_HEAD)
register("bias by row", {}, bias=BY_ROW)
register("bias by row and head, ragged and all-padding rows", {"keys": RAGGED}, bias=BY_BOTH)
register("one bias for all, causal, packed", {"causal": True, "segments": PACKED}, bias=SHARED)
register("bias by head, dropout, local window", {"window": 2}, bias=BY_HEAD, rate=0.4)
register("bias by row, another scale", {"keys": HOLES}, bias=BY_ROW, scale=0.8)
register("another scale", {"keys": RAGGED}, scale=0.8)
register("another scale, heads of 8, causal", {"causal": True}, scale=0.8, shape=(BATCH, HEADS, LENGTH, 8))

# Four queries at the end of seven keys: the first three keys come from a memory.
_LATE: dict[str, Any] = {"shape": (BATCH, HEADS, 4, 4), "keys": LENGTH}
register("more keys than queries, causal", {"causal": True, "offset": 3}, **_LATE)
register("more keys than queries, no mask", {}, **_LATE)
register("more keys than queries, local, packed, padded", {"window": 2, "offset": 3, **_BOTH}, **_LATE)
register("more keys than queries, causal, bias by head", {"causal": True, "offset": 3}, bias=BY_HEAD, **_LATE)
register("more keys than queries, mask by pair", {"mask": ANY_PAIRS[:, :4]}, **_LATE)
register("fewer keys than queries, padding in the middle", {"keys": np.array(HOLES)[:, :4]}, keys=4)


@case("op", "tiled_attention", "one query and one key per tile")
def _(rng):
    return attention_fixture(rng, PATTERNS["ragged and all-padding rows"], True, tile=(1, 1))


@case("op", "tiled_attention", "one tile")
def _(rng):
    return attention_fixture(rng, PATTERNS["causal, packed"], True, tile=(128, 512))


@case("op", "tiled_attention", "300 tokens, local window, padding, documents")
def _(rng):
    """Long enough for tiles of the real size, and for MLX's blocks of a local window."""
    tokens = np.arange(300)
    who = {"window": 5, "keys": [tokens < 290], "segments": [1 + (tokens >= 130) + (tokens >= 140)]}
    fixture = attention_fixture(rng, who, True, shape=(1, 1, 300, 8), tile=(tiles.QUERY_TILE, tiles.KEY_TILE))
    return dataclasses.replace(fixture, entries=4)
