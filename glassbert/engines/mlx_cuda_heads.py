"""CUDA kernels that lay out heads: queries, keys and values side by side, and the keys around blocks of a window.

Both only move numbers. MLX would copy each part by a launch of its own, a number at a time, and fill paddings before.
The arrays come from other kernels with any strides, so a group of numbers is read at once only where it is contiguous.
"""

from __future__ import annotations

import mlx.core as mx

from glassbert.engines.mlx_cuda import GROUP, kernel_of, on_cuda, threads_for

READ = (
    GROUP
    + """
    auto read = [](const T* from, long step) {
        if (step == 1) return *reinterpret_cast<const Group*>(from);
        Group group;
        for (int e = 0; e < N; ++e) group.v[e] = from[e * step];
        return group;
    };
    constexpr int GROUPS = SIZE / N;  // in a head
    const long n = (long)blockIdx.x * blockDim.x + threadIdx.x;
    const int i = N * (n % GROUPS);
"""
)

JOIN = (
    READ
    + """
    const int length = q_shape[1], heads = q_shape[2];
    if (n >= (long)q_shape[0] * length * 3 * heads * GROUPS) return;
    const long at = n / GROUPS, token = at / (3 * heads), row = token / length, place = token % length;
    const int part = at % (3 * heads) / heads, head = at % heads;
    const T* from = part == 0 ? q : part == 1 ? k : v;
    const auto& step = part == 0 ? q_strides : part == 1 ? k_strides : v_strides;
    const Group group = read(from + row * step[0] + place * step[1] + head * step[2] + i * step[3], step[3]);
    *reinterpret_cast<Group*>(y + n * N) = group;
"""
)

# Block b of a row has the keys 128 b - 64 to 128 b + 191.
AROUND = (
    READ
    + """
    const int length = x_shape[1], heads = x_shape[2];
    if (n >= (long)x_shape[0] * BLOCKS * 2 * BLOCK * heads * GROUPS) return;
    const long at = n / GROUPS, slot = at / heads, block = slot / (2 * BLOCK), row = block / BLOCKS;
    const int head = at % heads;
    const long place = block % BLOCKS * BLOCK - BLOCK / 2 + slot % (2 * BLOCK);
    Group group = {};
    if (place >= 0 && place < length)
        group = read(x + row * x_strides[0] + place * x_strides[1]
                     + head * x_strides[2] + i * x_strides[3], x_strides[3]);
    *reinterpret_cast<Group*>(y + n * N) = group;
"""
)

AROUND_BACKWARD = (
    READ
    + """
    const int heads = dy_shape[2];
    if (n >= (long)dy_shape[0] / BLOCKS * LENGTH * heads * GROUPS) return;
    const long at = n / GROUPS, token = at / heads, row = token / LENGTH;
    const int head = at % heads, from_start = token % LENGTH + BLOCK / 2;
    float sum[N] = {};
    for (int earlier = 0; earlier < 2; ++earlier) {  // a key is in two blocks, at the two ends in one
        const int block = from_start / BLOCK - earlier;
        if (block < 0 || block >= BLOCKS) continue;
        const long slot = from_start % BLOCK + earlier * BLOCK;
        const Group group = read(dy + (row * BLOCKS + block) * dy_strides[0] + slot * dy_strides[1]
                                 + head * dy_strides[2] + i * dy_strides[3], dy_strides[3]);
        for (int e = 0; e < N; ++e) sum[e] += static_cast<float>(group.v[e]);
    }
    Group group;
    for (int e = 0; e < N; ++e) group.v[e] = static_cast<T>(sum[e]);
    *reinterpret_cast<Group*>(dx + n * N) = group;
"""
)


def heads_fit(x: mx.array) -> bool:
    return on_cuda() and x.ndim == 4 and x.size > 0 and x.shape[-1] % 8 == 0


def _group(x: mx.array) -> int:
    return 16 // x.dtype.size


def join_heads(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
    """Three times [B, T, heads, d] -> [B, T, 3, heads, d]"""
    batch, length, heads, size = q.shape
    (y,) = kernel_of("join_heads", ("q", "k", "v"), ("y",), JOIN, contiguous=False)(
        inputs=[q, k.astype(q.dtype), v.astype(q.dtype)],
        template=[("T", q.dtype), ("SIZE", size), ("N", _group(q))],
        output_shapes=[(batch, length, 3, heads, size)],
        output_dtypes=[q.dtype],
        **threads_for(3 * q.size // _group(q)),
    )
    return y


def around(x: mx.array, block: int) -> mx.array:
    """[B, T, heads, d] -> [B · blocks, 2 · block, heads, d]: the keys around each block of queries, zeros outside."""
    batch, length, heads, size = x.shape
    blocks = -(-length // block)
    (y,) = kernel_of("around", ("x",), ("y",), AROUND, contiguous=False)(
        inputs=[x],
        template=[("T", x.dtype), ("SIZE", size), ("N", _group(x)), ("BLOCK", block), ("BLOCKS", blocks)],
        output_shapes=[(batch * blocks, 2 * block, heads, size)],
        output_dtypes=[x.dtype],
        **threads_for(batch * blocks * 2 * block * heads * size // _group(x)),
    )
    return y


def around_backward(dy: mx.array, block: int, length: int) -> mx.array:
    """[B · blocks, 2 · block, heads, d] -> [B, T, heads, d]: the sum of the two gradients of each key."""
    blocks = -(-length // block)
    batch, heads, size = dy.shape[0] // blocks, *dy.shape[2:]
    (dx,) = kernel_of("around_backward", ("dy",), ("dx",), AROUND_BACKWARD, contiguous=False)(
        inputs=[dy],
        template=[
            ("T", dy.dtype), ("SIZE", size), ("N", _group(dy)), ("BLOCK", block), ("BLOCKS", blocks),
            ("LENGTH", length),
        ],
        output_shapes=[(batch, length, heads, size)],
        output_dtypes=[dy.dtype],
        **threads_for(batch * length * heads * size // _group(dy)),
    )  # fmt: skip
    return dx
