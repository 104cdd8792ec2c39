"""Rows of a table, sums into rows of one, and sums of columns.

Sums of columns go two ways: blocks add up some rows each in float32, and a second launch adds up what the blocks have.
Both orders are fixed, so a repeated step gives the same bits. Sums into rows of a table are added in any order.
"""

from __future__ import annotations

import mlx.core as mx

from glassbert.engines.mlx_cuda.launch import THREAD, fits, kernel_of, threads_for

THREADS = 256
BLOCKS = 528  # four for each multiprocessor of a large GPU
FINISHED_COLUMNS, FINISHING_WARPS = 32, 32

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

TABLE_ROWS = (
    """
    struct alignas(16) Group { T v[16 / sizeof(T)]; };
"""
    + THREAD
    + """
    constexpr unsigned GROUPS = WIDTH * sizeof(T) / 16;
    const unsigned n = thread / GROUPS;
    if (n >= (unsigned)index_shape[0]) return;
    long row = index[n];
    if (row < 0) row += table_shape[0];
    reinterpret_cast<Group*>(y)[thread] = reinterpret_cast<const Group*>(table)[row * GROUPS + thread % GROUPS];
"""
)

# Four numbers a thread, of a row that is added to a row of a table of COUNT rows.
ADD_ROWS = (
    """
    struct alignas(4 * sizeof(T)) Four { T v[4]; };
"""
    + THREAD
    + """
    constexpr unsigned GROUPS = WIDTH / 4;
    const unsigned n = thread / GROUPS;
    if (n >= (unsigned)index_shape[0]) return;
    long row = index[n];
    if (row < 0) row += COUNT;
    const Four four = reinterpret_cast<const Four*>(rows)[thread];
    float v[4];
    for (int e = 0; e < 4; ++e) v[e] = static_cast<float>(four.v[e]);
    if (v[0] == 0.0f && v[1] == 0.0f && v[2] == 0.0f && v[3] == 0.0f) return;
    const long at = row * WIDTH + 4 * (thread % GROUPS);
"""
)

ADD_FLOATS = """
#if __CUDA_ARCH__ >= 900
    atomicAdd(reinterpret_cast<float4*>(table + at), make_float4(v[0], v[1], v[2], v[3]));
#else
    for (int e = 0; e < 4; ++e) atomicAdd(table + at + e, v[e]);
#endif
"""

ADD_PAIRS = """
    PAIR* to = reinterpret_cast<PAIR*>(table + at);
    atomicAdd(to, PAIR(four.v[0], four.v[1]));
    atomicAdd(to + 1, PAIR(four.v[2], four.v[3]));
"""
PAIRS = {mx.bfloat16: "__nv_bfloat162", mx.float16: "__half2"}


def sums_fit(x: mx.array) -> bool:
    return fits(x) and x.ndim == 2 and x.shape[1] * x.dtype.size % 16 == 0


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
    return finish_sums(sums)


def finish_sums(sums: mx.array) -> mx.array:
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
    return fits(table) and table.ndim == 2 and table.shape[1] * table.dtype.size % 16 == 0


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


def added_rows_fit(rows: mx.array) -> bool:
    return (
        fits(rows) and rows.ndim == 2 and rows.shape[1] % 4 == 0 and (rows.dtype in PAIRS or rows.dtype == mx.float32)
    )


def added_rows(index: mx.array, rows: mx.array, count: int, dtype: mx.Dtype) -> mx.array:
    """A table [count, H] of zeros, with `rows` [M, H] added at `index` [M]; in float32, or in the dtype of the rows."""
    width = rows.shape[1]
    name, adding = "add_rows", ADD_FLOATS
    if dtype in PAIRS:
        name, adding = "add_rows_in_pairs", ADD_PAIRS.replace("PAIR", PAIRS[dtype])
    (table,) = kernel_of(name, ("index", "rows"), ("table",), ADD_ROWS + adding)(
        inputs=[index, rows],
        template=[("T", rows.dtype), ("WIDTH", width), ("COUNT", count)],
        output_shapes=[(count, width)],
        output_dtypes=[dtype],
        init_value=0,
        **threads_for(rows.size // 4),
    )
    return table
