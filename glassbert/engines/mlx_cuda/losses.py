"""Cross-entropy, one block a row: the scores are read once in the forward, and once in the backward.

Rows of an odd vocabulary do not begin at a multiple of 16 bytes, so the groups that a thread reads are as wide as the
number of columns allows.
"""

from __future__ import annotations

import mlx.core as mx

from glassbert.engines.mlx_cuda.launch import GROUP, fits, kernel_of

THREADS = 256

EXPONENTIAL = """
    auto exponential = [](float v) {
        if constexpr (sizeof(T) > 2) return expf(v);
        return __expf(v);
    };
    constexpr int GROUPS = COLUMNS / N;
    const float nothing = __int_as_float(0xff800000);  // minus infinity
    const unsigned row = blockIdx.x;
    const Group* from = reinterpret_cast<const Group*>(scores + (unsigned long)row * COLUMNS);
"""

# Every thread has the largest of its scores, and the sum of exp(score - largest); then warps and blocks merge these.
CROSS_ENTROPY = (
    GROUP
    + EXPONENTIAL
    + """
    float most = nothing, sum = 0.0f;
    auto merge = [&](float other_most, float other_sum) {
        const float both = fmaxf(most, other_most);
        if (both == nothing) return;
        sum = sum * exponential(most - both) + other_sum * exponential(other_most - both);
        most = both;
    };
    #pragma unroll 4
    for (int g = threadIdx.x; g < GROUPS; g += THREADS) {
        const Group group = from[g];
        float v[N], largest = nothing, part = 0.0f;
        for (int e = 0; e < N; ++e) {
            v[e] = static_cast<float>(group.v[e]);
            largest = fmaxf(largest, v[e]);
        }
        for (int e = 0; e < N; ++e) part += exponential(v[e] - largest);
        merge(largest, part);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other_most = __shfl_xor_sync(0xffffffff, most, offset);
        const float other_sum = __shfl_xor_sync(0xffffffff, sum, offset);
        merge(other_most, other_sum);
    }
    __shared__ float warp_most[THREADS / 32], warp_sum[THREADS / 32];
    if (threadIdx.x % 32 == 0) {
        warp_most[threadIdx.x / 32] = most;
        warp_sum[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; ++w) merge(warp_most[w], warp_sum[w]);
        const float log_sum = most + logf(sum);
        logs[row] = log_sum;
        losses[row] = log_sum - static_cast<float>(scores[(unsigned long)row * COLUMNS + targets[row]]);
    }
"""
)

# A row without a target has the weight 0; its scores are not read.
CROSS_ENTROPY_BACKWARD = (
    GROUP
    + EXPONENTIAL
    + """
    Group* to = reinterpret_cast<Group*>(dscores + (unsigned long)row * COLUMNS);
    const float weight = weights[row], log_sum = logs[row];
    const int target = targets[row];
    #pragma unroll 4
    for (int g = threadIdx.x; g < GROUPS; g += THREADS) {
        Group result = {};
        if (weight != 0.0f) {
            const Group group = from[g];
            for (int e = 0; e < N; ++e) {
                const float p = exponential(static_cast<float>(group.v[e]) - log_sum);
                result.v[e] = static_cast<T>((p - (g * N + e == target ? 1.0f : 0.0f)) * weight);
            }
        }
        to[g] = result;
    }
"""
)


def cross_entropy_fits(scores: mx.array) -> bool:
    return fits(scores) and scores.ndim == 2


def _template(scores: mx.array) -> list[tuple[str, object]]:
    columns = scores.shape[1]
    group = next(group for group in (16 // scores.dtype.size, 4, 2, 1) if columns % group == 0)
    return [("T", scores.dtype), ("N", group), ("COLUMNS", columns), ("THREADS", THREADS)]


def cross_entropy(scores: mx.array, targets: mx.array) -> tuple[mx.array, mx.array]:
    """[M, V] and [M] -> the loss of each row, and log Σ exp(scores) for the backward; both [M] in float32."""
    rows = scores.shape[0]
    losses, logs = kernel_of("cross_entropy", ("scores", "targets"), ("losses", "logs"), CROSS_ENTROPY)(
        inputs=[scores, targets],
        template=_template(scores),
        grid=(rows * THREADS, 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[(rows,), (rows,)],
        output_dtypes=[mx.float32, mx.float32],
    )
    return losses, logs


def cross_entropy_backward(weights: mx.array, scores: mx.array, targets: mx.array, logs: mx.array) -> mx.array:
    """weights [M]: the gradient of each row's loss -> [M, V]"""
    names = ("weights", "scores", "targets", "logs")
    (dscores,) = kernel_of("cross_entropy_backward", names, ("dscores",), CROSS_ENTROPY_BACKWARD)(
        inputs=[weights.astype(mx.float32), scores, targets, logs],
        template=_template(scores),
        grid=(scores.shape[0] * THREADS, 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[scores.shape],
        output_dtypes=[scores.dtype],
    )
    return dscores
