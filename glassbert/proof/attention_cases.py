"""Cases of attention: who may see whom, with all weights kept and in tiles."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any

import numpy as np

from glassbert import ops
from glassbert.proof.cases import Fixture, FrozenDropout, case, settings

tiles = sys.modules["glassbert.ops.tiled_attention"]  # the module; `ops.tiled_attention` is the function

LENGTH = 7
RAGGED = [[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0]]
HOLES = [[0, 1, 0, 1, 1, 0, 1], [1, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 0, 0, 0]]
PACKED = [[1, 1, 1, 2, 2, 3, 0], [1, 2, 2, 2, 2, 2, 2], [0, 0, 0, 0, 0, 0, 0]]
IN_PIECES = [[1, 2, 1, 2, 2, 0, 1], [3, 3, 1, 1, 3, 3, 1], [1, 0, 2, 0, 1, 0, 2]]

_BOTH = {"segments": PACKED, "keys": HOLES}

PATTERNS: dict[str, dict[str, Any]] = {
    "everybody sees everybody": {},
    "ragged and all-padding rows": {"keys": RAGGED},
    "padding in the middle": {"keys": HOLES},
    "packed documents": {"segments": PACKED},
    "documents in pieces": {"segments": IN_PIECES},
    "causal": {"causal": True},
    "causal, packed": {"causal": True, "segments": PACKED},
    "local window": {"window": 1},
    "local window, ragged": {"window": 2, "keys": RAGGED},
    "local, causal, packed, padded": {"window": 2, "causal": True, **_BOTH},
}


def pattern_on(engine: Any, keys: Any = None, segments: Any = None, window: Any = None, causal: bool = False) -> Any:
    on_engine = [None if values is None else engine.integers(np.asarray(values)) for values in (keys, segments)]
    return ops.AttentionPattern(on_engine[0], on_engine[1], window, causal)


def attention_fixture(
    rng: np.random.Generator,
    pattern: dict[str, Any],
    tiled: bool,
    rate: float = 0.0,
    shape: tuple[int, int, int, int] = (3, 2, LENGTH, 4),
    scale: float = 1.0,
    tile: tuple[int, int] = (3, 2),
) -> Fixture:
    """q, k and v with O(1) scores (times scale²), so that no weight hides behind another."""
    inputs = {name: rng.standard_normal(shape) * factor for name, factor in (("q", scale), ("k", scale), ("v", 1.0))}

    def function(engine, inputs):
        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        who = pattern_on(engine, **pattern)
        source = FrozenDropout(engine)

        def keep_tile(rows, queries, keys, shape):
            return source.keep(f"tile.{queries.start}.{keys.start}", shape, rate, row=rows.start)

        if tiled:
            masks = keep_tile if rate else None
            context, state = ops.tiled_attention(q, k, v, who, masks, rate)
        else:
            masks = source.keep("weights", (*q.shape[:3], k.shape[2]), rate) if rate else None
            context, state = ops.attention(q, k, v, who, masks, rate)

        def backward(dy):
            if tiled:
                gradients = ops.tiled_attention_backward(dy, q, k, v, context, state, who, masks, rate)
            else:
                gradients = ops.attention_backward(dy, q, k, v, context, state, masks, rate)
            return dict(zip(("q", "k", "v"), gradients, strict=True))

        return context, backward

    return Fixture(
        inputs,
        function,
        entries=20,
        around=functools.partial(settings, tiles, QUERY_TILE=tile[0], KEY_TILE=tile[1]),
        # On the host the plan of tiles follows mask and documents, on a device it cannot: other tiles, other masks.
        engines_agree=not (tiled and rate),
    )


def _register(situation: str, pattern: dict[str, Any], **options: Any) -> None:
    case("op", "attention", situation)(lambda rng: attention_fixture(rng, pattern, False, **options))
    case("op", "tiled_attention", situation)(lambda rng: attention_fixture(rng, pattern, True, **options))


for _situation, _pattern in PATTERNS.items():
    _register(_situation, _pattern)
_register("dropout, ragged and all-padding rows", {"keys": RAGGED}, rate=0.4)
_register("dropout, local, packed", {"segments": PACKED, "window": 2}, rate=0.4)
_register("one token", {}, shape=(2, 1, 1, 3))
_register("large scores", {"keys": RAGGED}, scale=6.0)

# Heads of 8 are the smallest that MLX's fused kernel takes.
_register("heads of 8, ragged and all-padding rows", {"keys": RAGGED}, shape=(3, 2, LENGTH, 8))
_register("heads of 8, causal, packed, padded", {"causal": True, **_BOTH}, shape=(3, 2, LENGTH, 8))


@case("op", "tiled_attention", "one query and one key a tile")
def _(rng):
    return attention_fixture(rng, PATTERNS["ragged and all-padding rows"], True, tile=(1, 1))


@case("op", "tiled_attention", "a single tile")
def _(rng):
    return attention_fixture(rng, PATTERNS["causal, packed"], True, tile=(128, 512))


@case("op", "tiled_attention", "300 tokens, local window, padding, documents")
def _(rng):
    """Long enough for tiles of the real size, and for MLX's blocks of a local window."""
    tokens = np.arange(300)
    who = {"window": 5, "keys": [tokens < 290], "segments": [1 + (tokens >= 130) + (tokens >= 140)]}
    fixture = attention_fixture(rng, who, True, shape=(1, 1, 300, 8), tile=(tiles.QUERY_TILE, tiles.KEY_TILE))
    return dataclasses.replace(fixture, entries=4)
