"""Every NumPy kernel gives what the plain operation gives: at sizes that it splits, over threads, for NaN and inf."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassbert import get_engine
from glassbert.engines import numpy_kernels
from glassbert.engines.kernels import HINTS, backward, hints_of
from glassbert.engines.threads import using_threads
from glassbert.ops.attention import AttentionPattern
from glassbert.ops.registry import OPERATIONS, SUFFIX, operation_names
from glassbert.proof.cases import all_cases
from glassbert.proof.proof import mlx_in_words
from glassbert.proof.quantized_cases import random_codes
from glassbert.proof.referee import results_on

DTYPES = {"float32": 5e-5, "float64": 1e-12}


class Run(NamedTuple):
    """An operation, its arrays in a large and a small size, and how it is called with them."""

    operation: str
    large: dict[str, tuple[int, ...]]
    small: dict[str, tuple[int, ...]]
    call: Callable[..., Any]  # (the operation, arrays, hints) -> y, state


def linear(rows=400, outputs=150, bias=True):
    def sizes(rows, inputs, outputs):
        shapes = {"x": (4, rows // 4, inputs), "weight": (outputs, inputs)}
        return {**shapes, "bias": (outputs,)} if bias else shapes

    def call(run, a, **hints):
        return run(a["x"], a["weight"], a.get("bias"), **hints)

    return Run("linear", sizes(rows, 120, outputs), sizes(20, 9, 7), call)


def layer_norm(beta=True):
    def sizes(rows, width):
        shapes = {"x": (5, rows, width), "gamma": (width,)}
        return {**shapes, "beta": (width,)} if beta else shapes

    def call(run, a, **hints):
        return run(a["x"], a["gamma"], a.get("beta"), 1e-5, **hints)

    return Run("layer_norm", sizes(61, 333), sizes(2, 37), call)


def elementwise(name):
    return Run(name, {"x": (3, 101, 334)}, {"x": (3, 5, 38)}, lambda run, a, **hints: run(a["x"], **hints))


def relu_of_a_view():
    return Run("relu", {"x": (40, 30)}, {"x": (9, 7)}, lambda run, a, **hints: run(a["x"].T, **hints))


def quantized_linear(bits, groups=1, symmetric=True, rounding=None):
    def call(run, a, **hints):
        width, outputs = a["x"].shape[-1], a["bias"].shape[0]
        weight = random_codes(np.random.default_rng(3), outputs, width, bits, groups, symmetric, a["x"].dtype)
        return run(a["x"], replace(weight, rounding=rounding), a["bias"], **hints)

    return Run("quantized_linear", {"x": (4, 90, 256), "bias": (140,)}, {"x": (2, 3, 8), "bias": (5,)}, call)


def dropout():
    def call(run, a, **hints):
        return run(a["x"], np.random.default_rng(1).random(a["x"].shape) >= 0.3, 0.3, **hints)

    return Run("dropout", {"x": (3, 101, 333)}, {"x": (3, 5, 37)}, call)


LENGTHS = np.array([1.0, 0.6, 0.02, 0.0, 0.98])  # of five rows, as a share of the longest


def padding(rows, length):
    return np.arange(length) < np.ceil(LENGTHS * length)[-rows:, None]


def attention(name="attention", rate=0.0, spread=1.0, shift=0.0, keys=None, bias=None, padded=False, **who):
    def sizes(batch, heads, length, size):
        of_keys = (batch, heads, length if keys is None else length + keys, size)
        shapes = {"q": (batch, heads, length, size), "k": of_keys, "v": of_keys}
        return shapes if bias is None else {**shapes, "bias": (1, bias, length, of_keys[2])}

    def call(run, a, **hints):
        q, k = (a[key] * a[key].dtype.type(spread) + a[key].dtype.type(shift) for key in "qk")
        shape = (*q.shape[:3], k.shape[2])
        mask = np.random.default_rng(1).random(shape) >= rate if rate else None
        pattern = AttentionPattern(keys=padding(len(k), k.shape[2]) if padded else None, offset=keys or 0, **who)
        return run(q, k, a["v"], pattern, a.get("bias"), None, mask, rate, **hints)

    return Run(name, sizes(5, 3, 70, 16), sizes(3, 3, 17, 8), call)


def relative_scores():
    def sizes(batch, heads, length, size):
        content, vectors = (batch, heads, length, size), (length, heads, size)
        return {"q": content, "k": content, "keys": vectors, "queries": vectors}

    def call(run, a, **hints):
        length = a["q"].shape[2]
        index = np.clip(np.arange(2 * length - 1) - length // 2, 0, length - 1)  # far distances share a row
        return run(a["q"], a["k"], a["keys"], a["queries"], index, 0.3, **hints)

    return Run("relative_scores", sizes(5, 3, 70, 16), sizes(3, 3, 17, 8), call)


def relative_shift():
    def sizes(batch, length):
        return {"x": (batch, 3, length, 2 * length)}

    def call(run, a, **hints):
        length = a["x"].shape[2]
        start = length - np.arange(length)[None]
        return run(a["x"], start, length, **hints)

    return Run("relative_shift", sizes(5, 70), sizes(3, 9), call)


def join_heads():
    def call(run, a, **hints):
        return run(a["q"], a["k"], a["v"], **hints)

    return Run("join_heads", dict.fromkeys("qkv", (5, 70, 3, 16)), dict.fromkeys("qkv", (2, 3, 3, 8)), call)


def cross_entropy():
    def call(run, a, **hints):
        rows, classes = a["logits"].shape
        targets = np.random.default_rng(1).integers(0, classes, rows)
        targets[::7] = -100
        return run(a["logits"], targets, **hints)

    return Run("cross_entropy", {"logits": (301, 1003)}, {"logits": (9, 19)}, call)


RUNS = {
    "linear": linear(),
    "linear, more outputs than rows": linear(rows=40, outputs=1500),
    "linear, no bias": linear(bias=False),
    "layer_norm": layer_norm(),
    "layer_norm, no beta": layer_norm(beta=False),
    "relu": elementwise("relu"),
    "relu of a view": relu_of_a_view(),
    "gelu": elementwise("gelu"),
    "gelu_tanh": elementwise("gelu_tanh"),
    "geglu": elementwise("geglu"),
    "attention": attention(),
    "attention, padded": attention(padded=True),
    "attention, dropout, causal": attention(rate=0.3, causal=True),
    "attention, large scores": attention(shift=5.0, window=9),
    "attention, large scores, padded": attention(shift=5.0, padded=True),
    "attention, vanishing weights": attention(spread=5.0, window=9),
    "attention, vanishing weights, padded": attention(spread=5.0, padded=True),
    "attention, more keys than queries, causal": attention(keys=5, causal=True),
    "attention, bias": attention(bias=1),
    "tiled_attention": attention("tiled_attention"),
    "tiled_attention, padded, local": attention("tiled_attention", padded=True, window=9),
    "tiled_attention, bias by head": attention("tiled_attention", bias=3),
    "tiled_attention, one bias": attention("tiled_attention", bias=1),
    "attention, bias by head": attention(bias=3, rate=0.3),
    "relative_scores": relative_scores(),
    "relative_shift": relative_shift(),
    "join_heads": join_heads(),
    "dropout": dropout(),
    "quantized_linear, 8 bits": quantized_linear(8),
    "quantized_linear, 4 bits in groups": quantized_linear(4, 4, False),
    "quantized_linear, rounded activations": quantized_linear(8, rounding=(-20.0, 20.0)),
    "cross_entropy": cross_entropy(),
}


def test_every_kernel_is_run_here():
    forwards = {name for name in numpy_kernels.KERNELS if not name.endswith(SUFFIX)}
    assert {run.operation for run in RUNS.values()} == forwards


def arrays(shapes, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def results(run, engine, inputs, dy=None, **hints):
    """The output and the gradients as a list; `dy` is drawn where it is not given."""
    y, state = run.call(getattr(engine.ops, run.operation), inputs, **hints)
    if dy is None:
        dy = np.asarray(np.random.default_rng(2).standard_normal(np.shape(y)), engine.dtype)
    gradients = backward(dy, state)
    return [y, *(gradients if isinstance(gradients, tuple) else [gradients])]


@pytest.fixture(params=["with Numba", "without Numba"])
def numba(request, monkeypatch):
    """The kernels with compiled loops and without."""
    if request.param == "without Numba":
        monkeypatch.setattr(numpy_kernels, "compiled_loops", lambda: None)
    else:
        pytest.importorskip("numba")
        assert numpy_kernels.compiled_loops() is not None


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RUNS)
def test_kernels_give_what_the_plain_operations_give(name, dtype, threads, numba):
    run = RUNS[name]
    fast, plain = (get_engine("numpy", dtype, threads, kernels) for kernels in ("fast", "plain"))
    inputs = arrays(run.large, dtype)
    expected = results(run, plain, inputs)
    with using_threads(threads):
        found = results(run, fast, inputs)
    for one, two in zip(found, expected, strict=True):
        if two is None:
            assert one is None
            continue
        assert one.shape == two.shape
        assert one.dtype == two.dtype == dtype
        scale = float(np.abs(two).max()) or 1.0
        np.testing.assert_allclose(one, two, rtol=0, atol=DTYPES[dtype] * scale)
    for key, values in arrays(run.large, dtype).items():
        np.testing.assert_array_equal(inputs[key], values, err_msg=f"{key} was changed")


ENGINES = ["numpy", pytest.param("mlx", marks=pytest.mark.skipif(mlx_in_words() is None, reason="MLX is not here"))]


@pytest.mark.parametrize("name", ENGINES)
def test_all_kernels_give_the_plain_gradients_in_float32_for_every_case_of_an_operation(name):
    fast = get_engine(name, "float32", 1)
    plain = fast.with_kernels("plain")
    covered = set()
    for case in all_cases().values():
        fixture = case.build()
        if case.kind != "op" or (name == "mlx" and not fixture.on_mlx):
            continue
        covered.add(case.subject)
        with fixture.around():
            found, expected = results_on(fast, fixture), results_on(plain, fixture)
        for key, values in expected.items():
            assert found[key].dtype == values.dtype
            scale = max(float(np.abs(values).max(initial=0.0)), 1.0)
            np.testing.assert_allclose(found[key], values, rtol=0, atol=2e-5 * scale, err_msg=f"{case.name}: {key}")
    with_kernel = {op for op in operation_names() if fast.ops.forward_and_backward(op)[0] is not OPERATIONS[op]}
    assert with_kernel and with_kernel <= covered


def test_gelu_tanh_rounds_no_more_than_the_plain_one(numba):
    """tanh as 1 - 2 / (1 + exp(2u)) loses the digits of 1 + tanh(u) below zero, and rounds twice as much."""
    x = np.linspace(-6, 6, 10_001, dtype=np.float32)
    exact = OPERATIONS["gelu_tanh"](x.astype(np.float64))[0]
    fast, plain = (get_engine("numpy", kernels=kernels).ops.gelu_tanh(x)[0] - exact for kernels in ("fast", "plain"))
    below = x < 0
    assert np.linalg.norm(fast[below]) < 1.1 * np.linalg.norm(plain[below])


# ---- hints ---------------------------------------------------------------------------------------------------------


def kinds_of_hints(name):
    """Every hint of a forward kernel alone, and all of them together."""
    taken = sorted(hints_of(numpy_kernels.KERNELS[RUNS[name].operation]))
    return [{hint: True} for hint in taken] + ([dict.fromkeys(taken, True)] if len(taken) > 1 else [])


HINTED = [(name, hints) for name in RUNS for hints in kinds_of_hints(name)]


def test_the_kernels_that_save_memory_take_hints():
    taking = {RUNS[name].operation for name, _ in HINTED}
    assert taking == {"layer_norm", "relu", "gelu", "attention", "tiled_attention", "cross_entropy"}
    assert set(HINTS) == {"donate", "inference", "out", "residual"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "hints"), HINTED, ids=[f"{name}, {' and '.join(hints)}" for name, hints in HINTED])
def test_hints_change_memory_and_no_results(name, hints, dtype, numba):
    run = RUNS[name]
    fast, plain = (get_engine("numpy", dtype, kernels=kernels) for kernels in ("fast", "plain"))
    expected = results(run, fast, arrays(run.large, dtype))
    given = arrays(run.large, dtype)
    if hints.get("inference"):
        found = [run.call(getattr(fast.ops, run.operation), given, **hints)[0]]
    else:
        found = results(run, fast, given, **hints)
    for one, two in zip(found, expected, strict=False):
        if two is not None:
            scale = max(float(np.abs(two).max()), 1.0)
            np.testing.assert_allclose(one, two, rtol=0, atol=(3e-6 if dtype == "float32" else 1e-13) * scale)
    first, *others = arrays(run.large, dtype)
    for key in others if hints.get("donate") else [first, *others]:  # only the first array may be overwritten
        np.testing.assert_array_equal(given[key], arrays(run.large, dtype)[key])
    untouched = arrays(run.large, dtype)
    for one, two in zip(results(run, plain, untouched, **hints), results(run, plain, untouched), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(untouched[first], arrays(run.large, dtype)[first])


def test_donated_memory_is_used(numba):
    engine = get_engine("numpy")
    x = arrays({"x": (3, 50, 64)})["x"]
    for operation, more, hints in (
        ("relu", (), {"donate": True}),
        ("gelu", (), {"donate": True, "inference": True}),
        ("layer_norm", (np.ones(64, np.float32), None, 1e-5), {"donate": True}),
    ):
        given = x.copy()
        y, state = getattr(engine.ops, operation)(given, *more, **hints)
        used = y if operation != "layer_norm" else state.values[0]
        assert np.shares_memory(used, given), operation


def test_memory_that_cannot_be_written_is_not_donated(numba):
    engine = get_engine("numpy")
    x = arrays({"x": (3, 50, 64)})["x"]
    x.flags.writeable = False
    for operation, more in (("relu", ()), ("gelu", ()), ("layer_norm", (np.ones(64, np.float32), None, 1e-5))):
        expected, _ = getattr(engine.ops, operation)(x, *more)
        for hints in ({"donate": True}, {"donate": True, "inference": True}):
            found, _ = getattr(engine.ops, operation)(x, *more, **hints)
            np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6, err_msg=operation)


def test_a_donated_gradient_gives_the_same_gradient(numba):
    engine = get_engine("numpy")
    x, dy = arrays({"x": (3, 50, 64), "dy": (3, 50, 64)}).values()
    _, state = engine.ops.relu(x)
    expected = backward(dy, state)
    given = dy.copy()
    found = backward(given, state, donate=True)
    np.testing.assert_array_equal(found, expected)
    assert np.shares_memory(found, given)


# ---- NaN and infinities --------------------------------------------------------------------------------------------

SPECIAL = st.sampled_from([np.nan, -np.nan, np.inf, -np.inf])
# The compiled exp gives 0 below 2^-126, NumPy's a denormal number. Times infinity they are NaN and infinity.
NOT_VANISHING = [name for name in RUNS if "vanishing" not in name]


@pytest.mark.parametrize("name", NOT_VANISHING)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nan_and_infinities_come_out_as_from_the_plain_operation(name, numba, data):
    run = RUNS[name]
    fast, plain = (get_engine("numpy", kernels=kernels) for kernels in ("fast", "plain"))
    inputs = arrays(run.small, seed=data.draw(st.integers(0, 5)))
    y, _ = run.call(getattr(plain.ops, run.operation), inputs)
    dy = np.array(np.random.default_rng(2).standard_normal(np.shape(y)), np.float32)
    places = {**inputs, "dy": dy}
    for _ in range(data.draw(st.integers(1, 4))):
        array = places[data.draw(st.sampled_from(sorted(places)))]
        array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = data.draw(SPECIAL)
    with np.errstate(all="ignore"):
        expected, found = results(run, plain, inputs, dy), results(run, fast, inputs, dy)
    for i, (one, two) in enumerate(zip(found, expected, strict=True)):
        if two is None:
            assert one is None
            continue
        what = "output" if i == 0 else f"gradient {i}"
        for kind in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(kind(one), kind(two), err_msg=f"{kind.__name__} of {what}")
        finite = np.isfinite(two)
        scale = float(np.abs(two[finite]).max(initial=1.0))
        np.testing.assert_allclose(one[finite], two[finite], rtol=0, atol=5e-5 * scale, err_msg=what)


@pytest.mark.parametrize("name", [name for name in NOT_VANISHING if kinds_of_hints(name)])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), value=SPECIAL)
def test_nan_and_infinities_come_out_of_donated_memory(name, numba, place, value):
    run = RUNS[name]
    fast, plain = (get_engine("numpy", kernels=kernels) for kernels in ("fast", "plain"))
    inputs = arrays(run.small)
    first = next(iter(inputs))
    inputs[first].reshape(-1)[int(place * inputs[first].size)] = value
    with np.errstate(all="ignore"):
        expected, _ = run.call(getattr(plain.ops, run.operation), inputs)
        for hints in kinds_of_hints(name):
            given = {key: values.copy() for key, values in inputs.items()}
            found, _ = run.call(getattr(fast.ops, run.operation), given, **hints)
            for kind in (np.isnan, np.isposinf, np.isneginf):
                np.testing.assert_array_equal(kind(found), kind(expected), err_msg=f"{kind.__name__}, {hints}")


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_attention_does_not_hide_a_score_that_is_no_number(score, numba):
    q = k = v = np.ones((2, 1, 40, 8), np.float32)
    q = q.copy()
    q[1, 0, 5, 3] = score
    with np.errstate(invalid="ignore"):
        context, _ = get_engine("numpy").ops.attention(q, k, v, AttentionPattern())
    assert np.isnan(context[1, 0, 5]).all()
    context[1, 0, 5] = 1.0
    np.testing.assert_allclose(context, v, atol=1e-6)


def test_a_key_behind_a_mask_has_no_influence(numba):
    engine = get_engine("numpy")
    q, k, v = (value for value in arrays(dict.fromkeys("qkv", (1, 2, 40, 8))).values())
    pattern = AttentionPattern(keys=np.arange(40)[None] < 30)
    expected, _ = engine.ops.attention(q, k, v, pattern)
    k[:, :, 30:] = 1e6
    found, _ = engine.ops.attention(q, k, v, pattern)
    np.testing.assert_allclose(found[:, :, :30], expected[:, :, :30], rtol=0, atol=1e-5)


def test_numba_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("GLASSBERT_COMPILED", "0")
    assert numpy_kernels.compiled_loops.__wrapped__() is None
