"""Attention in every form: the same numbers whole, in tiles and one by one; zeros for a query without any key."""

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassbert import get_engine
from glassbert.engines.kernels import backward
from glassbert.ops.attention import AttentionPattern, attention_weights
from tests.ops.attention_reference import attention_one_by_one, is_allowed, of_row

tiles = sys.modules["glassbert.ops.tiled_attention"]
STRICT = {"over": "raise", "invalid": "raise", "divide": "raise"}
FAST, PLAIN = (get_engine("numpy", "float64", kernels=kernels) for kernels in ("fast", "plain"))


@st.composite
def situations(draw):
    """A pattern over one to three rows of up to forty keys, a bias, a scale, and the sizes of tiles."""
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    shape = (batch, length)
    keys = segments = mask = None
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
    offset = draw(st.just(0) | st.integers(0, length - 1))  # so many keys come from a memory
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    queries = length - offset
    if draw(st.booleans()):
        mask = rng.random((batch, queries, length)) < draw(st.floats(0, 1))
    who = {"keys": keys, "segments": segments, "window": window, "causal": draw(st.booleans())}
    bias = None
    if draw(st.booleans()):
        bias = rng.standard_normal((draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, 2])), queries, length))
    extra = {"bias": bias, "scale": draw(st.none() | st.floats(0.1, 2))}
    tile = (draw(st.integers(1, 17)), draw(st.integers(1, 17)))
    return {**who, "mask": mask, "offset": offset}, extra, (batch, queries, length), tile, seed


def drawn(shape, seed, heads=2, size=4, scale=1.0, dtype=np.float64):
    """q, k, v and a gradient, for (batch, length) or (batch, queries, keys)."""
    rng = np.random.default_rng(seed)
    batch, queries, keys = shape if len(shape) == 3 else (*shape, shape[1])
    lengths = (queries, keys, keys, queries)
    q, k, v, dy = (rng.standard_normal((batch, heads, length, size)).astype(dtype) for length in lengths)
    return q * dtype(scale), k * dtype(scale), v, dy


def with_tiles(monkeypatch, tile):
    monkeypatch.setattr(tiles, "QUERY_TILE", tile[0])
    monkeypatch.setattr(tiles, "KEY_TILE", tile[1])


def both_ways(q, k, v, dy, pattern, engine=FAST, bias=None, scale=None):
    """(context, dq, dk, dv, dbias) with all weights kept, and in tiles."""
    results = []
    for attention in (engine.ops.attention, engine.ops.tiled_attention):
        context, state = attention(q, k, v, pattern, bias, scale)
        results.append((context, *backward(dy, state)))
    return results


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(situations())
def test_tiles_give_what_whole_rows_give_for_any_pattern(monkeypatch, situation):
    who, extra, shape, tile, seed = situation
    with_tiles(monkeypatch, tile)
    q, k, v, dy = drawn(shape, seed)
    with np.errstate(**STRICT):
        dense, tiled = both_ways(q, k, v, dy, AttentionPattern(**who), FAST, **extra)
        plain_dense, plain_tiled = both_ways(q, k, v, dy, AttentionPattern(**who), PLAIN, **extra)
    for other in (tiled, plain_dense, plain_tiled):
        for one, two in zip(dense, other, strict=True):
            if one is None:
                assert two is None and extra["bias"] is None
            else:
                assert two.shape == one.shape
                np.testing.assert_allclose(two, one, rtol=0, atol=1e-12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(situations())
def test_both_give_what_the_definition_says(monkeypatch, situation):
    who, extra, shape, tile, seed = situation
    with_tiles(monkeypatch, tile)
    q, k, v, dy = drawn(shape, seed)
    dense, tiled = both_ways(q, k, v, dy, AttentionPattern(**who), **extra)
    expected = attention_one_by_one(q, k, v, **extra, **who)
    np.testing.assert_allclose(dense[0], expected, atol=1e-12)
    np.testing.assert_allclose(tiled[0], expected, atol=1e-12)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(situations())
def test_the_plan_covers_every_allowed_pair_once(monkeypatch, situation):
    who, _, (batch, queries, length), tile, _ = situation
    with_tiles(monkeypatch, tile)
    visits = np.zeros((batch, queries, length), int)
    for rows, of_queries, runs in tiles.tile_plan(AttentionPattern(**who), batch, queries, length, True):
        for of_keys in runs:
            visits[rows, of_queries, of_keys] += 1
    assert visits.max(initial=0) <= 1
    for row in range(batch):
        for query in range(queries):
            for key in range(length):
                if is_allowed(query, key, **of_row(who, row)):
                    assert visits[row, query, key] == 1


@pytest.mark.parametrize("keys", [3, 12], ids=["fewer keys", "more keys"])
@pytest.mark.parametrize("padded", [False, True])
def test_keys_of_another_sequence(keys, padded):
    """Cross-attention: the number of keys is independent of the number of queries."""
    q, k, v, dy = drawn((2, 7, keys), 8)
    who = {"keys": np.arange(keys) < np.array([[2], [keys]])} if padded else {}
    expected = attention_one_by_one(q, k, v, **who)
    for engine in (FAST, PLAIN):
        dense, tiled = both_ways(q, k, v, dy, AttentionPattern(**who), engine)
        np.testing.assert_allclose(dense[0], expected, atol=1e-12)
        for one, two in zip(dense[:4], tiled[:4], strict=True):
            np.testing.assert_allclose(one, two, atol=1e-12)


def test_later_queries_give_what_they_give_in_the_whole_sequence():
    """Causal attention of the last queries, with an offset, is a part of causal attention of all."""
    q, k, v, _ = drawn((2, 9), 9)
    for attention in (FAST.ops.attention, FAST.ops.tiled_attention, PLAIN.ops.attention, PLAIN.ops.tiled_attention):
        whole, _ = attention(q, k, v, AttentionPattern(causal=True))
        late, _ = attention(q[:, :, 6:], k, v, AttentionPattern(causal=True, offset=6))
        np.testing.assert_allclose(late, whole[:, :, 6:], atol=1e-14)


@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize("keys", [None, "padded"])
def test_local_attention_never_touches_keys_outside_its_window(window, keys):
    length = 2000
    mask = None if keys is None else np.arange(length)[None] < 1700
    pattern = AttentionPattern(keys=mask, window=window)
    plan = list(tiles.tile_plan(pattern, 1, length, length, True))
    for _, queries, (seen,) in plan:
        assert seen.start >= queries.start - window and seen.stop <= queries.stop + window
    pairs = sum((q.stop - q.start) * (k.stop - k.start) for _, q, (k,) in plan)
    assert pairs <= length * (tiles.QUERY_TILE + 2 * window)


def test_keys_outside_the_window_may_hold_anything():
    q, k, v, dy = drawn((1, 600), 0)
    pattern = AttentionPattern(window=4)
    clean, state = FAST.ops.tiled_attention(q, k, v, pattern)
    k[:, :, 300:], v[:, :, 300:] = np.nan, np.nan
    dirty, state = FAST.ops.tiled_attention(q, k, v, pattern)
    np.testing.assert_array_equal(dirty[:, :, :128], clean[:, :, :128])  # the first tile of queries never meets them
    dq = backward(dy, state)[0]
    assert np.isfinite(dq[:, :, :128]).all()


def test_causal_attention_costs_half_and_documents_cost_the_sum_of_their_squares():
    length = 2048
    everything = [(q.stop - q.start) * (k.stop - k.start) for _, q, (k,) in plan_of(AttentionPattern(), length)]
    causal = [(q.stop - q.start) * (k.stop - k.start) for _, q, (k,) in plan_of(AttentionPattern(causal=True), length)]
    packed = AttentionPattern(segments=1 + np.arange(length)[None] // 256)
    documents = [(q.stop - q.start) * (k.stop - k.start) for _, q, (k,) in plan_of(packed, length)]
    assert sum(everything) == length**2
    assert sum(causal) < 0.54 * length**2
    assert sum(documents) == 8 * 256**2


@pytest.mark.parametrize("always", [1, 3, 40])
@pytest.mark.parametrize("window", [1, 8])
@pytest.mark.parametrize("padded", [False, True])
def test_keys_that_are_always_in_the_window(padded, window, always):
    """Every query meets its window and the first keys, each once, and no other key; the values are those of all."""
    length = 300
    keys = None if not padded else (np.arange(always + length)[None] % 11 > 0)
    pattern = AttentionPattern(keys=keys, window=window, offset=always, always=always)
    visits = np.zeros((length, always + length), int)
    for _, queries, runs in tiles.tile_plan(pattern, 1, length, always + length, True):
        for run in runs:
            visits[queries, run] += 1
    place = np.arange(length)[:, None] + always
    near = np.abs(place - np.arange(always + length)) <= window
    wanted = near | (np.arange(always + length) < always)
    assert visits.max() == 1 and (visits[wanted if keys is None else wanted & keys] == 1).all()
    assert visits.sum() <= length * (tiles.QUERY_TILE + 2 * window + always)
    rng = np.random.default_rng(0)
    q, dy = (rng.standard_normal((1, 2, length, 4)) for _ in range(2))
    k, v = (rng.standard_normal((1, 2, always + length, 4)) for _ in range(2))
    dense, dense_state = FAST.ops.attention(q, k, v, pattern)
    tiled, tiled_state = FAST.ops.tiled_attention(q, k, v, pattern)
    np.testing.assert_allclose(tiled, dense, atol=1e-12)
    for one, other in zip(backward(dy, tiled_state)[:3], backward(dy, dense_state)[:3], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def plan_of(pattern, length):
    return tiles.tile_plan(pattern, 1, length, length, True)


WITHOUT_KEYS = {
    "all padding": {"keys": np.zeros((2, 6), bool)},
    "one row all padding": {"keys": np.array([[1] * 6, [0] * 6])},
    "no document": {"segments": np.zeros((2, 6), int)},
    "window between holes": {"keys": np.array([[1, 0, 0, 0, 0, 1]] * 2), "window": 1},
    "causal before the first key": {"keys": np.array([[0, 0, 0, 1, 1, 1]] * 2), "causal": True},
    "mask by pair": {"mask": np.arange(6)[:, None] % 2 * np.ones((2, 6, 6))},
}


@pytest.mark.parametrize("who", WITHOUT_KEYS.values(), ids=WITHOUT_KEYS)
@pytest.mark.parametrize("kernels", ["fast", "plain"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_a_query_without_any_key_gets_zeros_and_gives_zero_gradients(monkeypatch, who, kernels, dtype, scale):
    with_tiles(monkeypatch, (2, 2))
    q, k, v, dy = drawn((2, 6), 1, scale=scale, dtype=dtype)
    pattern = AttentionPattern(**who)
    blind = ~pattern.allowed(np, slice(0, 2), slice(0, 6), slice(0, 6)).any(-1)
    blind = np.broadcast_to(blind, (2, 1, 6))[:, 0]
    unseen = ~np.broadcast_to(pattern.allowed(np, slice(0, 2), slice(0, 6), slice(0, 6)), (2, 1, 6, 6)).any(-2)[:, 0]
    assert blind.any()
    with np.errstate(**STRICT):
        results = both_ways(q, k, v, dy, pattern, get_engine("numpy", np.dtype(dtype).name, kernels=kernels))
    for context, dq, dk, dv, _ in results:
        assert all(np.isfinite(x).all() and x.dtype == dtype for x in (context, dq, dk, dv))
        for silent in (context, dq):
            assert not silent.transpose(0, 2, 1, 3)[blind].any()
        for silent in (dk, dv):
            assert not silent.transpose(0, 2, 1, 3)[unseen].any()


def test_weights_sum_to_one_over_the_allowed_keys():
    q, k, _, _ = drawn((2, 5), 2)
    weights = attention_weights(q, k, AttentionPattern(keys=np.array([[1, 1, 0, 0, 0], [0] * 5])))
    np.testing.assert_allclose(weights[0].sum(-1), 1)
    assert not weights[0, :, :, 2:].any() and not weights[1].any()


def test_huge_scores_neither_overflow_nor_lose_the_winner():
    q, k, v, dy = drawn((1, 9), 3, scale=300.0, dtype=np.float32)
    with np.errstate(**STRICT):
        dense, tiled = both_ways(q, k, v, dy, AttentionPattern())
    np.testing.assert_allclose(dense[0], tiled[0], atol=1e-5)
    assert all(np.isfinite(x).all() for x in (*dense[:4], *tiled[:4]))


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
    engine = get_engine("mlx")
    q, k, v, dy = drawn((1, 270), 4, heads=1, size=size)
    expected = both_ways(q, k, v, dy, AttentionPattern(**who))[0][:4]
    on_device = {name: engine.integers(x) if isinstance(x, np.ndarray) else x for name, x in who.items()}
    pattern = AttentionPattern(**on_device)
    q, k, v, dy = (mx.array(x.astype(np.float32)) for x in (q, k, v, dy))
    context, state = engine.ops.tiled_attention(q, k, v, pattern)
    found = (context, *backward(dy, state)[:3])
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.array(one), two, atol=2e-5)


COMPILED = {
    "short rows": (16, "bfloat16", {"keys": np.arange(16)[None] < np.arange(9, 17)[:, None]}),
    "packed": (32, "float32", {"segments": 1 + (np.arange(32)[None] >= np.arange(9, 17)[:, None])}),
    "local": (270, "float32", {"window": 20, "keys": np.arange(270)[None] < np.arange(200, 208)[:, None]}),
}


@pytest.mark.parametrize(("length", "dtype", "who"), COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize("heads", [1, 2])
def test_forward_and_backward_of_fused_attention_compile_together(mask_with_several_results, heads, length, dtype, who):
    """With one head, no broadcast stands between the mask and the operation with several results."""
    import mlx.core as mx

    engine = get_engine("mlx")
    given = [mx.array(x.astype(np.float32)).astype(getattr(mx, dtype)) for x in drawn((8, length), 4, heads, size=8)]
    on_device = {name: engine.integers(x) if isinstance(x, np.ndarray) else x for name, x in who.items()}

    def both(q, k, v, dy, who):
        context, state = engine.ops.tiled_attention(q, k, v, AttentionPattern(**who))
        return context, *backward(dy, state)[:3]

    for one, two in zip(mx.compile(both)(*given, on_device), both(*given, on_device), strict=True):
        limit = 0.05 if dtype == "bfloat16" else 2e-5
        np.testing.assert_allclose(engine.to_numpy(one), engine.to_numpy(two), atol=limit)
