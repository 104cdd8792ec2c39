"""CUDA kernels for operations that take too many passes over memory in MLX; more are in `mlx_cuda_rows`.

GeGLU and rotary positions read halves of a row; MLX's compiler would first copy each half in float32.
"""

from __future__ import annotations

import functools
import zlib
from typing import Any

import mlx.core as mx

GROUP = "    struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Group { T v[N]; };\n"  # read and written at once

GEGLU = (
    GROUP
    + """
    const long i = N * ((long)blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= (long)x_shape[0] * WIDE) return;
    const long at = i / WIDE * 2 * WIDE + i % WIDE;
    const Group a = *reinterpret_cast<const Group*>(x + at);
    const Group gate = *reinterpret_cast<const Group*>(x + at + WIDE);
    Group result;
    for (int e = 0; e < N; ++e) {
        const float v = static_cast<float>(a.v[e]);
        result.v[e] = static_cast<T>(v * normcdff(v) * static_cast<float>(gate.v[e]));
    }
    *reinterpret_cast<Group*>(y + i) = result;
"""
)

GEGLU_BACKWARD = (
    GROUP
    + """
    const long i = N * ((long)blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= (long)x_shape[0] * WIDE) return;
    const long at = i / WIDE * 2 * WIDE + i % WIDE;
    const Group a = *reinterpret_cast<const Group*>(x + at);
    const Group gate = *reinterpret_cast<const Group*>(x + at + WIDE);
    const Group d = *reinterpret_cast<const Group*>(dy + i);
    Group da, dgate;
    for (int e = 0; e < N; ++e) {
        const float v = static_cast<float>(a.v[e]), dv = static_cast<float>(d.v[e]);
        const float cdf = normcdff(v);
        const float slope = cdf + v * 0.3989422804f * __expf(-0.5f * v * v);
        da.v[e] = static_cast<T>(dv * static_cast<float>(gate.v[e]) * slope);
        dgate.v[e] = static_cast<T>(dv * v * cdf);
    }
    *reinterpret_cast<Group*>(dx + at) = da;
    *reinterpret_cast<Group*>(dx + at + WIDE) = dgate;
"""
)

# Over flat arrays: a group of numbers a thread.
GELU = (
    GROUP
    + """
    const long i = N * ((long)blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= (long)x_shape[0]) return;
    const Group a = *reinterpret_cast<const Group*>(x + i);
    Group result;
    for (int e = 0; e < N; ++e) {
        const float v = static_cast<float>(a.v[e]);
        result.v[e] = static_cast<T>(v * normcdff(v));
    }
    *reinterpret_cast<Group*>(y + i) = result;
"""
)

GELU_BACKWARD = (
    GROUP
    + """
    const long i = N * ((long)blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= (long)x_shape[0]) return;
    const Group a = *reinterpret_cast<const Group*>(x + i);
    const Group d = *reinterpret_cast<const Group*>(dy + i);
    Group result;
    for (int e = 0; e < N; ++e) {
        const float v = static_cast<float>(a.v[e]);
        const float slope = normcdff(v) + v * 0.3989422804f * __expf(-0.5f * v * v);
        result.v[e] = static_cast<T>(static_cast<float>(d.v[e]) * slope);
    }
    *reinterpret_cast<Group*>(dx + i) = result;
"""
)

ROTARY = (
    GROUP
    + """
    constexpr int HALF = SIZE / 2;
    const long n = (long)blockIdx.x * blockDim.x + threadIdx.x;
    const int length = x_shape[1], heads = x_shape[2];
    if (n >= (long)x_shape[0] * length * heads * (HALF / N)) return;
    const int i = N * (n % (HALF / N));
    const long head = n / (HALF / N), token = head / heads, row = token / length;
    const long from = row * x_strides[0] + token % length * x_strides[1] + head % heads * x_strides[2] + i;
    const Group one = *reinterpret_cast<const Group*>(x + from);
    const Group two = *reinterpret_cast<const Group*>(x + from + HALF);
    const long angle = (cos_shape[0] > 1 ? token : token % length) * HALF + i;
    Group turned_one, turned_two;
    for (int e = 0; e < N; ++e) {
        const float a = static_cast<float>(one.v[e]), b = static_cast<float>(two.v[e]);
        const float c = cos[angle + e], s = sin[angle + e];
        turned_one.v[e] = static_cast<T>(a * c - b * s);
        turned_two.v[e] = static_cast<T>(b * c + a * s);
    }
    *reinterpret_cast<Group*>(y + head * SIZE + i) = turned_one;
    *reinterpret_cast<Group*>(y + head * SIZE + HALF + i) = turned_two;
"""
)


@functools.cache
def kernel_of(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], source: str, contiguous: bool = True
) -> Any:
    own = f"glassbert_{name}_{zlib.crc32(source.encode()):08x}"  # MLX keeps compiled kernels by name, also on disk
    return mx.fast.cuda_kernel(
        name=own,
        input_names=list(inputs),
        output_names=list(outputs),
        source=source,
        ensure_row_contiguous=contiguous,
    )


@functools.cache
def on_cuda() -> bool:
    return hasattr(mx, "cuda") and mx.cuda.is_available() and mx.default_device() == mx.gpu


def threads_for(count: int) -> dict[str, tuple[int, int, int]]:
    return {"grid": (-(-count // 256) * 256, 1, 1), "threadgroup": (256, 1, 1)}


def gelu_fits(x: mx.array) -> bool:
    return on_cuda() and x.size > 0 and x.size % 8 == 0


def gelu(x: mx.array) -> mx.array:
    (y,) = kernel_of("gelu", ("x",), ("y",), GELU)(
        inputs=[x.reshape(-1)],
        template=[("T", x.dtype), ("N", 8)],
        output_shapes=[(x.size,)],
        output_dtypes=[x.dtype],
        **threads_for(x.size // 8),
    )
    return y.reshape(x.shape)


def gelu_backward(dy: mx.array, x: mx.array) -> mx.array:
    (dx,) = kernel_of("gelu_backward", ("x", "dy"), ("dx",), GELU_BACKWARD)(
        inputs=[x.reshape(-1), dy.reshape(-1).astype(x.dtype)],  # the kernel reads both as T
        template=[("T", x.dtype), ("N", 8)],
        output_shapes=[(x.size,)],
        output_dtypes=[x.dtype],
        **threads_for(x.size // 8),
    )
    return dx.reshape(x.shape)


def geglu_fits(x: mx.array) -> bool:
    return on_cuda() and x.shape[-1] % 8 == 0


def geglu(x: mx.array) -> mx.array:
    wide = x.shape[-1] // 2
    rows, group = x.size // (2 * wide), 8 if wide % 8 == 0 else 4
    (y,) = kernel_of("geglu", ("x",), ("y",), GEGLU)(
        inputs=[x.reshape(rows, 2 * wide)],
        template=[("T", x.dtype), ("WIDE", wide), ("N", group)],
        output_shapes=[(rows, wide)],
        output_dtypes=[x.dtype],
        **threads_for(rows * wide // group),
    )
    return y.reshape(*x.shape[:-1], wide)


def geglu_backward(dy: mx.array, x: mx.array) -> mx.array:
    wide = x.shape[-1] // 2
    rows, group = x.size // (2 * wide), 8 if wide % 8 == 0 else 4
    (dx,) = kernel_of("geglu_backward", ("x", "dy"), ("dx",), GEGLU_BACKWARD)(
        inputs=[x.reshape(rows, 2 * wide), dy.reshape(rows, wide).astype(x.dtype)],  # the kernel reads both as T
        template=[("T", x.dtype), ("WIDE", wide), ("N", group)],
        output_shapes=[(rows, 2 * wide)],
        output_dtypes=[x.dtype],
        **threads_for(rows * wide // group),
    )
    return dx.reshape(x.shape)


def rotary_fits(x: mx.array) -> bool:
    return on_cuda() and x.shape[-1] % 4 == 0


def rotary(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """x [B, T, heads, d] with any strides but the last; cos, sin [B or 1, T, 1, d/2] in float32."""
    group = 8 if x.shape[-1] % 16 == 0 else 2
    (y,) = kernel_of("rotary", ("x", "cos", "sin"), ("y",), ROTARY, contiguous=False)(
        inputs=[x, cos, sin],
        template=[("T", x.dtype), ("SIZE", x.shape[-1]), ("N", group)],
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
        **threads_for(x.size // (2 * group)),
    )
    return y
