"""Heads: rotary positions; queries, keys and values side by side; and the keys around blocks of a window.

The arrays come from other kernels with any strides, so a group of numbers is read at once only where it is contiguous.
MLX would copy each part by a launch of its own, a number at a time, and fill paddings before.
"""

from __future__ import annotations

import mlx.core as mx

from glassbert.engines.mlx_cuda.launch import GROUP, THREAD, fits, kernel_of, threads_for

ROTARY = (
    GROUP
    + THREAD
    + """
    struct alignas(N * 4 < 16 ? N * 4 : 16) Angles { float v[N]; };
    constexpr unsigned HALF = SIZE / 2;
    const unsigned length = x_shape[1], heads = x_shape[2];
    const unsigned head = thread / (HALF / N), i = N * (thread % (HALF / N));
    const unsigned token = head / heads, row = token / length;
    if (row >= (unsigned)x_shape[0]) return;
    const unsigned place = token - row * length;
    const T* from = x + row * x_strides[0] + place * x_strides[1] + (head - token * heads) * x_strides[2] + i;
    const Group one = *reinterpret_cast<const Group*>(from), two = *reinterpret_cast<const Group*>(from + HALF);
    const unsigned long angle = (cos_shape[0] > 1 ? token : place) * (unsigned long)HALF + i;
    const Angles c = *reinterpret_cast<const Angles*>(cos + angle), s = *reinterpret_cast<const Angles*>(sin + angle);
    Group turned_one, turned_two;
    for (int e = 0; e < N; ++e) {
        const float a = static_cast<float>(one.v[e]), b = static_cast<float>(two.v[e]);
        turned_one.v[e] = static_cast<T>(a * c.v[e] - b * s.v[e]);
        turned_two.v[e] = static_cast<T>(b * c.v[e] + a * s.v[e]);
    }
    T* to = y + head * (unsigned long)SIZE + i;
    *reinterpret_cast<Group*>(to) = turned_one;
    *reinterpret_cast<Group*>(to + HALF) = turned_two;
"""
)

READ = (
    GROUP
    + THREAD
    + """
    auto read = [](const T* from, long step) {
        if (step == 1) return *reinterpret_cast<const Group*>(from);
        Group group;
        for (int e = 0; e < N; ++e) group.v[e] = from[e * step];
        return group;
    };
    constexpr unsigned GROUPS = SIZE / N;  // in a head
    const unsigned at = thread / GROUPS, i = N * (thread % GROUPS);
"""
)


def _group_at(x: str) -> str:
    """C++: the group of an array [B, T, heads, d] at row, place, head and i."""
    at = " + ".join(f"{index} * {x}_strides[{axis}]" for axis, index in enumerate(("row", "place", "head", "i")))
    return f"read({x} + {at}, {x}_strides[3])"


JOIN = (
    READ
    + f"""
    const unsigned length = q_shape[1], heads = q_shape[2];
    const unsigned token = at / (3 * heads), row = token / length, place = token - row * length;
    if (row >= (unsigned)q_shape[0]) return;
    const unsigned slot = at - token * 3 * heads, part = slot / heads, head = slot - part * heads;
    reinterpret_cast<Group*>(y)[thread] =
        part == 0 ? {_group_at("q")} : part == 1 ? {_group_at("k")} : {_group_at("v")};
"""
)

# Block b of a row has the keys 128 b - 64 to 128 b + 191.
AROUND = (
    READ
    + """
    const unsigned length = x_shape[1], heads = x_shape[2];
    const unsigned slot = at / heads, head = at - slot * heads, block = slot / (2 * BLOCK), row = block / BLOCKS;
    if (row >= (unsigned)x_shape[0]) return;
    const int place = (int)(block % BLOCKS * BLOCK + slot % (2 * BLOCK)) - BLOCK / 2;
    Group group = {};
    if (place >= 0 && place < (int)length) group = GROUP_AT;
    reinterpret_cast<Group*>(y)[thread] = group;
"""
).replace("GROUP_AT", _group_at("x"))

AROUND_BACKWARD = (
    READ
    + """
    const unsigned heads = dy_shape[2], token = at / heads, head = at - token * heads, row = token / LENGTH;
    if (row >= (unsigned)dy_shape[0] / BLOCKS) return;
    const int from_start = token % LENGTH + BLOCK / 2;
    float sum[N] = {};
    for (int earlier = 0; earlier < 2; ++earlier) {  // a key is in two blocks, at the two ends in one
        const int block = from_start / BLOCK - earlier;
        if (block < 0 || block >= BLOCKS) continue;
        const long slot = from_start % BLOCK + earlier * BLOCK;
        const Group group = read(dy + ((long)row * BLOCKS + block) * dy_strides[0] + slot * dy_strides[1]
                                 + head * dy_strides[2] + i * dy_strides[3], dy_strides[3]);
        for (int e = 0; e < N; ++e) sum[e] += static_cast<float>(group.v[e]);
    }
    Group group;
    for (int e = 0; e < N; ++e) group.v[e] = static_cast<T>(sum[e]);
    reinterpret_cast<Group*>(dx)[thread] = group;
"""
)


def rotary_fits(x: mx.array) -> bool:
    return fits(x) and x.shape[-1] % 4 == 0


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


def heads_fit(x: mx.array) -> bool:
    return fits(x) and x.ndim == 4 and x.shape[-1] % 8 == 0


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
