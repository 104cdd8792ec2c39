"""Kernels from CUDA source, and what their sources share.

A thread reads and writes a group of numbers at once, 16 bytes where rows allow it. Counters are 32-bit integers, since
divisions of 64-bit ones cost more than what most of these kernels compute; only addresses are 64 bits wide.
"""

from __future__ import annotations

import functools
import zlib
from typing import Any

import mlx.core as mx

GROUP = "    struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Group { T v[N]; };\n"  # read and written at once
THREAD = "    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;\n"
MOST_NUMBERS = 2**31


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


def fits(x: mx.array) -> bool:
    """Whether an array is on CUDA, has any numbers, and few enough for 32-bit counters."""
    return on_cuda() and 0 < x.size < MOST_NUMBERS


def threads_for(count: int) -> dict[str, tuple[int, int, int]]:
    return {"grid": (-(-count // 256) * 256, 1, 1), "threadgroup": (256, 1, 1)}
