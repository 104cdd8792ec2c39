"""Products by oneDNN: right for views and odd sizes, in any thread, and a sentence where there is no oneDNN."""

import importlib.metadata
import subprocess
import sys
import threading

import numpy as np
import pytest

from glassbert import EngineError
from glassbert.engines import onednn

pytestmark = pytest.mark.skipif(isinstance(onednn.library(), str), reason=str(onednn.library()))


def bfloat16(rng, *shape):
    return onednn.to_bfloat16(rng.standard_normal(shape, np.float32))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 7, 5), (17, 1, 33), (64, 48, 31)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_is_that_of_the_rounded_numbers(sizes, with_bias):
    rng = np.random.default_rng(0)
    m, k, n = sizes
    a, b = bfloat16(rng, m, k), bfloat16(rng, k, n)
    bias = rng.standard_normal(n, np.float32) if with_bias else None
    right = onednn.from_bfloat16(a).astype(float) @ onednn.from_bfloat16(b) + (0 if bias is None else bias)
    np.testing.assert_allclose(onednn.matmul(a, b, np.empty((m, n), np.float32), bias), right, atol=1e-5)


def test_views_need_no_copies():
    rng = np.random.default_rng(1)
    qkv = bfloat16(rng, 2, 9, 3, 4, 8)
    q, k = qkv[:, :, 0].transpose(0, 2, 1, 3), qkv[:, :, 1].transpose(0, 2, 3, 1)  # [2, 4, 9, 8], [2, 4, 8, 9]
    out = np.zeros((2, 9, 4, 9), np.float32).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(
        onednn.matmul(q, k, out), onednn.from_bfloat16(q) @ onednn.from_bfloat16(k), atol=1e-5, rtol=1e-5
    )
    wide = np.zeros((5, 20), np.float32)
    a, b = bfloat16(rng, 6, 5), bfloat16(rng, 6, 7)
    onednn.matmul(a.T, b, wide[:, 3:10])
    np.testing.assert_allclose(wide[:, 3:10], onednn.from_bfloat16(a).T @ onednn.from_bfloat16(b), atol=1e-5)
    assert not wide[:, :3].any() and not wide[:, 10:].any()


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 4), (3, 4, 0), (2, 0, 3)])
def test_empty_products(m, k, n):
    a, b = np.zeros((m, k), np.uint16), np.zeros((k, n), np.uint16)
    out = onednn.matmul(a, b, np.full((m, n), 7.0, np.float32), np.ones(n, np.float32))
    assert out.shape == (m, n) and (out == 1).all()


def test_rounding_is_to_the_nearest_and_ties_go_to_even():
    step = 2.0**-7  # of bfloat16 between 1 and 2
    given = np.array([1, 1 + step / 2, 1 + 1.5 * step, 1 + 0.49 * step, -1 - 0.51 * step, 0.0, -0.0], np.float32)
    right = np.array([1, 1, 1 + 2 * step, 1, -1 - step, 0.0, -0.0], np.float32)
    np.testing.assert_array_equal(onednn.from_bfloat16(onednn.to_bfloat16(given)), right)
    odd = np.array([np.nan, np.inf, -np.inf, 3.4e38], np.float32)
    np.testing.assert_array_equal(onednn.from_bfloat16(onednn.to_bfloat16(odd)), [np.nan, np.inf, -np.inf, np.inf])
    payload = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(onednn.from_bfloat16(onednn.to_bfloat16(payload))).all()


def test_8_bit_products_are_exact():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 256, (5, 4_099)).astype(np.uint8), rng.integers(-128, 128, (3, 4_099)).astype(np.int8)
    a[0], b[0] = 255, -128  # the largest sums
    found = onednn.product_u8s8(a, b, np.empty((5, 3), np.int32))
    np.testing.assert_array_equal(found, a.astype(np.int64) @ b.T.astype(np.int64))


def test_wrong_arguments_are_refused():
    a, b, out = np.zeros((2, 3), np.uint16), np.zeros((3, 4), np.uint16), np.zeros((2, 4), np.float32)
    with pytest.raises(EngineError, match="no product of uint16 and uint16 into float64"):
        onednn.matmul(a, b, out.astype(np.float64))
    with pytest.raises(EngineError, match=r"\[2, 3\] and \[3, 4\] does not fit into \[2, 5\]"):
        onednn.matmul(a, b, np.zeros((2, 5), np.float32))
    with pytest.raises(EngineError, match=r"a bias of the shape \[5\] does not fit a product \[2, 4\]"):
        onednn.matmul(a, b, out, np.zeros(5, np.float32))
    for wrong in (np.zeros(3, np.float32), np.zeros(4, np.uint16), np.zeros(3, np.uint16)[::-1]):
        with pytest.raises(EngineError, match="cannot be written into"):
            onednn.to_bfloat16(np.zeros(3, np.float32), wrong)
    out.flags.writeable = False
    with pytest.raises(EngineError, match="read-only"):
        onednn.matmul(a, b, out)


def test_other_types_and_views_backwards_are_copied():
    rng = np.random.default_rng(4)
    a, b, bias = bfloat16(rng, 5, 6), bfloat16(rng, 6, 4), rng.standard_normal(8).astype(np.float32)
    right = onednn.matmul(a, b, np.empty((5, 4), np.float32), bias[::2].copy())
    for same in (bias[::2], bias[::2].astype(np.float64), bias[::2][::-1].copy()[::-1]):
        np.testing.assert_array_equal(onednn.matmul(a, b, np.empty((5, 4), np.float32), same), right)
    x = rng.standard_normal((3, 4)).astype(np.float32)
    right = onednn.to_bfloat16(x)
    for same in (x.astype(np.float64), x[::-1].copy()[::-1], np.asfortranarray(x)):
        np.testing.assert_array_equal(onednn.to_bfloat16(same), right)
    wide = np.broadcast_to(x[0], (3, 4))
    np.testing.assert_array_equal(onednn.to_bfloat16(wide), np.broadcast_to(right[0], (3, 4)))


def test_threads_compute_side_by_side_and_leave_openmp_as_it_was():
    rng = np.random.default_rng(3)
    a, b = bfloat16(rng, 40, 30), bfloat16(rng, 30, 20)
    right = onednn.matmul(a, b, np.empty((40, 20), np.float32))
    found, limits = [], []

    def work():
        onednn.library().omp_set_num_threads(3)
        for _ in range(50):
            found.append(np.array_equal(onednn.matmul(a, b, np.empty((40, 20), np.float32)), right))
        limits.append(onednn.library().omp_get_max_threads())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found) and len(found) == 200 and limits == [3] * 4


def test_a_thread_keeps_a_limited_number_of_shapes(monkeypatch):
    monkeypatch.setattr(onednn, "KEPT", 4)
    kept = {}

    def work():
        for rows in range(1, 12):
            onednn.to_bfloat16(np.zeros(rows, np.float32))
        kept["count"] = len(onednn._threads().kept)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert 0 < kept["count"] <= 4


def fresh(monkeypatch):
    for function in (onednn.library, onednn.why_not):
        function.cache_clear()
        monkeypatch.setattr(onednn, function.__name__, function.__wrapped__)


def test_what_is_missing_is_said_in_a_sentence(monkeypatch):
    fresh(monkeypatch)
    monkeypatch.setattr(onednn.sys, "platform", "darwin")
    assert onednn.why_not() == "oneDNN is used on Linux with an x86-64 processor"
    monkeypatch.undo()
    fresh(monkeypatch)

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(onednn.importlib.metadata, "files", missing)
    assert onednn.why_not() == "bfloat16 on a CPU needs onednn-cpu-gomp: pip install onednn-cpu-gomp"
    monkeypatch.undo()
    fresh(monkeypatch)
    monkeypatch.setattr(onednn, "BFLOAT16_ISA", 0)
    assert "no instructions for bfloat16" in onednn.why_not()
    monkeypatch.setenv("GLASSBERT_ONEDNN", "0")
    assert "GLASSBERT_ONEDNN=0" in onednn.why_not()


def test_importing_the_engines_does_not_load_it():
    code = "import sys, glassbert.engines, glassbert.engines.onednn as o; print(o.library.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
