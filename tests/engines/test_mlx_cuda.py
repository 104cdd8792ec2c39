"""Our own CUDA kernels against the plain operations in float64: on an NVIDIA GPU, else compiled for the CPU."""

import functools

import numpy as np
import pytest

from glassbert import ops

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
from glassbert.engines.kernels import backward  # noqa: E402
from glassbert.engines.mlx_cuda import activations, losses, multi_head, norms, tables  # noqa: E402
from glassbert.engines.mlx_cuda.launch import on_cuda  # noqa: E402
from glassbert.engines.mlx_engine import MlxEngine  # noqa: E402
from tests.engines import cuda_on_cpu  # noqa: E402

# The largest error allowed, as a share of the largest value: rounding of the inputs is taken out beforehand.
LIMITS = {"float32": 2e-6, "bfloat16": 1e-2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(autouse=True)
def kernels(folder, monkeypatch):
    """The kernels on a machine without a GPU: the same source, run by `cuda_on_cpu`."""
    if on_cuda():
        return
    if cuda_on_cpu.COMPILER is None:
        pytest.skip("needs an NVIDIA GPU, or g++")
    kernel_of = functools.cache(functools.partial(cuda_on_cpu.Kernel, folder))
    for module in (activations, losses, multi_head, norms, tables):
        monkeypatch.setattr(module, "kernel_of", kernel_of)
    for module in ("mlx_cuda.launch", "mlx_kernels"):
        monkeypatch.setattr(f"glassbert.engines.{module}.on_cuda", lambda: True)


def given(shape, dtype, seed, scale=1.0, shift=0.0):
    """An array on the device, and the same rounded values in float64."""
    values = np.random.default_rng(seed).standard_normal(shape) * scale + shift
    array = mx.array(values.astype(np.float32)).astype(getattr(mx, dtype))
    return array, np.array(array.astype(mx.float32), dtype=np.float64)


def close(ours, reference, limit):
    ours = np.array(ours.astype(mx.float32), dtype=np.float64)
    assert ours.shape == reference.shape
    error = np.abs(ours - reference).max() / np.abs(reference).max()
    assert error < limit, f"off by {error:.1e} of the largest value"


# The last two widths have warps with one row and with two.
ROWS_AND_WIDTHS = [(1, 64), (7, 192), (300, 1024), (2700, 384), (1601, 768)]


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("rows", "width"), ROWS_AND_WIDTHS)
@pytest.mark.parametrize("with_beta", [True, False])
def test_layer_norm(rows, width, with_beta, dtype):
    x, x64 = given((rows, width), dtype, 0, shift=0.5)
    gamma, gamma64 = given((width,), dtype, 2, scale=0.3, shift=1.0)
    beta, beta64 = given((width,), dtype, 3) if with_beta else (None, None)
    assert norms.norm_fits(x)
    close(norms.layer_norm(x, gamma, beta, 1e-5), ops.layer_norm(x64, gamma64, beta64, 1e-5)[0], LIMITS[dtype])


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("rows", "width"), ROWS_AND_WIDTHS)
def test_layer_norm_backward(rows, width, dtype):
    x, x64 = given((rows, width), dtype, 0, shift=0.5)
    dy, dy64 = given((rows, width), dtype, 1)
    gamma, gamma64 = given((width,), dtype, 2, scale=0.3, shift=1.0)
    dx, dgamma, dbeta = norms.layer_norm_backward(dy, x, gamma, 1e-12)
    without = norms.layer_norm_backward(dy, x, gamma, 1e-12, has_beta=False)
    assert mx.array_equal(without[0], dx) and mx.array_equal(without[1], dgamma) and without[2] is None
    _, state = ops.layer_norm(x64, gamma64, np.zeros(width), 1e-12)
    references = ops.layer_norm_backward(dy64, state)
    for ours, reference, limit in zip((dx, dgamma, dbeta), references, (LIMITS[dtype], 1e-5, 1e-5), strict=True):
        close(ours, reference, limit)


@pytest.mark.parametrize("dtype", LIMITS)
def test_layer_norm_backward_adds_the_gradient_of_a_branch(dtype):
    (x, x64), (dy, dy64), (more, more64) = (given((3, 50, 192), dtype, seed) for seed in (0, 1, 19))
    gamma, gamma64 = given((192,), dtype, 2, scale=0.3, shift=1.0)
    dx, dgamma, _ = norms.layer_norm_backward(dy, x, gamma, 1e-12, more)
    _, state = ops.layer_norm(x64, gamma64, np.zeros(192), 1e-12)
    wanted, dgamma64, _ = ops.layer_norm_backward(dy64, state)
    close(dx, wanted + more64, LIMITS[dtype])
    close(dgamma, dgamma64, 1e-5)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("shape", [(1, 8), (3, 5, 1536), (77, 24)])
def test_gelu(shape, dtype):
    (x, x64), (dy, dy64) = given(shape, dtype, 20, scale=2.0), given(shape, dtype, 21)
    assert activations.gelu_fits(x)
    y, state = ops.gelu(x64)
    close(activations.gelu(x), y, LIMITS[dtype])
    close(activations.gelu_backward(dy, x), ops.gelu_backward(dy64, state), LIMITS[dtype])


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("shape", [(1, 8), (63, 24), (1000, 64), (20_001, 1_152), (65_536, 192), (333, 4_104)])
def test_column_sums(shape, dtype):
    x, x64 = given(shape, dtype, 7)
    assert tables.sums_fit(x)
    close(tables.column_sums(x), x64.sum(0), 1e-5)
    turned = mx.array(np.array(x.astype(mx.float32)).T.copy()).astype(x.dtype).T  # the same values, stored by columns
    close(tables.column_sums(turned), x64.sum(0), 1e-5)
    assert mx.array_equal(tables.column_sums(x), tables.column_sums(x))


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("shape", "index"), [((1, 8), (3,)), ((8_192, 192), (32, 64)), ((77, 768), (1_001,))])
def test_rows_of_a_table(shape, index, dtype):
    table, _ = given(shape, dtype, 8)
    ids = mx.array(np.random.default_rng(9).integers(-shape[0], shape[0], index))
    assert tables.table_fits(table)
    assert mx.array_equal(tables.table_rows(table, ids), table[ids])


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("count", "width", "rows"), [(1, 4, 3), (50, 192, 700), (9, 100, 64)])
def test_rows_are_added_up_in_a_table(count, width, rows, dtype):
    given_rows, rows64 = given((rows, width), dtype, 22)
    index = np.random.default_rng(23).integers(-count, count, rows)
    assert tables.added_rows_fit(given_rows)
    wanted = np.zeros((count, width))
    np.add.at(wanted, index, rows64)
    close(tables.added_rows(mx.array(index), given_rows, count, mx.float32), wanted, 1e-5)
    each = np.random.default_rng(24).permutation(rows)[:count]  # every row of the table once: nothing to round
    one = tables.added_rows(mx.array(np.arange(len(each))), given_rows[mx.array(each)], count, given_rows.dtype)
    close(one[: len(each)], rows64[each], 1e-9)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 37), (40, 30_522), (33, 8_192), (3, 50_000)])
def test_cross_entropy(rows, columns, dtype):
    scores, scores64 = given((rows, columns), dtype, 25, scale=5.0)
    targets = np.random.default_rng(26).integers(0, columns, rows)
    labels = np.where(np.arange(rows) % 5 == 3, ops.IGNORED, targets)
    assert losses.cross_entropy_fits(scores)
    each, logs = losses.cross_entropy(scores, mx.array(targets.astype(np.int32)))
    logs64 = np.log(np.exp(scores64).sum(1))
    close(logs, logs64, 2e-6)
    close(each + 1.0, logs64 - scores64[np.arange(rows), targets] + 1.0, 2e-6)  # one column: every loss is 0
    engine = MlxEngine(dtype)
    loss, state = engine.ops.cross_entropy(scores, mx.array(labels.astype(np.int32)))
    wanted, plain = ops.cross_entropy(scores64, labels)
    assert abs(float(loss) - wanted) < 2e-6 * (1.0 + abs(wanted))
    dscores, dwanted = backward(mx.array(1.0), state), ops.cross_entropy_backward(1.0, plain)
    close(dscores + 1.0, dwanted + 1.0, LIMITS[dtype])
    ignored = np.array(dscores.astype(mx.float32))[labels == ops.IGNORED]
    assert not ignored.any()


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("shape", [(1, 8), (3, 5, 2304), (1000, 64), (77, 24)])
def test_geglu(shape, dtype):
    x, x64 = given(shape, dtype, 3, scale=2.0)
    dy, dy64 = given((*shape[:-1], shape[-1] // 2), dtype, 4)
    assert activations.geglu_fits(x)
    y, state = ops.geglu(x64)
    close(activations.geglu(x), y, LIMITS[dtype])
    close(activations.geglu_backward(dy, x), ops.geglu_backward(dy64, state), LIMITS[dtype])


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("batched", [False, True], ids=["angles shared", "angles by row"])
@pytest.mark.parametrize("size", [64, 12])
def test_rotary_reads_strided_heads(dtype, batched, size):
    batch, length, heads = 3, 130, 5
    qkv, qkv64 = given((batch, length, 3, heads, size), dtype, 5)
    angle = np.random.default_rng(6).uniform(0, 100, (batch if batched else 1, length, 1, size // 2))
    cos, sin = (mx.array(f(angle).astype(np.float32)) for f in (np.cos, np.sin))
    for part in range(3):
        x = qkv[:, :, part]
        assert multi_head.rotary_fits(x)
        close(
            multi_head.rotary(x, cos, sin),
            ops.rotary(qkv64[:, :, part], np.cos(angle), np.sin(angle))[0],
            LIMITS[dtype],
        )


def strided_heads(dtype, seed, batch=3, length=130, heads=5, size=64):
    """q as a part of one array, k with heads first, v stored with features outside, all seen as [B, T, heads, d]."""
    qkv, qkv64 = given((batch, length, 3, heads, size), dtype, seed)
    q, q64 = qkv[:, :, 0], qkv64[:, :, 0]
    k = mx.contiguous(qkv[:, :, 1].transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    v = mx.contiguous(qkv[:, :, 2].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    return (q, k, v), (q64, qkv64[:, :, 1], qkv64[:, :, 2])


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("size", [64, 48, 8])
def test_heads_are_joined_from_any_strides(dtype, size):
    arrays, references = strided_heads(dtype, 10, size=size)
    assert multi_head.heads_fit(arrays[0])
    joined = multi_head.join_heads(*arrays)
    close(joined.reshape(3, 130, -1), ops.join_heads(*references)[0], 1e-9)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("length", [300, 384, 1000, 1024])
def test_keys_around_blocks_and_their_gradients(dtype, length):
    block, blocks = 128, -(-length // 128)
    arrays, references = strided_heads(dtype, 11, length=length)
    for x, x64 in zip(arrays, references, strict=True):
        padded = np.pad(x64, [(0, 0), (block // 2, blocks * block - length + block // 2), (0, 0), (0, 0)])
        parts = [padded[:, i * block : (i + 2) * block] for i in range(blocks)]
        close(multi_head.around(x, block), np.stack(parts, 1).reshape(-1, 2 * block, *x64.shape[2:]), 1e-9)
    dy, dy64 = given((3 * blocks, 2 * block, 5, 64), dtype, 12)
    sums = np.zeros((3, (blocks + 1) * block, 5, 64))
    for i in range(blocks):
        sums[:, i * block : (i + 2) * block] += dy64.reshape(3, blocks, 2 * block, 5, 64)[:, i]
    wanted = sums[:, block // 2 : block // 2 + length]
    close(multi_head.around_backward(dy, block, length), wanted, LIMITS[dtype])
    turned = mx.contiguous(dy.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    close(multi_head.around_backward(turned, block, length), wanted, LIMITS[dtype])


@pytest.mark.parametrize("length", [300, 512])
def test_attention_in_blocks_of_a_window(length):
    """The blocks of a window against the plain operation, forward and backward."""
    pattern, engine = ops.AttentionPattern(window=64), MlxEngine("bfloat16")
    (q, k, v), references = strided_heads("bfloat16", 13, batch=2, length=length, heads=2)
    d, d64 = given((2, 2, length, 64), "bfloat16", 14)
    y, state = engine.ops.tiled_attention(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)), pattern)
    wanted, plain = ops.attention(*(x.transpose(0, 2, 1, 3) for x in references), pattern)
    close(y, wanted, 2e-2)
    for ours, reference in zip(backward(d, state)[:3], ops.attention_backward(d64, plain)[:3], strict=True):
        close(ours, reference, 3e-2)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("with_bias", [True, False])
def test_products_with_a_number_of_columns_that_8_does_not_divide(dtype, with_bias):
    engine = MlxEngine(dtype)
    (x, x64), (weight, weight64) = given((40, 64), dtype, 15), given((30_522, 64), dtype, 16, scale=0.1)
    (bias, bias64), (dy, dy64) = given((30_522,), dtype, 17), given((40, 30_522), dtype, 18)
    y, state = engine.ops.linear(x, weight, bias if with_bias else None)
    wanted, plain = ops.linear(x64, weight64, bias64 if with_bias else None)
    close(y, wanted, max(LIMITS[dtype], 2e-3))  # float32 products are rounded to TF32
    for ours, reference in zip(backward(dy, state), ops.linear_backward(dy64, plain), strict=True):
        assert (ours is None) == (reference is None)
        if reference is not None:
            close(ours, reference, max(LIMITS[dtype], 2e-3))
