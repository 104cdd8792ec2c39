"""Every kernel gives what the plain operation gives, at sizes where it cuts its work into pieces and over threads."""

import contextlib

import numpy as np
import pytest

from glassbert import ops
from glassbert.engines import numpy_kernels
from glassbert.engines.threads import using_threads
from glassbert.ops.attention import AttentionPattern
from glassbert.ops.registry import KERNELS, OPERATIONS, plain_operations
from glassbert.proof.cases import all_cases
from glassbert.proof.proof import mlx_in_words
from glassbert.proof.referee import gradients_on

DTYPES = {"float32": 5e-5, "float64": 1e-12}


def arrays(dtype, **shapes):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def linear(dtype, rows=400, inputs=120, outputs=150, bias=True):
    a = arrays(dtype, x=(4, rows // 4, inputs), weight=(outputs, inputs), bias=outputs, dy=(4, rows // 4, outputs))
    y = ops.linear(a["x"], a["weight"], a["bias"] if bias else None)
    return a, [y, *ops.linear_backward(a["dy"], a["x"], a["weight"], bias)]


def layer_norm(dtype, beta=True):
    a = arrays(dtype, x=(5, 61, 333), gamma=333, beta=333, dy=(5, 61, 333))
    y, cache = ops.layer_norm(a["x"], a["gamma"], a["beta"] if beta else None, 1e-5)
    return a, [y, *ops.layer_norm_backward(a["dy"], a["gamma"], cache, beta)]


def activation(name, shape=(3, 101, 333)):
    def run(dtype):
        a = arrays(dtype, x=shape, dy=shape)
        y, cache = ops.ACTIVATIONS[name][0](a["x"])
        return a, [y, ops.ACTIVATIONS[name][1](a["dy"], a["x"], cache)]

    return run


def relu_of_a_view(dtype):
    a = arrays(dtype, x=(40, 30), dy=(30, 40))
    y, cache = ops.relu(a["x"].T)
    return a, [y, ops.relu_backward(a["dy"], a["x"].T, cache)]


def dropout(dtype):
    a = arrays(dtype, x=(3, 101, 333), dy=(3, 101, 333))
    keep = np.random.default_rng(1).random(a["x"].shape) >= 0.3
    return a, [ops.dropout(a["x"], keep, 0.3), ops.dropout_backward(a["dy"], keep, 0.3)]


def geglu(dtype):
    a = arrays(dtype, x=(3, 101, 666), dy=(3, 101, 333))
    y, cache = ops.geglu(a["x"], "gelu")
    return a, [y, ops.geglu_backward(a["dy"], a["x"], cache, "gelu")]


def attention(rate=0.0, scale=1.0, **who):
    def run(dtype):
        shape = (5, 3, 70, 16)
        a = arrays(dtype, q=shape, k=shape, v=shape, dy=shape)
        q, k = a["q"] * dtype(scale), a["k"] * dtype(scale)
        keep = np.random.default_rng(1).random((5, 3, 70, 70)) >= rate if rate else None
        pattern = AttentionPattern(**who)
        context, state = ops.attention(q, k, a["v"], pattern, keep, rate)
        gradients = ops.attention_backward(a["dy"], q, k, a["v"], context, state, keep, rate)
        return a, [context, *gradients]

    return run


def cross_entropy(overwrite):
    def run(dtype):
        a = arrays(dtype, logits=(301, 1003))
        targets = np.random.default_rng(1).integers(0, 1003, 301)
        targets[::7] = -100
        loss, cache = ops.cross_entropy(a["logits"].copy() if overwrite else a["logits"], targets, overwrite)
        return a, [loss, ops.cross_entropy_backward(np.asarray(0.7, dtype), cache)]

    return run


RUNS = {
    "linear": linear,
    "linear, more outputs than rows": lambda dtype: linear(dtype, rows=40, outputs=1500),
    "linear, no bias": lambda dtype: linear(dtype, bias=False),
    "layer_norm": layer_norm,
    "layer_norm, no beta": lambda dtype: layer_norm(dtype, beta=False),
    "relu": activation("relu"),
    "relu of a view": relu_of_a_view,
    "gelu": activation("gelu"),
    "gelu_tanh": activation("gelu_tanh"),
    "geglu": geglu,
    "attention": attention(),
    "attention, padded": attention(keys=np.arange(70) < np.array([70, 40, 1, 0, 69])[:, None]),
    "attention, dropout, causal": attention(rate=0.3, causal=True),
    "attention, large scores": attention(scale=5.0, window=9),
    "attention, large scores, padded": attention(scale=5.0, keys=np.arange(70) < np.array([70, 40, 1, 0, 69])[:, None]),
    "dropout": dropout,
    "cross_entropy": cross_entropy(False),
    "cross_entropy, logits given up": cross_entropy(True),
}


@pytest.fixture(params=["with Numba", "without Numba"])
def numba(request, monkeypatch):
    """The kernels' row loops, compiled and not."""
    if request.param == "without Numba":
        monkeypatch.setattr(numpy_kernels, "compiled_loops", lambda: None)
    else:
        pytest.importorskip("numba")
        assert numpy_kernels.compiled_loops() is not None


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RUNS)
def test_kernels_give_what_the_plain_operations_give(name, dtype, threads, numba):
    kind = np.dtype(dtype).type
    with plain_operations():
        _, expected = RUNS[name](kind)
    before = RUNS[name](kind)[0]
    with using_threads(threads):
        inputs, found = RUNS[name](kind)
    for one, two in zip(found, expected, strict=True):
        if two is None:
            assert one is None
            continue
        assert one.shape == two.shape
        assert one.ndim == 0 or one.dtype == two.dtype == kind
        scale = float(np.abs(two).max()) or 1.0
        np.testing.assert_allclose(one, two, rtol=0, atol=DTYPES[dtype] * scale)
    for key, values in inputs.items():
        np.testing.assert_array_equal(values, before[key], err_msg=f"{key} was changed")


ENGINES = ["numpy", pytest.param("mlx", marks=pytest.mark.skipif(mlx_in_words() is None, reason="MLX is not here"))]


@pytest.mark.parametrize("engine", ENGINES)
def test_all_kernels_give_the_plain_gradients_in_float32_for_every_case_of_an_operation(engine):
    if engine == "mlx":
        import glassbert.engines.mlx_kernels  # noqa: F401
    assert KERNELS[engine]
    covered = set()
    for case in all_cases().values():
        fixture = case.build()
        if case.kind != "op" or (engine == "mlx" and not fixture.on_mlx):
            continue
        covered.add(case.subject)
        with fixture.around():
            found = gradients_on(engine, "float32", fixture)
            with plain_operations():
                expected = gradients_on(engine, "float32", fixture)
        for name, values in expected.items():
            assert found[name].dtype == values.dtype
            scale = max(float(np.abs(values).max(initial=0.0)), 1.0)
            np.testing.assert_allclose(found[name], values, rtol=0, atol=2e-5 * scale, err_msg=f"{case.name}: {name}")
    assert {name.removesuffix("_backward") for name in KERNELS[engine]} <= covered


def test_linear_backward_writes_into_the_places_it_is_given():
    x, weight, dy = np.ones((4, 3)), np.ones((2, 3)), np.ones((4, 2))
    for around in (contextlib.nullcontext, plain_operations):
        dweight, dbias = np.full((2, 3), np.nan), np.full(2, np.nan)
        with around():
            _, first, second = ops.linear_backward(dy, x, weight, True, (dweight, dbias))
        assert first is dweight and second is dbias
        np.testing.assert_array_equal(dweight, np.full((2, 3), 4.0))
        np.testing.assert_array_equal(dbias, [4.0, 4.0])


def test_plain_operations_switches_kernels_off_and_on_again():
    before = dict(KERNELS["numpy"])
    assert before
    with plain_operations():
        assert not KERNELS["numpy"]
    assert KERNELS["numpy"] == before
    assert set(before) <= set(OPERATIONS)


@pytest.mark.parametrize("beta", [True, False])
def test_what_is_given_up_changes_nothing_but_memory(beta, numba):
    x, gamma, shift = (value for value in arrays(np.float32, x=(3, 50, 64), gamma=64, shift=64).values())
    offset = shift if beta else None
    for operation, more in ((ops.gelu, ()), (ops.relu, ()), (ops.layer_norm, (gamma, offset, 1e-5))):
        expected, _ = operation(x, *more)
        options = {"forget": True} if operation is ops.layer_norm else {}
        given_up = x.copy()
        found, _ = operation(given_up, *more, overwrite=True, **options)
        np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6, err_msg=operation.__name__)


def test_infinite_and_missing_values_are_not_hidden(numba):
    x = np.array([[np.inf, -np.inf, np.nan, 0.0] * 16], np.float32)
    with np.errstate(invalid="ignore"):
        y, _ = ops.gelu(x.copy())
        in_place, _ = ops.gelu(x.copy(), overwrite=True)
    for found in (y, in_place):
        assert found[0, 0] == np.inf
        assert np.isnan(found[0, 2])
        assert found[0, 3] == 0.0


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_attention_does_not_hide_a_score_that_is_no_number(score, numba):
    q = k = v = np.ones((2, 1, 40, 8), np.float32)
    q = q.copy()
    q[1, 0, 5, 3] = score
    with np.errstate(invalid="ignore"):
        context, _ = ops.attention(q, k, v, AttentionPattern())
    assert np.isnan(context[1, 0, 5]).all()
    context[1, 0, 5] = 1.0
    np.testing.assert_allclose(context, v, atol=1e-6)


def test_what_a_key_behind_a_mask_holds_is_not_seen(numba):
    q, k, v = (value for value in arrays(np.float32, q=(1, 2, 40, 8), k=(1, 2, 40, 8), v=(1, 2, 40, 8)).values())
    pattern = AttentionPattern(keys=np.arange(40)[None] < 30)
    expected, _ = ops.attention(q, k, v, pattern)
    k[:, :, 30:] = 1e6
    found, _ = ops.attention(q, k, v, pattern)
    np.testing.assert_allclose(found[:, :, :30], expected[:, :, :30], rtol=0, atol=1e-5)


def test_numba_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("GLASSBERT_COMPILED", "0")
    assert numpy_kernels.compiled_loops.__wrapped__() is None
