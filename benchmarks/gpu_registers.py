"""What NVIDIA's compiler makes of our CUDA kernels, on a machine without a GPU: registers, local memory, errors.

    pip install nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96
    python -m benchmarks.gpu_registers [--architecture sm_90] [--json [FILE]]

MLX compiles the kernels with NVRTC on the user's machine, so that an error in their source shows only there. NVRTC
itself needs no GPU. Each kernel is compiled for arrays like those of Mini, Larger, BERT-base and ModernBERT-base. A
kernel that needs local memory keeps something in a place where it is slow; many registers leave room for few threads.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import site
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import Table, add_json_option, progress, require, run_program, show_json

NAMES = {"float32": "float", "bfloat16": "__nv_bfloat16", "int32": "int", "int64": "long"}
# MLX declares shapes and strides of the inputs in the same way, as arrays of ten numbers.
BEFORE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <typename T> struct Ten { T v[10]; __device__ T operator[](int i) const { return v[i]; } };
"""
REGISTERS = re.compile(r"Used (\d+) registers")
LOCAL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores")


class Compiler:
    """NVRTC, from its wheel."""

    def __init__(self, architecture: str):
        places = [Path(place) for place in (*site.getsitepackages(), site.getusersitepackages())]
        libraries = [file for place in places for file in place.glob("nvidia/*/lib/libnvrtc.so.*")]
        headers = [file.parent for place in places for file in place.glob("nvidia/*/include/cuda_bf16.h")]
        if not libraries or not headers:
            raise SystemExit(
                "this program needs NVRTC and CUDA's headers: pip install nvidia-cuda-nvrtc==13.0.88 "
                "nvidia-cuda-runtime==13.0.96"
            )
        for file in libraries[0].parent.glob("libnvrtc-builtins.so.*"):  # NVRTC looks for it only where the system does
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(libraries[0]))
        self.options = [f"--gpu-architecture={architecture}", "--std=c++20", "--ptxas-options=-v"]
        self.options += [f"--include-path={folder}" for folder in headers]

    def compile(self, source: str) -> tuple[bool, str]:
        """Whether it compiles, and the log."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        options = (ctypes.c_char_p * len(self.options))(*(option.encode() for option in self.options))
        failed = self.library.nvrtcCompileProgram(program, len(self.options), options)
        self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.library.nvrtcGetProgramLog(program, log)
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return not failed, log.value.decode()


class Recorder:
    """Stands for `kernel_of`: its kernels keep the source that MLX would compile, and return zeros."""

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}  # by kernel and template arguments

    def kernel_of(
        self, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], source: str, contiguous: bool = True
    ) -> Callable[..., Any]:
        import mlx.core as mx

        names = inputs

        def run(*, inputs: Any, output_shapes: Any, output_dtypes: Any, template: Any = (), **launch: Any) -> Any:
            declared = []
            for one, array in zip(names, inputs, strict=True):
                declared += [f"const {_name(array.dtype)}* {one}", f"const Ten<int> {one}_shape"]
                declared.append(f"const Ten<long> {one}_strides")
            declared += [f"{_name(dtype)}* {one}" for one, dtype in zip(outputs, output_dtypes, strict=True)]
            values = [(one, _name(value) if isinstance(value, mx.Dtype) else str(value)) for one, value in template]
            kinds = ["typename" if isinstance(value, mx.Dtype) else "int" for _, value in template]
            head, chosen = "", ""
            if values:
                head = f"template <{', '.join(f'{k} {one}' for k, (one, _) in zip(kinds, values, strict=True))}>\n"
                chosen = f"<{', '.join(value for _, value in values)}>"
            code = f"{BEFORE}{head}__global__ void kernel({', '.join(declared)}) {{\n{source}\n}}\n"
            types = ", ".join(one.rpartition(" ")[0] for one in declared)
            if values:
                code += f"template __global__ void kernel{chosen}({types});\n"
            described = ", ".join(f"{one} {value.removeprefix('__nv_')}" for one, value in values)
            self.sources[f"{name}: {described}" if described else name] = code
            return [mx.zeros(shape, dtype=dtype) for shape, dtype in zip(output_shapes, output_dtypes, strict=True)]

        return run


def _name(dtype: Any) -> str:
    return NAMES[str(dtype).rpartition(".")[2]]


def sources() -> dict[str, str]:
    """The source of every kernel of `engines/mlx_cuda`, for arrays as models have them."""
    import mlx.core as mx

    from glassbert.engines.mlx_cuda import activations, losses, multi_head, norms, tables

    recorder, modules = Recorder(), (activations, losses, multi_head, norms, tables)
    before = [module.kernel_of for module in modules]
    for module in modules:
        module.kernel_of = recorder.kernel_of  # type: ignore[attr-defined]
    try:
        for dtype in (mx.bfloat16, mx.float32):
            for width in (192, 384, 768):
                x, gamma = mx.zeros((64, width), dtype=dtype), mx.zeros((width,), dtype=dtype)
                norms.layer_norm(x, gamma, gamma, 1e-5)
                norms.layer_norm_backward(x, x, gamma, 1e-5)
                norms.layer_norm_backward(x, x, gamma, 1e-5, residual=x, has_beta=False)
            x = mx.zeros((64, 2304), dtype=dtype)
            activations.gelu_backward(activations.gelu(x), x)
            activations.geglu_backward(activations.geglu(x), x)
            heads, angles = mx.zeros((2, 256, 12, 64), dtype=dtype), mx.zeros((1, 256, 1, 32))
            multi_head.rotary(heads, angles, angles)
            multi_head.join_heads(heads, heads, heads)
            multi_head.around_backward(multi_head.around(heads, 128), 128, 256)
            rows = mx.zeros((8,), dtype=mx.int32)
            for columns in (8_192, 30_522):
                scores = mx.zeros((8, columns), dtype=dtype)
                each, logs = losses.cross_entropy(scores, rows)
                losses.cross_entropy_backward(each, scores, rows, logs)
            table = mx.zeros((8, 192), dtype=dtype)
            tables.added_rows(rows, tables.table_rows(table, rows), 50, mx.float32)
            tables.added_rows(rows, table, 50, dtype)
            tables.column_sums(mx.zeros((4096, 768), dtype=dtype))
    finally:
        for module, kernel_of in zip(modules, before, strict=True):
            module.kernel_of = kernel_of  # type: ignore[attr-defined]
    return recorder.sources


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", default="sm_90", help="of the GPU (default sm_90: H100 and H200)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    require("mlx")
    compiler = Compiler(options.architecture)
    table = Table(
        f"Our CUDA kernels for {options.architecture}",
        ["kernel", "for", "registers", "local memory", "spilled"],
        left=2,
    )
    reports, failed = [], []
    for described, source in sources().items():
        progress(described)
        name, _, given = described.partition(": ")
        fine, log = compiler.compile(source)
        if not fine:
            failed.append(described)
            print(f"{described} does not compile:\n{log}", flush=True)
            table.rows.append([name, given, "does not compile", "", ""])
            continue
        registers, (local, spilled) = REGISTERS.search(log), LOCAL.search(log).groups()  # type: ignore[union-attr]
        table.rows.append([name, given, registers[1], f"{local} bytes", f"{spilled} bytes"])  # type: ignore[index]
        reports.append({"kernel": described, "registers": int(registers[1]), "local": int(local)})  # type: ignore[index]
    table.show()
    if options.json:
        show_json({"architecture": options.architecture, "kernels": reports, "failed": failed}, options.json)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    run_program(main)
