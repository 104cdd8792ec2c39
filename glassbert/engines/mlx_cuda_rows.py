"""CUDA kernels over rows: layer norm and its backward, sums of columns, rows of a table.

MLX's own kernels read single numbers here, where pairs or groups of 16 bytes fit, or need more launches. A layer norm
is computed by one warp a row, in registers. Its backward needs sums along rows (for dx) and along columns (for gamma
and beta): x and dy are read once, and dx is written once.

Sums of columns go two ways: blocks add up some rows each in float32, and a second launch adds up what the blocks have.
Both orders are fixed, so a repeated step gives the same bits.
"""

from __future__ import annotations

import mlx.core as mx

from glassbert.engines.mlx_cuda import kernel_of, on_cuda, threads_for

WARPS = 8  # of a block
THREADS = 32 * WARPS
BLOCKS = 528  # four for each multiprocessor of a large GPU
MAX_WIDTH = 1_024  # of a layer norm
FINISHED_COLUMNS, FINISHING_WARPS = 32, 32

TWO = "    struct alignas(2 * sizeof(T)) Two { T v[2]; };\n"

ROW_STATISTICS = """
    constexpr int H = PAIRS * 64;
    const int lane = threadIdx.x % 32;
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int warps = gridDim.x * blockDim.x / 32;
    const int rows = x_shape[0];
    const float epsilon = eps[0];
    auto total = [](float v) {
        for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffff, v, offset);
        return v;
    };
"""

LAYER_NORM = (
    TWO
    + ROW_STATISTICS
    + """
    float scale[2 * PAIRS], shift[2 * PAIRS];
    for (int p = 0; p < PAIRS; ++p)
        for (int e = 0; e < 2; ++e) {
            scale[2 * p + e] = static_cast<float>(gamma[64 * p + 2 * lane + e]);
            shift[2 * p + e] = SHIFT;
        }
    for (int row = warp; row < rows; row += warps) {
        const Two* from = reinterpret_cast<const Two*>(x + (long)row * H) + lane;
        Two* to = reinterpret_cast<Two*>(y + (long)row * H) + lane;
        float v[2 * PAIRS];
        float sum = 0.0f;
        for (int p = 0; p < PAIRS; ++p) {
            const Two two = from[32 * p];
            for (int e = 0; e < 2; ++e) {
                v[2 * p + e] = static_cast<float>(two.v[e]);
                sum += v[2 * p + e];
            }
        }
        const float mean = total(sum) / H;
        float square = 0.0f;
        for (int i = 0; i < 2 * PAIRS; ++i) {
            v[i] -= mean;
            square += v[i] * v[i];
        }
        const float rstd = rsqrtf(total(square) / H + epsilon);
        for (int p = 0; p < PAIRS; ++p) {
            Two two;
            for (int e = 0; e < 2; ++e)
                two.v[e] = static_cast<T>(v[2 * p + e] * rstd * scale[2 * p + e] + shift[2 * p + e]);
            to[32 * p] = two;
        }
    }
"""
)

LAYER_NORM_BACKWARD = (
    TWO
    + ROW_STATISTICS
    + """
    float dgamma[2 * PAIRS], dbeta[2 * PAIRS];
    for (int i = 0; i < 2 * PAIRS; ++i) dgamma[i] = dbeta[i] = 0.0f;
    for (int row = warp; row < rows; row += warps) {
        const Two* x_row = reinterpret_cast<const Two*>(x + (long)row * H) + lane;
        const Two* dy_row = reinterpret_cast<const Two*>(dy + (long)row * H) + lane;
        Two xs[PAIRS], ds[PAIRS];  // as they are stored, so that wide rows fit into registers
        for (int p = 0; p < PAIRS; ++p) {
            xs[p] = x_row[32 * p];
            ds[p] = dy_row[32 * p];
        }
        float sum = 0.0f;
        for (int p = 0; p < PAIRS; ++p)
            for (int e = 0; e < 2; ++e) sum += static_cast<float>(xs[p].v[e]);
        const float mean = total(sum) / H;
        float square = 0.0f;
        for (int p = 0; p < PAIRS; ++p)
            for (int e = 0; e < 2; ++e) {
                const float centred = static_cast<float>(xs[p].v[e]) - mean;
                square += centred * centred;
            }
        const float rstd = rsqrtf(total(square) / H + epsilon);
        float sum_g = 0.0f, sum_gx = 0.0f;
        for (int p = 0; p < PAIRS; ++p)
            for (int e = 0; e < 2; ++e) {
                const float x_hat = (static_cast<float>(xs[p].v[e]) - mean) * rstd;
                const float d = static_cast<float>(ds[p].v[e]);
                const float g = d * static_cast<float>(gamma[64 * p + 2 * lane + e]);
                dgamma[2 * p + e] += d * x_hat;
                dbeta[2 * p + e] += d;
                sum_g += g;
                sum_gx += g * x_hat;
            }
        const float mean_g = total(sum_g) / H, mean_gx = total(sum_gx) / H;
        Two* to = reinterpret_cast<Two*>(dx + (long)row * H) + lane;
        for (int p = 0; p < PAIRS; ++p) {
            Two two;
            for (int e = 0; e < 2; ++e) {
                const float x_hat = (static_cast<float>(xs[p].v[e]) - mean) * rstd;
                const float g = static_cast<float>(ds[p].v[e]) * static_cast<float>(gamma[64 * p + 2 * lane + e]);
                two.v[e] = static_cast<T>(rstd * (g - mean_g - x_hat * mean_gx) + RESIDUAL);
            }
            to[32 * p] = two;
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
)

COLUMN_SUMS = """
    constexpr int N = 16 / sizeof(T);
    struct alignas(16) Group { T v[N]; };
    constexpr int SLOTS = 256 / LANES;  // rows that a block reads at once
    const int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
    const int rows = x_shape[0], width = x_shape[1];
    const int first = N * LANES * blockIdx.x, column = first + N * lane;
    float sum[N] = {};
    if (slot < SLOTS && column < width) {
        #pragma unroll 4
        for (int row = slot + SLOTS * blockIdx.y; row < rows; row += SLOTS * gridDim.y) {
            const Group group = *reinterpret_cast<const Group*>(x + (long)row * width + column);
            for (int e = 0; e < N; ++e) sum[e] += static_cast<float>(group.v[e]);
        }
    }
    __shared__ float found[256 * N];
    for (int e = 0; e < N; ++e) found[N * threadIdx.x + e] = sum[e];
    __syncthreads();
    for (int i = threadIdx.x; i < N * LANES && first + i < width; i += 256) {
        float total = 0.0f;
        for (int s = 0; s < SLOTS; ++s) total += found[N * LANES * s + i];
        sums[(long)blockIdx.y * width + first + i] = total;
    }
"""

FINISH = """
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int parts = sums_shape[0], width = sums_shape[1];
    const int column = 32 * blockIdx.x + lane;
    float sum = 0.0f;
    if (column < width) {
        #pragma unroll 4
        for (int part = warp; part < parts; part += 32) sum += sums[(long)part * width + column];
    }
    __shared__ float found[32][33];
    found[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < width) {
        sum = 0.0f;
        for (int w = 0; w < 32; ++w) sum += found[w][lane];
        total[column] = sum;
    }
"""

TABLE_ROWS = """
    struct alignas(16) Group { T v[16 / sizeof(T)]; };
    constexpr int GROUPS = WIDTH * sizeof(T) / 16;
    const long n = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= (long)index_shape[0] * GROUPS) return;
    long row = index[n / GROUPS];
    if (row < 0) row += table_shape[0];
    reinterpret_cast<Group*>(y)[n] = reinterpret_cast<const Group*>(table)[row * GROUPS + n % GROUPS];
"""


def norm_fits(x: mx.array) -> bool:
    return on_cuda() and x.shape[-1] % 64 == 0 and x.shape[-1] <= MAX_WIDTH


def layer_norm(x: mx.array, gamma: mx.array, beta: mx.array | None, eps: float) -> mx.array:
    width = x.shape[-1]
    rows = x.size // width
    names, values = ["x", "gamma", "eps"], [x.reshape(rows, width), gamma, mx.array([eps], dtype=mx.float32)]
    if beta is not None:
        names.append("beta")
        values.append(beta)
    name = "layer_norm" if beta is None else "layer_norm_with_beta"
    shift = "0.0f" if beta is None else "static_cast<float>(beta[64 * p + 2 * lane + e])"
    (y,) = kernel_of(name, tuple(names), ("y",), LAYER_NORM.replace("SHIFT", shift))(
        inputs=values,
        template=[("T", x.dtype), ("PAIRS", width // 64)],
        output_shapes=[(rows, width)],
        output_dtypes=[x.dtype],
        **_warps(min(BLOCKS, -(-rows // WARPS))),
    )
    return y.reshape(x.shape)


def layer_norm_backward(
    dy: mx.array, x: mx.array, gamma: mx.array, eps: float, residual: mx.array | None = None
) -> tuple[mx.array, mx.array, mx.array]:
    """dx, dgamma, dbeta; the latter two in float32. `residual` is added to dx."""
    width = x.shape[-1]
    rows = x.size // width
    blocks = min(BLOCKS, -(-rows // WARPS))
    wide = {"x": x, "dy": dy} if residual is None else {"x": x, "dy": dy, "residual": residual}
    inputs = {name: value.reshape(rows, width).astype(x.dtype) for name, value in wide.items()}  # all are read as T
    inputs |= {"gamma": gamma, "eps": mx.array([eps], dtype=mx.float32)}
    name = "layer_norm_backward" if residual is None else "layer_norm_backward_and_residual"
    added = "0.0f" if residual is None else "static_cast<float>(residual[(long)row * H + 64 * p + 2 * lane + e])"
    kernel = kernel_of(name, tuple(inputs), ("dx", "sums"), LAYER_NORM_BACKWARD.replace("RESIDUAL", added))
    dx, sums = kernel(
        inputs=list(inputs.values()),
        template=[("T", x.dtype), ("PAIRS", width // 64)],
        output_shapes=[(rows, width), (blocks, 2 * width)],
        output_dtypes=[x.dtype, mx.float32],
        **_warps(blocks),
    )
    dgamma, dbeta = mx.split(_finish(sums), 2)
    return dx.reshape(x.shape), dgamma, dbeta


def sums_fit(x: mx.array) -> bool:
    return on_cuda() and x.ndim == 2 and x.size > 0 and x.shape[1] * x.dtype.size % 16 == 0


def column_sums(x: mx.array) -> mx.array:
    """[N, W] -> [W] in float32."""
    rows, width = x.shape
    groups = width * x.dtype.size // 16  # of 16 bytes in a row
    lanes = min(groups, THREADS)
    across = -(-groups // lanes)
    parts = max(1, min(-(-rows // (8 * (THREADS // lanes))), BLOCKS // across))
    (sums,) = kernel_of("column_sums", ("x",), ("sums",), COLUMN_SUMS)(
        inputs=[x],
        template=[("T", x.dtype), ("LANES", lanes)],
        grid=(across * THREADS, parts, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[(parts, width)],
        output_dtypes=[mx.float32],
    )
    return _finish(sums)


def _finish(sums: mx.array) -> mx.array:
    """[parts, W] -> [W]"""
    if sums.shape[0] == 1:
        return sums.reshape(-1)
    width = sums.shape[1]
    threads = 32 * FINISHING_WARPS
    (total,) = kernel_of("finish_sums", ("sums",), ("total",), FINISH)(
        inputs=[sums],
        grid=(-(-width // FINISHED_COLUMNS) * threads, 1, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[(width,)],
        output_dtypes=[mx.float32],
    )
    return total


def table_fits(table: mx.array) -> bool:
    return on_cuda() and table.ndim == 2 and table.size > 0 and table.shape[1] * table.dtype.size % 16 == 0


def table_rows(table: mx.array, index: mx.array) -> mx.array:
    """table[index]: [V, H] and [...] -> [..., H]"""
    width, count = table.shape[1], index.size
    (y,) = kernel_of("table_rows", ("table", "index"), ("y",), TABLE_ROWS)(
        inputs=[table, index.reshape(-1)],
        template=[("T", table.dtype), ("WIDTH", width)],
        output_shapes=[(count, width)],
        output_dtypes=[table.dtype],
        **threads_for(count * width * table.dtype.size // 16),
    )
    return y.reshape(*index.shape, width)


def _warps(blocks: int) -> dict[str, tuple[int, int, int]]:
    return {"grid": (blocks * THREADS, 1, 1), "threadgroup": (THREADS, 1, 1)}
