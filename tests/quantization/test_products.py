"""Products with quantised weights: rounded activations, integers where oneDNN is, NaN, LoRA."""

from dataclasses import replace

import numpy as np
import pytest

from glassbert import get_engine, ops
from glassbert.engines import onednn, quantized_kernels
from glassbert.models.quantized import on_engine, on_host
from glassbert.ops.quantized import TOKEN, rounded
from glassbert.proof.proof import mlx_in_words
from glassbert.quantization.rounding import quantize_array

NUMPY = get_engine("numpy", threads=2)


def weight(bits=8, rows=40, width=64, rounding=None, **options):
    values = np.random.default_rng(1).standard_normal((rows, width))
    return replace(quantize_array(values, bits, **options), rounding=rounding)


def activations(*shape):
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    x[0] *= 40  # tokens of very different size
    return x


def test_rounding_by_token_moves_no_activation_by_more_than_half_a_step():
    x = activations(5, 64)
    step = (x.max(1, keepdims=True) - x.min(1, keepdims=True)) / 255
    assert (np.abs(rounded(x, TOKEN) - x) <= 0.5001 * step).all()


def test_a_fixed_range_clips():
    found = rounded(np.array([[-5.0, 0.0, 0.5, 9.0]], np.float32), (-1.0, 2.0))
    assert np.allclose(found, [[-1, 0, 0.5, 2]], atol=0.007) and found[0, 1] == 0


@pytest.mark.parametrize("rounding", [TOKEN, (-3.0, 3.0)])
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_integer_products_are_those_of_the_plain_operation(rows, rounding):
    """Without oneDNN the same numbers come from floats, so the test runs everywhere."""
    x, w = activations(rows, 64), weight(rounding=rounding)
    bias = np.linspace(-1, 1, 40, dtype=np.float32)
    plain, fast = ops.quantized_linear(x, w, bias)[0], NUMPY.ops.quantized_linear(x, w, bias)[0]
    assert np.abs(plain - fast).max() < 1e-4 * np.abs(plain).max()


def test_without_the_library_floats_give_the_same(monkeypatch):
    x, w = activations(20, 64), weight(rounding=TOKEN)
    first = NUMPY.ops.quantized_linear(x, w)[0]
    monkeypatch.setattr(onednn, "has_integer_products", lambda: False)
    second = NUMPY.ops.quantized_linear(x, w)[0]
    assert np.abs(first - second).max() < 1e-4 * np.abs(first).max()


@pytest.mark.parametrize(
    ("rounding", "bad"), [(None, np.nan), (None, np.inf), (TOKEN, np.nan), (TOKEN, np.inf), ((-3.0, 3.0), np.nan)]
)
def test_a_token_that_is_not_finite_spoils_its_own_row_alone(rounding, bad):
    x = activations(3, 64)
    x[1, 5] = bad
    y = NUMPY.ops.quantized_linear(x, weight(rounding=rounding))[0]
    assert not np.isfinite(y[1]).all() and np.isfinite(y[[0, 2]]).all()


@pytest.mark.parametrize(("bits", "group"), [(8, None), (8, 32), (4, 32), (4, None)])
def test_without_numba_the_numbers_are_the_same(bits, group, monkeypatch):
    x, w = activations(4, 64), weight(bits, group=group, symmetric=False)
    first = NUMPY.ops.quantized_linear(x, w)[0]
    monkeypatch.setattr(quantized_kernels, "compiled_quantized", lambda: None)
    assert np.allclose(NUMPY.ops.quantized_linear(x, w)[0], first, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(mlx_in_words() is None, reason="MLX is not installed")
@pytest.mark.parametrize("rounding", [None, TOKEN])
@pytest.mark.parametrize(
    ("bits", "group", "symmetric"), [(8, None, True), (4, 32, False), (8, 64, False), (4, 16, True)]
)
def test_mlx_multiplies_the_codes_and_agrees(bits, group, symmetric, rounding):
    engine = get_engine("mlx")
    x, host = activations(6, 64), weight(bits, group=group, symmetric=symmetric, rounding=rounding)
    there = on_engine(host, engine)
    y, _ = engine.ops.quantized_linear(engine.array(x), there)
    assert np.allclose(np.array(y), NUMPY.ops.quantized_linear(x, host)[0], rtol=1e-3, atol=2e-2)
    back = on_host(there)
    assert (back.codes == host.codes).all() and back.zero == host.zero
    assert there.nbytes <= host.shape[0] * host.shape[1] + 8 * host.shape[0] * host.groups
