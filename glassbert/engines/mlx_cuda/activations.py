"""GELU and GeGLU: MLX's compiler would first copy each half of a GeGLU row in float32."""

from __future__ import annotations

import mlx.core as mx

from glassbert.engines.mlx_cuda.launch import GROUP, THREAD, fits, kernel_of, threads_for

# Φ(v), and φ(v) = exp(-v²/2) / √(2π). For 16-bit numbers by Zelen and Severo's polynomial in t = 1 / (1 + p |v|)
# (Abramowitz and Stegun 26.2.17, off by at most 7.5e-8), which shares the exponential: `normcdff` would take longer
# than reading and writing.
NORMAL = """
    auto normal = [](float v, float& density) {
        density = 0.3989422804f * __expf(-0.5f * v * v);
        if constexpr (sizeof(T) > 2) return normcdff(v);
        const float t = __fdividef(1.0f, 1.0f + 0.2316419f * fabsf(v));
        const float tail = density * t * (0.319381530f + t * (-0.356563782f + t * (1.781477937f
                         + t * (-1.821255978f + t * 1.330274429f))));
        return v < 0.0f ? tail : 1.0f - tail;
    };
"""

GELU = (
    GROUP
    + THREAD
    + NORMAL
    + """
    if (thread >= (unsigned)(x_shape[0] / N)) return;
    const Group a = reinterpret_cast<const Group*>(x)[thread];
    Group result;
    for (int e = 0; e < N; ++e) {
        float density;
        const float v = static_cast<float>(a.v[e]);
        result.v[e] = static_cast<T>(v * normal(v, density));
    }
    reinterpret_cast<Group*>(y)[thread] = result;
"""
)

GELU_BACKWARD = (
    GROUP
    + THREAD
    + NORMAL
    + """
    if (thread >= (unsigned)(x_shape[0] / N)) return;
    const Group a = reinterpret_cast<const Group*>(x)[thread];
    const Group d = reinterpret_cast<const Group*>(dy)[thread];
    Group result;
    for (int e = 0; e < N; ++e) {
        float density;
        const float v = static_cast<float>(a.v[e]), cdf = normal(v, density);
        result.v[e] = static_cast<T>(static_cast<float>(d.v[e]) * (cdf + v * density));
    }
    reinterpret_cast<Group*>(dx)[thread] = result;
"""
)

# A row of x is WIDE numbers and WIDE gates.
GEGLU = (
    GROUP
    + THREAD
    + NORMAL
    + """
    constexpr unsigned GROUPS = WIDE / N;
    const unsigned row = thread / GROUPS;
    if (row >= (unsigned)x_shape[0]) return;
    const Group* from = reinterpret_cast<const Group*>(x) + 2ul * GROUPS * row + thread % GROUPS;
    const Group a = from[0], gate = from[GROUPS];
    Group result;
    for (int e = 0; e < N; ++e) {
        float density;
        const float v = static_cast<float>(a.v[e]);
        result.v[e] = static_cast<T>(v * normal(v, density) * static_cast<float>(gate.v[e]));
    }
    reinterpret_cast<Group*>(y)[thread] = result;
"""
)

GEGLU_BACKWARD = (
    GROUP
    + THREAD
    + NORMAL
    + """
    constexpr unsigned GROUPS = WIDE / N;
    const unsigned row = thread / GROUPS;
    if (row >= (unsigned)x_shape[0]) return;
    const unsigned long at = 2ul * GROUPS * row + thread % GROUPS;
    const Group* from = reinterpret_cast<const Group*>(x) + at;
    const Group a = from[0], gate = from[GROUPS], d = reinterpret_cast<const Group*>(dy)[thread];
    Group da, dgate;
    for (int e = 0; e < N; ++e) {
        float density;
        const float v = static_cast<float>(a.v[e]), dv = static_cast<float>(d.v[e]), cdf = normal(v, density);
        da.v[e] = static_cast<T>(dv * static_cast<float>(gate.v[e]) * (cdf + v * density));
        dgate.v[e] = static_cast<T>(dv * v * cdf);
    }
    Group* to = reinterpret_cast<Group*>(dx) + at;
    to[0] = da;
    to[GROUPS] = dgate;
"""
)


def gelu_fits(x: mx.array) -> bool:
    return fits(x) and x.size % 8 == 0


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
    return fits(x) and x.shape[-1] % 8 == 0


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
