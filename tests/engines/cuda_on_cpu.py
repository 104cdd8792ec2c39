"""Runs the source of our CUDA kernels on a CPU, by the C++ compiler of this machine: what they compute, not how fast.

A block's threads are fibers that run in turns; a shuffle waits for the warp, and `__syncthreads` for the block.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

COMPILER = shutil.which("g++")
CPP_TYPES = {
    mx.float32: "float", mx.bfloat16: "__nv_bfloat16", mx.int32: "int", mx.int64: "long", mx.uint32: "unsigned",
    mx.bool_: "bool",
}  # fmt: skip
NUMPY_TYPES = {mx.float32: np.float32, mx.int32: np.int32, mx.int64: np.int64, mx.uint32: np.uint32, mx.bool_: np.bool_}

RUNTIME = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#include <ucontext.h>

#define __CUDA_ARCH__ 900
#define __shared__ static
struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    explicit __nv_bfloat16(float v) {
        uint32_t u;
        memcpy(&u, &v, 4);
        bits = v != v ? 0x7fff : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    }
    explicit operator float() const {
        uint32_t u = (uint32_t)bits << 16;
        float v;
        memcpy(&v, &u, 4);
        return v;
    }
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
};
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };

// Fibers, and barriers between them.
static ucontext_t scheduler;
static std::vector<ucontext_t> contexts;
static std::vector<char> finished;
static unsigned current;
struct Barrier { unsigned arrived = 0, generation = 0; };
static Barrier block_barrier, warp_barriers[64];
static float lanes[64][32];

static void wait_at(Barrier& barrier, unsigned count) {
    const unsigned generation = barrier.generation;
    if (++barrier.arrived == count) {
        barrier.arrived = 0;
        ++barrier.generation;
        return;
    }
    const unsigned self = current;
    while (barrier.generation == generation) swapcontext(&contexts[self], &scheduler);
}
static void __syncthreads() { wait_at(block_barrier, blockDim.x); }
static float __shfl_xor_sync(unsigned, float v, int mask) {
    const unsigned warp = current / 32, lane = current % 32;
    lanes[warp][lane] = v;
    wait_at(warp_barriers[warp], 32);
    const float other = lanes[warp][lane ^ mask];
    wait_at(warp_barriers[warp], 32);
    return other;
}

static float normcdff(float v) { return 0.5f * erfcf(-v * 0.70710678f); }
#define __expf expf  // glibc has a function of that name
static float __fdividef(float a, float b) { return a / b; }
static float rsqrtf(float v) { return 1.0f / sqrtf(v); }
static float __int_as_float(unsigned u) { float v; memcpy(&v, &u, 4); return v; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static void atomicAdd(float* to, float v) { *to += v; }
static void atomicAdd(float4* to, float4 v) { to->x += v.x; to->y += v.y; to->z += v.z; to->w += v.w; }
static void atomicAdd(__nv_bfloat162* to, __nv_bfloat162 v) {
    to->x = __nv_bfloat16(float(to->x) + float(v.x));
    to->y = __nv_bfloat16(float(to->y) + float(v.y));
}
using std::isnan;
"""

LAUNCH = r"""
static void** arguments;
static void enter() {
    CALL
    finished[current] = 1;
    swapcontext(&contexts[current], &scheduler);
}
extern "C" void launch(void** given, unsigned gx, unsigned gy, unsigned gz, unsigned bx) {
    arguments = given;
    blockDim = {bx, 1, 1};
    gridDim = {gx, gy, gz};
    std::vector<std::vector<char>> stacks(bx, std::vector<char>(1 << 16));
    contexts.resize(bx);
    finished.resize(bx);
    for (unsigned z = 0; z < gz; ++z) for (unsigned y = 0; y < gy; ++y) for (unsigned x = 0; x < gx; ++x) {
        block_barrier = {};
        for (auto& barrier : warp_barriers) barrier = {};
        for (unsigned i = 0; i < bx; ++i) {
            finished[i] = 0;
            getcontext(&contexts[i]);
            contexts[i].uc_stack.ss_sp = stacks[i].data();
            contexts[i].uc_stack.ss_size = stacks[i].size();
            contexts[i].uc_link = &scheduler;
            makecontext(&contexts[i], enter, 0);
        }
        for (bool running = true; running;) {
            running = false;
            for (unsigned i = 0; i < bx; ++i) {
                if (finished[i]) continue;
                running = true;
                current = i;
                threadIdx = {i, 0, 0};
                blockIdx = {x, y, z};
                swapcontext(&scheduler, &contexts[i]);
            }
        }
    }
}
"""


def _seen(array: mx.array) -> np.ndarray:
    """The numbers of an array with the strides that it has in memory; bfloat16 as its bits."""
    mx.eval(array)
    return np.asarray(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)


def _aligned(values: np.ndarray, contiguous: bool = True) -> np.ndarray:
    """A copy at a multiple of 64 bytes, as GPU memory has it, with the same strides where they are wanted."""
    strides = values[...].copy().strides if contiguous else values.strides
    size = sum((n - 1) * step for n, step in zip(values.shape, strides, strict=True)) + values.itemsize
    room = np.zeros(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    flat = room[start : start + size].view(values.dtype)
    copy = np.lib.stride_tricks.as_strided(flat, values.shape, strides)
    copy[...] = values
    return copy


def _template_argument(value: Any) -> tuple[str, str]:
    if isinstance(value, mx.Dtype):
        return "typename", CPP_TYPES[value]
    return ("bool", str(value).lower()) if isinstance(value, bool) else ("int", str(value))


class Kernel:
    """Stands for what `mx.fast.cuda_kernel` returns."""

    def __init__(
        self,
        folder: Path,
        name: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        source: str,
        contiguous: bool = True,
    ):
        self.folder, self.name, self.inputs, self.outputs = folder, name, inputs, outputs
        self.source, self.contiguous = source, contiguous

    def __call__(
        self,
        inputs: list[mx.array],
        output_shapes: list[tuple[int, ...]],
        output_dtypes: list[mx.Dtype],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: list[tuple[str, Any]] | None = None,
        init_value: float | None = None,
    ) -> list[mx.array]:
        arrays = [_aligned(_seen(array), self.contiguous) for array in inputs]
        kinds = [NUMPY_TYPES.get(dtype, np.uint16) for dtype in output_dtypes]
        filling = 171 if init_value is None else init_value  # of what is not written: nonsense
        results = [_aligned(np.full(s, filling, k)) for s, k in zip(output_shapes, kinds, strict=True)]
        launch = self._library(tuple(template or ()), tuple(a.dtype for a in inputs), tuple(output_dtypes))
        keep: list[Any] = []
        for array in arrays:
            steps = [stride // array.itemsize for stride in array.strides]
            keep += [array, np.array(array.shape, np.int32), np.array(steps, np.int64)]
        keep += results
        pointers = (ctypes.c_void_p * len(keep))(*(array.ctypes.data for array in keep))
        blocks = [-(-size // threads) for size, threads in zip(grid, threadgroup, strict=True)]
        launch(pointers, *blocks, threadgroup[0])
        found = [mx.array(result) for result in results]
        return [x.view(mx.bfloat16) if d == mx.bfloat16 else x for x, d in zip(found, output_dtypes, strict=True)]

    @functools.cache  # noqa: B019 (lives as long as the tests)
    def _library(self, template: Any, in_types: Any, out_types: Any) -> Any:
        given = [(name, *_template_argument(value)) for name, value in template]
        declared, call = [], []
        for i, (name, dtype) in enumerate(zip(self.inputs, in_types, strict=True)):
            declared += [f"const {CPP_TYPES[dtype]}* {name}", f"const int* {name}_shape", f"const long* {name}_strides"]
            call += [f"(const {CPP_TYPES[dtype]}*)arguments[{3 * i}]"]
            call += [f"(const int*)arguments[{3 * i + 1}]", f"(const long*)arguments[{3 * i + 2}]"]
        for i, (name, dtype) in enumerate(zip(self.outputs, out_types, strict=True)):
            declared.append(f"{CPP_TYPES[dtype]}* {name}")
            call.append(f"({CPP_TYPES[dtype]}*)arguments[{3 * len(self.inputs) + i}]")
        head = f"template <{', '.join(f'{kind} {name}' for name, kind, _ in given)}>\n" if given else ""
        chosen = f"<{', '.join(value for *_, value in given)}>" if given else ""
        code = f"{RUNTIME}\n{head}static void kernel({', '.join(declared)}) {{\n{self.source}\n}}\n"
        code += LAUNCH.replace("CALL", f"kernel{chosen}({', '.join(call)});")
        name = hashlib.sha1(code.encode()).hexdigest()[:16]
        library = self.folder / f"{name}.so"
        if not library.exists():
            file = self.folder / f"{name}.cpp"
            file.write_text(code)
            command = [str(COMPILER), "-std=c++17", "-O1", "-fno-strict-aliasing", "-fPIC", "-shared", "-w"]
            done = subprocess.run([*command, str(file), "-o", str(library)], capture_output=True, text=True)
            assert not done.returncode, f"the kernel {self.name} does not compile:\n{done.stderr[:4000]}"
        return ctypes.CDLL(str(library)).launch
