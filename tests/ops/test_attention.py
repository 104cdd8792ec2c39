"""Attention in every form: the same numbers whole, in tiles and one by one; nothing but zeros where nobody is seen."""

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassbert import ops
from glassbert.ops.attention import AttentionPattern, attention_weights
from glassbert.ops.registry import plain_operations
from tests.ops.attention_reference import attention_one_by_one, may_see

tiles = sys.modules["glassbert.ops.tiled_attention"]
STRICT = {"over": "raise", "invalid": "raise", "divide": "raise"}


@st.composite
def situations(draw):
    """A pattern over one to three rows of one to forty tokens, and the sizes of tiles."""
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    shape = (batch, length)
    keys = segments = None
    if draw(st.booleans()):
        if draw(st.booleans()):  # padding at the end, perhaps the whole row
            keys = np.arange(length) < np.array([draw(st.integers(0, length)) for _ in range(batch)])[:, None]
        else:  # holes anywhere
            keys = np.array(draw(st.lists(st.booleans(), min_size=batch * length, max_size=batch * length)))
            keys = keys.reshape(shape)
    if draw(st.booleans()):
        numbers = st.lists(st.integers(0, 4), min_size=batch * length, max_size=batch * length)
        segments = np.array(draw(numbers)).reshape(shape)
        if draw(st.booleans()):  # documents in one piece each, padding at the end
            segments = np.sort(np.where(segments == 0, 9, segments), axis=1) % 9
    window = draw(st.none() | st.integers(0, length))
    who = {"keys": keys, "segments": segments, "window": window, "causal": draw(st.booleans())}
    return who, shape, (draw(st.integers(1, 17)), draw(st.integers(1, 17))), draw(st.integers(0, 2**32 - 1))


def drawn(shape, seed, heads=2, size=4, scale=1.0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    q, k, v, dy = (rng.standard_normal((shape[0], heads, shape[1], size)).astype(dtype) for _ in range(4))
    return q * dtype(scale), k * dtype(scale), v, dy


def with_tiles(monkeypatch, tile):
    monkeypatch.setattr(tiles, "QUERY_TILE", tile[0])
    monkeypatch.setattr(tiles, "KEY_TILE", tile[1])


def both_ways(q, k, v, dy, pattern):
    """(context, dq, dk, dv) with all weights kept, and in tiles."""
    context, state = ops.attention(q, k, v, pattern)
    dense = (context, *ops.attention_backward(dy, q, k, v, context, state))
    context, state = ops.tiled_attention(q, k, v, pattern)
    tiled = (context, *ops.tiled_attention_backward(dy, q, k, v, context, state, pattern))
    return dense, tiled


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(situations())
def test_tiles_give_what_whole_rows_give_for_any_pattern(monkeypatch, situation):
    who, shape, tile, seed = situation
    with_tiles(monkeypatch, tile)
    q, k, v, dy = drawn(shape, seed)
    with np.errstate(**STRICT):
        dense, tiled = both_ways(q, k, v, dy, AttentionPattern(**who))
        with plain_operations():
            plain_dense, plain_tiled = both_ways(q, k, v, dy, AttentionPattern(**who))
    for other in (tiled, plain_dense, plain_tiled):
        for one, two in zip(dense, other, strict=True):
            np.testing.assert_allclose(two, one, rtol=0, atol=1e-12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(situations())
def test_both_give_what_the_definition_says(monkeypatch, situation):
    who, shape, tile, seed = situation
    with_tiles(monkeypatch, tile)
    q, k, v, dy = drawn(shape, seed)
    dense, tiled = both_ways(q, k, v, dy, AttentionPattern(**who))
    expected = attention_one_by_one(q, k, v, **who)
    np.testing.assert_allclose(dense[0], expected, atol=1e-12)
    np.testing.assert_allclose(tiled[0], expected, atol=1e-12)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(situations())
def test_the_plan_covers_every_pair_that_may_see_each_other_once(monkeypatch, situation):
    who, (batch, length), tile, _ = situation
    with_tiles(monkeypatch, tile)
    visits = np.zeros((batch, length, length), int)
    for rows, queries, keys in tiles.tile_plan(AttentionPattern(**who), batch, length, True):
        visits[rows, queries, keys] += 1
    assert visits.max(initial=0) <= 1
    for row in range(batch):
        of_row = {name: None if who[name] is None else who[name][row] for name in ("keys", "segments")}
        for query in range(length):
            for key in range(length):
                if may_see(query, key, **of_row, window=who["window"], causal=who["causal"]):
                    assert visits[row, query, key] == 1


@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize("keys", [None, "padded"])
def test_local_attention_never_touches_keys_outside_its_window(window, keys):
    length = 2000
    mask = None if keys is None else np.arange(length)[None] < 1700
    pattern = AttentionPattern(keys=mask, window=window)
    plan = list(tiles.tile_plan(pattern, 1, length, True))
    for _, queries, seen in plan:
        assert seen.start >= queries.start - window and seen.stop <= queries.stop + window
    pairs = sum((q.stop - q.start) * (k.stop - k.start) for _, q, k in plan)
    assert pairs <= length * (tiles.QUERY_TILE + 2 * window)


def test_keys_outside_the_window_may_hold_anything():
    q, k, v, dy = drawn((1, 600), 0)
    pattern = AttentionPattern(window=4)
    clean, state = ops.tiled_attention(q, k, v, pattern)
    k[:, :, 300:], v[:, :, 300:] = np.nan, np.nan
    dirty, state = ops.tiled_attention(q, k, v, pattern)
    np.testing.assert_array_equal(dirty[:, :, :128], clean[:, :, :128])  # the first tile of queries never meets them
    dq, _, _ = ops.tiled_attention_backward(dy, q, k, v, dirty, state, pattern)
    assert np.isfinite(dq[:, :, :128]).all()


def test_causal_attention_costs_half_and_documents_cost_the_sum_of_their_squares():
    length = 2048
    everything = [(q.stop - q.start) * (k.stop - k.start) for _, q, k in plan_of(AttentionPattern(), length)]
    causal = [(q.stop - q.start) * (k.stop - k.start) for _, q, k in plan_of(AttentionPattern(causal=True), length)]
    packed = AttentionPattern(segments=1 + np.arange(length)[None] // 256)
    documents = [(q.stop - q.start) * (k.stop - k.start) for _, q, k in plan_of(packed, length)]
    assert sum(everything) == length**2
    assert sum(causal) < 0.54 * length**2
    assert sum(documents) == 8 * 256**2


def plan_of(pattern, length):
    return tiles.tile_plan(pattern, 1, length, True)


UNSEEING = {
    "all padding": {"keys": np.zeros((2, 6), bool)},
    "one row all padding": {"keys": np.array([[1] * 6, [0] * 6])},
    "no document": {"segments": np.zeros((2, 6), int)},
    "window between holes": {"keys": np.array([[1, 0, 0, 0, 0, 1]] * 2), "window": 1},
    "causal before the first key": {"keys": np.array([[0, 0, 0, 1, 1, 1]] * 2), "causal": True},
}


@pytest.mark.parametrize("who", UNSEEING.values(), ids=UNSEEING)
@pytest.mark.parametrize("plain", [False, True], ids=["kernels", "plain"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_who_sees_nobody_gets_zeros_and_gives_zero_gradients(monkeypatch, who, plain, dtype, scale):
    with_tiles(monkeypatch, (2, 2))
    q, k, v, dy = drawn((2, 6), 1, scale=scale, dtype=dtype)
    pattern = AttentionPattern(**who)
    blind = ~pattern.allowed(np, slice(0, 2), slice(0, 6), slice(0, 6)).any(-1)
    blind = np.broadcast_to(blind, (2, 1, 6))[:, 0]
    unseen = ~np.broadcast_to(pattern.allowed(np, slice(0, 2), slice(0, 6), slice(0, 6)), (2, 1, 6, 6)).any(-2)[:, 0]
    assert blind.any()
    with np.errstate(**STRICT):
        if plain:
            with plain_operations():
                results = both_ways(q, k, v, dy, pattern)
        else:
            results = both_ways(q, k, v, dy, pattern)
    for context, dq, dk, dv in results:
        assert all(np.isfinite(x).all() and x.dtype == dtype for x in (context, dq, dk, dv))
        for silent in (context, dq):
            assert not silent.transpose(0, 2, 1, 3)[blind].any()
        for silent in (dk, dv):
            assert not silent.transpose(0, 2, 1, 3)[unseen].any()


def test_weights_sum_to_one_over_the_keys_that_may_be_seen():
    q, k, _, _ = drawn((2, 5), 2)
    weights = attention_weights(q, k, AttentionPattern(keys=np.array([[1, 1, 0, 0, 0], [0] * 5])))
    np.testing.assert_allclose(weights[0].sum(-1), 1)
    assert not weights[0, :, :, 2:].any() and not weights[1].any()


def test_huge_scores_neither_overflow_nor_lose_the_winner():
    q, k, v, dy = drawn((1, 9), 3, scale=300.0, dtype=np.float32)
    with np.errstate(**STRICT):
        dense, tiled = both_ways(q, k, v, dy, AttentionPattern())
    np.testing.assert_allclose(dense[0], tiled[0], atol=1e-5)
    assert all(np.isfinite(x).all() for x in (*dense, *tiled))


# ---- MLX -----------------------------------------------------------------------------------------------------------

MLX_PATTERNS = {
    "padded": {"keys": np.arange(270)[None] < 200},
    "local": {"window": 20},
    "local, padded, packed": {
        "window": 64,
        "keys": np.arange(270)[None] < 260,
        "segments": 1 + (np.arange(270)[None] >= 100) + (np.arange(270)[None] >= 131),
    },
    "local, causal": {"window": 20, "causal": True},
    "all padding": {"keys": np.zeros((1, 270), int), "window": 9},
}


@pytest.mark.parametrize("who", MLX_PATTERNS.values(), ids=MLX_PATTERNS)
@pytest.mark.parametrize("size", [4, 8], ids=["plain", "fused"])
def test_mlx_gives_the_same_numbers(who, size):
    mx = pytest.importorskip("mlx.core")
    from glassbert.engines import get_engine

    engine = get_engine("mlx")
    q, k, v, dy = drawn((1, 270), 4, heads=1, size=size)
    expected = both_ways(q, k, v, dy, AttentionPattern(**who))[0]
    on_device = {name: engine.integers(x) if isinstance(x, np.ndarray) else x for name, x in who.items()}
    pattern = AttentionPattern(**on_device)
    q, k, v, dy = (mx.array(x.astype(np.float32)) for x in (q, k, v, dy))
    context, state = ops.tiled_attention(q, k, v, pattern)
    found = (context, *ops.tiled_attention_backward(dy, q, k, v, context, state, pattern))
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.array(one), two, atol=2e-5)
