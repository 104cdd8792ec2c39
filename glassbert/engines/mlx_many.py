"""One CUDA launch for many arrays: for optimizers, which treat dozens of small parameters alike.

A model of nine layers has some sixty parameters. With several launches for each of them the host needs longer to start
the kernels of a step than the GPU to run them. Here one kernel gets up to `GROUP` arrays, and each of its threads
visits numbers of all of them.

Only arrays of at most `LARGEST` numbers are taken together. The larger ones keep the GPU busy alone, and MLX's own
kernels write their results into the memory of their inputs, which these kernels cannot.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

GROUP = 24  # arrays in a launch: a kernel has a limited number of arguments
LARGEST = 2**21
THREADS, BLOCKS = 256, 264  # two blocks for each multiprocessor of a large GPU
TYPES = {mx.float32: "float", mx.bfloat16: "__nv_bfloat16"}

SUM_OF_SQUARES = """
    __shared__ float sums[256];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {  // the same order in every run
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) total[blockIdx.x] = sums[0];
"""


def small(array: Any) -> bool:
    return bool(array.size <= LARGEST)


def sum_of_squares(arrays: Sequence[mx.array]) -> mx.array:
    """Σ x² over all numbers of all arrays, in float32."""
    totals = []
    for start in range(0, len(arrays), GROUP):
        group = {f"x{i}": x for i, x in enumerate(arrays[start : start + GROUP])}
        square = "const float v = static_cast<float>({}[j]); sum += v * v;"
        loops = [_loop(x.size, square.format(name)) for name, x in group.items()]
        source = "\n".join(["    float sum = 0.0f;", *loops, SUM_OF_SQUARES])
        totals += _launch("sum_of_squares", group, source, {"total": ((BLOCKS,), mx.float32)}, BLOCKS)
    return (totals[0] if len(totals) == 1 else mx.concatenate(totals)).sum()


def each(
    body: str,
    arrays: Mapping[str, Sequence[mx.array]],
    scalars: Mapping[str, mx.array],
    outputs: Mapping[str, mx.Dtype],
    packed: Mapping[str, mx.Dtype] | None = None,
) -> dict[str, Any]:
    """Run `body` for every number of many arrays, and return the results by name, as lists of arrays.

    body     CUDA statements. They read the names of `arrays` and `scalars`, as floats, and assign the results
    arrays   name -> one array for each parameter; all arrays of a parameter have the same size
    outputs  name -> the dtype of its arrays, which have the shapes of the first arrays
    packed   the same for results that stand behind each other in a single flat array
    """
    packed = packed or {}
    found: dict[str, list[mx.array]] = {name: [] for name in (*outputs, *packed)}
    shapes = [tuple(array.shape) for array in next(iter(arrays.values()))]
    for start in range(0, len(shapes), GROUP):
        group = shapes[start : start + GROUP]
        inputs = {f"in_{name}": value.reshape(1) for name, value in scalars.items()}
        lines = [f"    const float {name} = static_cast<float>(in_{name}[0]);" for name in scalars]
        results: dict[str, tuple[tuple[int, ...], Any]] = {}
        offset = 0
        for i, shape in enumerate(group):
            reads = [f"const float {name} = static_cast<float>(in_{name}{i}[j]);" for name in arrays]
            writes = [_write(f"{name}{i}", "j", name, dtype) for name, dtype in outputs.items()]
            writes += [_write(name, f"j + {offset}L", name, dtype) for name, dtype in packed.items()]
            size = math.prod(shape)
            lines.append(_loop(size, " ".join([*reads, f"float {', '.join(found)};", body, *writes])))
            inputs |= {f"in_{name}{i}": values[start + i] for name, values in arrays.items()}
            results |= {f"out_{name}{i}": (shape, dtype) for name, dtype in outputs.items()}
            offset += size
        results |= {f"out_{name}": ((offset,), dtype) for name, dtype in packed.items()}
        blocks = min(4 * BLOCKS, -(-max(math.prod(shape) for shape in group) // THREADS))
        values = dict(zip(results, _launch("each", inputs, "\n".join(lines), results, blocks), strict=True))
        for name in outputs:
            found[name] += [values[f"out_{name}{i}"] for i in range(len(group))]
        for name in packed:
            found[name].append(values[f"out_{name}"])
    joined = {name: found[name][0] if len(found[name]) == 1 else mx.concatenate(found[name]) for name in packed}
    return {**found, **joined}


def _write(array: str, index: str, value: str, dtype: Any) -> str:
    return f"out_{array}[{index}] = static_cast<{TYPES[dtype]}>({value});"


def _loop(size: int, body: str) -> str:
    return (
        f"    for (long j = (long)blockIdx.x * blockDim.x + threadIdx.x; j < {size}L; "
        f"j += (long)gridDim.x * blockDim.x) {{ {body} }}"
    )


def _launch(
    name: str,
    inputs: Mapping[str, mx.array],
    source: str,
    results: Mapping[str, tuple[tuple[int, ...], Any]],
    blocks: int,
) -> list[mx.array]:
    found: list[mx.array] = _kernel(name, tuple(inputs), tuple(results), source)(
        inputs=list(inputs.values()),
        grid=(blocks * THREADS, 1, 1),
        threadgroup=(THREADS, 1, 1),
        output_shapes=[shape for shape, _ in results.values()],
        output_dtypes=[dtype for _, dtype in results.values()],
    )
    return found


@functools.cache
def _kernel(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], source: str) -> Any:
    # MLX keeps compiled kernels by their names, also on disk, so that every source needs its own.
    own = f"glassbert_{name}_{zlib.crc32(repr((inputs, outputs, source)).encode()):08x}"
    return mx.fast.cuda_kernel(name=own, input_names=list(inputs), output_names=list(outputs), source=source)
