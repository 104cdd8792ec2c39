"""CUDA kernels for operations that take too many passes over memory in MLX.

The backward of layer norm needs sums along rows (for dx) and sums along columns (for gamma and beta). Here one warp
processes a row at a time in registers and accumulates the column sums in float32: x and dy are read once, dx is written
once. GeGLU and rotary positions read halves of a row; MLX's compiler would first copy each half in float32.
"""

from __future__ import annotations

import functools
from typing import Any

import mlx.core as mx

WARPS_PER_BLOCK = 8
BLOCKS = 528  # four for each multiprocessor of a large GPU
MAX_WIDTH = 1_024

LAYER_NORM_BACKWARD = """
    constexpr int H = PAIRS * 64;
    const int lane = threadIdx.x % 32;
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int warps = gridDim.x * blockDim.x / 32;
    const int rows = x_shape[0];
    float scale[2 * PAIRS], dgamma[2 * PAIRS], dbeta[2 * PAIRS];
    for (int p = 0; p < PAIRS; ++p)
        for (int e = 0; e < 2; ++e) {
            scale[2 * p + e] = static_cast<float>(gamma[64 * p + 2 * lane + e]);
            dgamma[2 * p + e] = 0.0f;
            dbeta[2 * p + e] = 0.0f;
        }
    auto total = [](float v) {
        for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffff, v, offset);
        return v;
    };
    for (int row = warp; row < rows; row += warps) {
        const T* xr = x + (long)row * H;
        const T* dr = dy + (long)row * H;
        float xh[2 * PAIRS], d[2 * PAIRS];
        float sum = 0.0f;
        for (int p = 0; p < PAIRS; ++p)
            for (int e = 0; e < 2; ++e) {
                xh[2 * p + e] = static_cast<float>(xr[64 * p + 2 * lane + e]);
                d[2 * p + e] = static_cast<float>(dr[64 * p + 2 * lane + e]);
                sum += xh[2 * p + e];
            }
        const float mean = total(sum) / H;
        float square = 0.0f;
        for (int i = 0; i < 2 * PAIRS; ++i) {
            xh[i] -= mean;
            square += xh[i] * xh[i];
        }
        const float rstd = rsqrtf(total(square) / H + eps[0]);
        float sum_g = 0.0f, sum_gx = 0.0f;
        for (int i = 0; i < 2 * PAIRS; ++i) {
            xh[i] *= rstd;
            dgamma[i] += d[i] * xh[i];
            dbeta[i] += d[i];
            d[i] *= scale[i];
            sum_g += d[i];
            sum_gx += d[i] * xh[i];
        }
        const float mean_g = total(sum_g) / H, mean_gx = total(sum_gx) / H;
        T* out = dx + (long)row * H;
        for (int p = 0; p < PAIRS; ++p)
            for (int e = 0; e < 2; ++e) {
                const int i = 2 * p + e;
                out[64 * p + 2 * lane + e] = static_cast<T>(rstd * (d[i] - mean_g - xh[i] * mean_gx));
            }
    }
    __shared__ float block_sums[2 * H];
    for (int i = threadIdx.x; i < 2 * H; i += blockDim.x) block_sums[i] = 0.0f;
    __syncthreads();
    for (int turn = 0; turn < blockDim.x / 32; ++turn) {  // one warp after the other: the same order in every run
        if (turn == threadIdx.x / 32)
            for (int p = 0; p < PAIRS; ++p)
                for (int e = 0; e < 2; ++e) {
                    block_sums[64 * p + 2 * lane + e] += dgamma[2 * p + e];
                    block_sums[H + 64 * p + 2 * lane + e] += dbeta[2 * p + e];
                }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < 2 * H; i += blockDim.x) sums[(long)blockIdx.x * 2 * H + i] = block_sums[i];
"""

GEGLU = """
    struct alignas(4 * sizeof(T)) Four { T v[4]; };
    const long i = 4 * ((long)blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= (long)x_shape[0] * WIDE) return;
    const long at = i / WIDE * 2 * WIDE + i % WIDE;
    const Four a = *reinterpret_cast<const Four*>(x + at);
    const Four gate = *reinterpret_cast<const Four*>(x + at + WIDE);
    Four result;
    for (int e = 0; e < 4; ++e) {
        const float v = static_cast<float>(a.v[e]);
        result.v[e] = static_cast<T>(v * normcdff(v) * static_cast<float>(gate.v[e]));
    }
    *reinterpret_cast<Four*>(y + i) = result;
"""

GEGLU_BACKWARD = """
    struct alignas(4 * sizeof(T)) Four { T v[4]; };
    const long i = 4 * ((long)blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= (long)x_shape[0] * WIDE) return;
    const long at = i / WIDE * 2 * WIDE + i % WIDE;
    const Four a = *reinterpret_cast<const Four*>(x + at);
    const Four gate = *reinterpret_cast<const Four*>(x + at + WIDE);
    const Four d = *reinterpret_cast<const Four*>(dy + i);
    Four da, dgate;
    for (int e = 0; e < 4; ++e) {
        const float v = static_cast<float>(a.v[e]), dv = static_cast<float>(d.v[e]);
        const float cdf = normcdff(v);
        const float slope = cdf + v * 0.3989422804f * __expf(-0.5f * v * v);
        da.v[e] = static_cast<T>(dv * static_cast<float>(gate.v[e]) * slope);
        dgate.v[e] = static_cast<T>(dv * v * cdf);
    }
    *reinterpret_cast<Four*>(dx + at) = da;
    *reinterpret_cast<Four*>(dx + at + WIDE) = dgate;
"""

ROTARY = """
    struct alignas(2 * sizeof(T)) Two { T v[2]; };
    constexpr int HALF = SIZE / 2;
    const long n = (long)blockIdx.x * blockDim.x + threadIdx.x;
    const int length = x_shape[1], heads = x_shape[2];
    if (n >= (long)x_shape[0] * length * heads * (HALF / 2)) return;
    const int i = 2 * (n % (HALF / 2));
    const long head = n / (HALF / 2), token = head / heads, row = token / length;
    const long from = row * x_strides[0] + token % length * x_strides[1] + head % heads * x_strides[2] + i;
    const Two one = *reinterpret_cast<const Two*>(x + from);
    const Two two = *reinterpret_cast<const Two*>(x + from + HALF);
    const long angle = (cos_shape[0] > 1 ? token : token % length) * HALF + i;
    Two turned_one, turned_two;
    for (int e = 0; e < 2; ++e) {
        const float a = static_cast<float>(one.v[e]), b = static_cast<float>(two.v[e]);
        const float c = cos[angle + e], s = sin[angle + e];
        turned_one.v[e] = static_cast<T>(a * c - b * s);
        turned_two.v[e] = static_cast<T>(b * c + a * s);
    }
    *reinterpret_cast<Two*>(y + head * SIZE + i) = turned_one;
    *reinterpret_cast<Two*>(y + head * SIZE + HALF + i) = turned_two;
"""


@functools.cache
def _kernel(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], source: str, contiguous: bool = True) -> Any:
    return mx.fast.cuda_kernel(
        name=f"glassbert_{name}",
        input_names=list(inputs),
        output_names=list(outputs),
        source=source,
        ensure_row_contiguous=contiguous,
    )


@functools.cache
def on_cuda() -> bool:
    return hasattr(mx, "cuda") and mx.cuda.is_available() and mx.default_device() == mx.gpu


def _threads(count: int) -> dict[str, tuple[int, int, int]]:
    return {"grid": (-(-count // 256) * 256, 1, 1), "threadgroup": (256, 1, 1)}


def norm_fits(x: mx.array) -> bool:
    return on_cuda() and x.shape[-1] % 64 == 0 and x.shape[-1] <= MAX_WIDTH


def layer_norm_backward(dy: mx.array, x: mx.array, gamma: mx.array, eps: float) -> tuple[mx.array, mx.array, mx.array]:
    """dx, dgamma, dbeta; the latter two in float32."""
    width = x.shape[-1]
    threads = 32 * WARPS_PER_BLOCK
    kernel = _kernel("layer_norm_backward", ("x", "dy", "gamma", "eps"), ("dx", "sums"), LAYER_NORM_BACKWARD)
    dx, sums = kernel(
        inputs=[x.reshape(-1, width), dy.reshape(-1, width), gamma, mx.array([eps], dtype=mx.float32)],
        template=[("T", x.dtype), ("PAIRS", width // 64)],
        grid=(BLOCKS * threads, 1, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[(x.size // width, width), (BLOCKS, 2, width)],
        output_dtypes=[x.dtype, mx.float32],
    )
    dgamma, dbeta = mx.split(sums.sum(0).reshape(-1), 2)
    return dx.reshape(x.shape), dgamma, dbeta


def geglu_fits(x: mx.array) -> bool:
    return on_cuda() and x.shape[-1] % 8 == 0


def geglu(x: mx.array) -> mx.array:
    wide = x.shape[-1] // 2
    rows = x.size // (2 * wide)
    (y,) = _kernel("geglu", ("x",), ("y",), GEGLU)(
        inputs=[x.reshape(rows, 2 * wide)],
        template=[("T", x.dtype), ("WIDE", wide)],
        output_shapes=[(rows, wide)],
        output_dtypes=[x.dtype],
        **_threads(rows * wide // 4),
    )
    return y.reshape(*x.shape[:-1], wide)


def geglu_backward(dy: mx.array, x: mx.array) -> mx.array:
    wide = x.shape[-1] // 2
    rows = x.size // (2 * wide)
    (dx,) = _kernel("geglu_backward", ("x", "dy"), ("dx",), GEGLU_BACKWARD)(
        inputs=[x.reshape(rows, 2 * wide), dy.reshape(rows, wide)],
        template=[("T", x.dtype), ("WIDE", wide)],
        output_shapes=[(rows, 2 * wide)],
        output_dtypes=[x.dtype],
        **_threads(rows * wide // 4),
    )
    return dx.reshape(x.shape)


def rotary_fits(x: mx.array) -> bool:
    return on_cuda() and x.shape[-1] % 4 == 0


def rotary(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """x [B, T, heads, d] with any strides but the last; cos, sin [B or 1, T, 1, d/2] in float32."""
    (y,) = _kernel("rotary", ("x", "cos", "sin"), ("y",), ROTARY, contiguous=False)(
        inputs=[x, cos, sin],
        template=[("T", x.dtype), ("SIZE", x.shape[-1])],
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
        **_threads(x.size // 4),
    )
    return y
