"""Floats to codes and back: every width, groups, both kinds of ranges, and what cannot be quantised."""

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.ops.quantized import dequantize, unpack
from glassbert.quantization.rounding import compact, pack, quantize_array, relative_error


def matrix(rows=6, width=64, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("bits", "group"), [(8, None), (8, 32), (4, 32), (4, 16), (4, None)])
def test_no_weight_is_farther_from_its_code_than_half_a_step_of_the_full_range(bits, group, symmetric):
    values = matrix()
    found = quantize_array(values, bits, group=group, symmetric=symmetric)
    size = group or values.shape[1]
    ranges = values.reshape(len(values), -1, size)
    full = 2 * np.abs(ranges).max(-1) if symmetric else np.ptp(ranges, axis=-1)
    step = full / (2**bits - (2 if symmetric else 1))
    error = ((values - dequantize(found)) ** 2).reshape(ranges.shape).mean(-1)
    assert (error <= (step / 2) ** 2).all()
    assert found.codes.dtype == (np.int8 if bits == 8 else np.uint8)


def test_four_bits_of_a_shifted_matrix_need_offsets():
    values = matrix() * 0.01 + 5
    symmetric, with_offsets = (quantize_array(values, 4, group=32, symmetric=kind) for kind in (True, False))
    assert relative_error(values, with_offsets) < 0.001 < relative_error(values, symmetric)


def test_smaller_groups_are_more_exact():
    values = matrix() * np.geomspace(0.01, 10, 64, dtype=np.float32)
    errors = [relative_error(values, quantize_array(values, 4, group=group)) for group in (None, 32, 8)]
    assert errors[0] > errors[1] > errors[2]


def test_clipping_and_least_squares_make_the_squared_error_smaller_than_the_plain_range():
    values = matrix()
    values[:, 0] *= 3
    found = quantize_array(values, 4, group=64, symmetric=False)
    low, high = values.min(1, keepdims=True), values.max(1, keepdims=True)
    step = (high - low) / 15
    plain = np.rint((values - low) / step) * step + low
    assert ((values - dequantize(found)) ** 2).sum() < 0.95 * ((values - plain) ** 2).sum()


def test_columns_that_matter_more_are_kept_more_exactly():
    values, importance = matrix(32), np.ones(64, np.float32)
    importance[:8] = 400.0
    plain, weighted = (
        quantize_array(values, 4, group=64, symmetric=False, importance=one) for one in (None, importance)
    )
    errors = [((values - dequantize(one)) ** 2)[:, :8].sum() for one in (plain, weighted)]
    assert errors[1] < errors[0]


@pytest.mark.parametrize("width", [1, 2, 5, 7, 33])
def test_odd_widths_use_whole_rows_and_an_unused_half_byte(width):
    values = matrix(3, width)
    found = quantize_array(values, 4, group=32, symmetric=False)
    assert found.codes.shape == (3, (width + 1) // 2) and found.groups == 1
    assert np.abs(dequantize(found) - values).max() <= np.ptp(values, axis=1).max() / 15 + 1e-6


def test_codes_of_four_bits_are_packed_with_the_lower_half_first():
    codes = np.array([[1, 15, 0, 7, 9]])
    assert pack(codes, 4).tolist() == [[0xF1, 0x70, 0x09]]
    assert unpack(pack(codes, 4), 5).tolist() == codes.tolist()


def test_rows_of_zeros_and_equal_values_are_exact():
    values = np.zeros((3, 32), np.float32)
    values[1] = 2.5
    for bits in (8, 4):
        assert np.abs(dequantize(quantize_array(values, bits, symmetric=False)) - values).max() < 1e-6
    assert (dequantize(quantize_array(values, 8))[0] == 0).all()


def test_tiny_weights_keep_scales_in_float32():
    small, ordinary = (compact(quantize_array(matrix() * size, 4, group=32)) for size in (1e-6, 1.0))
    assert small.scales.dtype == np.float32 and ordinary.scales.dtype == np.float16
    assert relative_error(matrix() * 1e-6, small) < 0.15


@pytest.mark.parametrize("bits", [0, 1, 2, 3, 5, 16, 32, True, "8", None])
def test_bits_that_are_none_are_refused(bits):
    with pytest.raises(InputError, match="weights are quantised to 8 or 4 bits"):
        quantize_array(matrix(), bits)


@pytest.mark.parametrize(
    ("values", "options", "problem"),
    [
        (np.zeros(4), {}, "only matrices"),
        (np.full((2, 4), np.nan), {}, "not finite"),
        (np.zeros((2, 4)), {"group": 1}, "at least 2 weights"),
    ],
)
def test_what_cannot_be_quantised_is_refused(values, options, problem):
    with pytest.raises(InputError, match=problem):
        quantize_array(values, 8, **options)
