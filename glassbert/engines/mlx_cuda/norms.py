"""Layer norm and its backward, one warp a row, in registers.

The backward needs sums along rows (for dx) and along columns (for gamma and beta): every array is read once, and dx is
written once. Each block adds up its rows in float32 for the sums along columns, and a second launch adds up the
blocks; the order is fixed, so a repeated step gives the same bits.
"""

from __future__ import annotations

import mlx.core as mx

from glassbert.engines.mlx_cuda.launch import GROUP, fits, kernel_of
from glassbert.engines.mlx_cuda.tables import finish_sums

WARPS = 4  # of a block
MULTIPROCESSORS = 132  # of a large GPU
BLOCKS = 8 * MULTIPROCESSORS
MAX_WIDTH = 1_024

# A lane has the groups lane, lane + 32, ... of its row.
ROWS = (
    GROUP
    + """
    constexpr int H = GROUPS * 32 * N;
    const int lane = threadIdx.x % 32;
    const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    const unsigned rows = x_shape[0];
    const float epsilon = eps[0];
    auto total = [](float v) {
        for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffff, v, offset);
        return v;
    };
"""
)

LAYER_NORM = (
    ROWS
    + """
    float scale[GROUPS * N], shift[GROUPS * N];
    for (int g = 0; g < GROUPS; ++g)
        for (int e = 0; e < N; ++e) {
            scale[g * N + e] = static_cast<float>(gamma[(32 * g + lane) * N + e]);
            shift[g * N + e] = SHIFT;
        }
    for (unsigned row = warp; row < rows; row += warps) {
        const Group* from = reinterpret_cast<const Group*>(x + (unsigned long)row * H) + lane;
        Group* to = reinterpret_cast<Group*>(y + (unsigned long)row * H) + lane;
        float v[GROUPS * N];
        float sum = 0.0f;
        for (int g = 0; g < GROUPS; ++g) {
            const Group group = from[32 * g];
            for (int e = 0; e < N; ++e) {
                v[g * N + e] = static_cast<float>(group.v[e]);
                sum += v[g * N + e];
            }
        }
        const float mean = total(sum) / H;
        float square = 0.0f;
        for (int i = 0; i < GROUPS * N; ++i) {
            v[i] -= mean;
            square += v[i] * v[i];
        }
        const float rstd = rsqrtf(total(square) / H + epsilon);
        for (int g = 0; g < GROUPS; ++g) {
            Group group;
            for (int e = 0; e < N; ++e)
                group.v[e] = static_cast<T>(v[g * N + e] * rstd * scale[g * N + e] + shift[g * N + e]);
            to[32 * g] = group;
        }
    }
"""
)

# ADDED is the gradient of a branch around the norm. SUMS is 2 with a gradient of beta, else 1.
LAYER_NORM_BACKWARD = (
    ROWS
    + """
    struct Factors { G v[N]; };
    Factors factors[GROUPS];
    float dgamma[GROUPS * N], dbeta[SUMS == 2 ? GROUPS * N : 1];
    for (int g = 0; g < GROUPS; ++g)
        for (int e = 0; e < N; ++e) factors[g].v[e] = gamma[(32 * g + lane) * N + e];
    for (int i = 0; i < GROUPS * N; ++i) dgamma[i] = 0.0f;
    if constexpr (SUMS == 2)
        for (int i = 0; i < GROUPS * N; ++i) dbeta[i] = 0.0f;
    for (unsigned row = warp; row < rows; row += warps) {
        const unsigned long start = (unsigned long)row * H / N + lane;
        Group xs[GROUPS], ds[GROUPS], added[GROUPS];  // as they are stored, so that wide rows fit into registers
        for (int g = 0; g < GROUPS; ++g) {
            xs[g] = reinterpret_cast<const Group*>(x)[start + 32 * g];
            ds[g] = reinterpret_cast<const Group*>(dy)[start + 32 * g];
            READ_ADDED
        }
        float sum = 0.0f;
        for (int g = 0; g < GROUPS; ++g)
            for (int e = 0; e < N; ++e) sum += static_cast<float>(xs[g].v[e]);
        const float mean = total(sum) / H;
        float square = 0.0f;
        for (int g = 0; g < GROUPS; ++g)
            for (int e = 0; e < N; ++e) {
                const float centred = static_cast<float>(xs[g].v[e]) - mean;
                square += centred * centred;
            }
        const float rstd = rsqrtf(total(square) / H + epsilon);
        float sum_g = 0.0f, sum_gx = 0.0f;
        for (int g = 0; g < GROUPS; ++g)
            for (int e = 0; e < N; ++e) {
                const float x_hat = (static_cast<float>(xs[g].v[e]) - mean) * rstd;
                const float d = static_cast<float>(ds[g].v[e]), dg = d * static_cast<float>(factors[g].v[e]);
                dgamma[g * N + e] += d * x_hat;
                if constexpr (SUMS == 2) dbeta[g * N + e] += d;
                sum_g += dg;
                sum_gx += dg * x_hat;
            }
        const float mean_g = total(sum_g) / H, mean_gx = total(sum_gx) / H;
        for (int g = 0; g < GROUPS; ++g) {
            Group group;
            for (int e = 0; e < N; ++e) {
                const float x_hat = (static_cast<float>(xs[g].v[e]) - mean) * rstd;
                const float dg = static_cast<float>(ds[g].v[e]) * static_cast<float>(factors[g].v[e]);
                group.v[e] = static_cast<T>(rstd * (dg - mean_g - x_hat * mean_gx) + ADDED);
            }
            reinterpret_cast<Group*>(dx)[start + 32 * g] = group;
        }
    }
    __shared__ float block_sums[SUMS * H];
    for (int i = threadIdx.x; i < SUMS * H; i += blockDim.x) block_sums[i] = 0.0f;
    __syncthreads();
    for (int turn = 0; turn < blockDim.x / 32; ++turn) {  // one warp after the other: the same order in every run
        if (turn == threadIdx.x / 32)
            for (int g = 0; g < GROUPS; ++g)
                for (int e = 0; e < N; ++e) {
                    const int column = (32 * g + lane) * N + e;
                    block_sums[column] += dgamma[g * N + e];
                    if constexpr (SUMS == 2) block_sums[H + column] += dbeta[g * N + e];
                }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < SUMS * H; i += blockDim.x) sums[(long)blockIdx.x * SUMS * H + i] = block_sums[i];
"""
)


def norm_fits(x: mx.array) -> bool:
    return fits(x) and x.shape[-1] % 64 == 0 and x.shape[-1] <= MAX_WIDTH


def _groups(width: int) -> list[tuple[str, int]]:
    """How 32 lanes share a row: groups of 8, 4 or 2 numbers, whichever divides it."""
    group = next(group for group in (8, 4, 2) if width % (32 * group) == 0)
    return [("N", group), ("GROUPS", width // (32 * group))]


def layer_norm(x: mx.array, gamma: mx.array, beta: mx.array | None, eps: float) -> mx.array:
    width = x.shape[-1]
    rows = x.size // width
    names, values = ["x", "gamma", "eps"], [x.reshape(rows, width), gamma, mx.array([eps], dtype=mx.float32)]
    if beta is not None:
        names.append("beta")
        values.append(beta)
    name = "layer_norm" if beta is None else "layer_norm_with_beta"
    shift = "0.0f" if beta is None else "static_cast<float>(beta[(32 * g + lane) * N + e])"
    (y,) = kernel_of(name, tuple(names), ("y",), LAYER_NORM.replace("SHIFT", shift))(
        inputs=values,
        template=[("T", x.dtype), *_groups(width)],
        output_shapes=[(rows, width)],
        output_dtypes=[x.dtype],
        **_warps(min(BLOCKS, -(-rows // WARPS))),
    )
    return y.reshape(x.shape)


def layer_norm_backward(
    dy: mx.array, x: mx.array, gamma: mx.array, eps: float, residual: mx.array | None = None, has_beta: bool = True
) -> tuple[mx.array, mx.array, mx.array | None]:
    """dx, dgamma, dbeta; the latter two in float32. `residual` is added to dx."""
    width = x.shape[-1]
    rows, sums = x.size // width, 2 if has_beta else 1
    together = 8 if width <= 256 else 5 if width <= 512 else 3  # blocks whose registers fit into a multiprocessor
    blocks = min(together * MULTIPROCESSORS, -(-rows // WARPS))
    wide = {"x": x, "dy": dy} if residual is None else {"x": x, "dy": dy, "residual": residual}
    inputs = {name: value.reshape(rows, width).astype(x.dtype) for name, value in wide.items()}  # all are read as T
    inputs |= {"gamma": gamma, "eps": mx.array([eps], dtype=mx.float32)}
    name, read, added = "layer_norm_backward", "", "0.0f"
    if residual is not None:
        name, added = "layer_norm_backward_and_residual", "static_cast<float>(added[g].v[e])"
        read = "added[g] = reinterpret_cast<const Group*>(residual)[start + 32 * g];"
    source = LAYER_NORM_BACKWARD.replace("READ_ADDED", read).replace("ADDED", added)
    dx, parts = kernel_of(name, tuple(inputs), ("dx", "sums"), source)(
        inputs=list(inputs.values()),
        template=[("T", x.dtype), ("G", gamma.dtype), *_groups(width), ("SUMS", sums)],
        output_shapes=[(rows, width), (blocks, sums * width)],
        output_dtypes=[x.dtype, mx.float32],
        **_warps(blocks),
    )
    found = mx.split(finish_sums(parts), sums)
    return dx.reshape(x.shape), found[0], found[1] if has_beta else None


def _warps(blocks: int) -> dict[str, tuple[int, int, int]]:
    return {"grid": (blocks * 32 * WARPS, 1, 1), "threadgroup": (32 * WARPS, 1, 1)}
