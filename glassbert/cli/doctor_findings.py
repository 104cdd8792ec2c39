"""Rules that find what is misconfigured on a machine, with a remedy for each finding."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from glassbert.engines.machine import Blas, Machine
from glassbert.engines.onednn import PACKAGE

GIB = 2**30
# Optimised kernels are several times faster than this on one core; plain loops and a reference BLAS are slower.
SLOW_GFLOPS = 5.0
SLOW_GFLOPS_WITH_AVX2 = 15.0
# Names used by OpenBLAS. NumPy's wheels contain Katmai, Nehalem and Sandybridge, and report those for similar CPUs.
KERNELS_BEFORE_AVX2 = ("barcelona", "core2", "generic", "katmai", "nehalem", "penryn", "prescott", "sandybridge")
# The fast kernels call BLAS with one thread in each of theirs (`engines/threads.py`).
OWN_THREADS = "Training and predictions use all cores all the same, by threads of their own; plain kernels do not."
# Instructions for bfloat16 products, as Linux names them.
BFLOAT16_FEATURES = {"avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX"}


@dataclass(frozen=True)
class Finding:
    """A finding with its remedy: "ok" needs no action, "advice" is optional, "problem" should be fixed."""

    severity: Literal["ok", "advice", "problem"]
    name: str
    message: str
    remedy: str


@dataclass(frozen=True)
class MatmulRate:
    """A measured rate of matrix products; `threads` is None where the library chooses the number."""

    engine: str
    dtype: str
    threads: int | None
    gflops: float


def find_misconfigurations(machine: Machine, rates: Iterable[MatmulRate]) -> list[Finding]:
    """The findings for a machine and its measured rates, problems first."""
    findings = [
        *_check_python(machine),
        *_check_threads(machine),
        *_check_speed(machine, list(rates)),
        *_check_bfloat16(machine),
        *_check_memory(machine),
        *_check_mlx(machine),
    ]
    return sorted(findings, key=lambda finding: ("problem", "advice", "ok").index(finding.severity))


def _check_python(machine: Machine) -> Iterator[Finding]:
    for package in machine.missing_packages:
        yield Finding(
            "problem",
            "package-missing",
            f"The package {package} is not installed, and GlassBERT needs it.",
            f"Run: pip install {package}",
        )
    if int(machine.numpy.split(".")[0]) < 2:
        yield Finding(
            "problem",
            "numpy-old",
            f"NumPy {machine.numpy} is older than 2.0, which GlassBERT needs.",
            'Run: pip install --upgrade "numpy>=2"',
        )
    if machine.python_bits != 64:
        yield Finding(
            "problem",
            "python-32-bit",
            "This is a 32-bit Python, which cannot address the memory that training needs.",
            "Install a 64-bit Python.",
        )
    if machine.translated:
        yield Finding(
            "problem",
            "python-translated",
            "This Python was built for Intel and runs under Rosetta on Apple silicon: it is slow and cannot use MLX.",
            "Install a Python for arm64 and install GlassBERT again with it.",
        )
    if machine.python_implementation != "CPython":
        yield Finding(
            "advice",
            "python-unusual",
            f"This Python is {machine.python_implementation}, on which GlassBERT is not tested.",
            "Use CPython.",
        )
    if machine.free_threaded:
        yield Finding(
            "advice",
            "python-free-threaded",
            "This is a free-threaded Python, on which GlassBERT is not tested.",
            "If you see errors, use the standard build of Python.",
        )
    if machine.system == "Linux" and not machine.libc.startswith("glibc"):
        yield Finding(
            "advice",
            "glibc-absent",
            "This Linux has no glibc (Alpine has musl, for example), and MLX and PyTorch publish no builds for it.",
            "Use a distribution with glibc if you want MLX or the tests against PyTorch.",
        )


def _check_threads(machine: Machine) -> Iterator[Finding]:
    variables, cores, threads = machine.thread_variables, machine.usable_cores, machine.blas.threads
    caps = {name: _leading_number(variables[name]) for name in _variables_of(machine.blas) if name in variables}
    for name, cap in caps.items():
        if cap is None:
            yield Finding(
                "advice",
                "thread-variable-invalid",
                f"{name} is set to {variables[name]!r}, which is not a positive number.",
                f"Run: unset {name}",
            )
    # BLAS uses the first of its variables with a valid number.
    capping, cap = next(((name, cap) for name, cap in caps.items() if cap is not None), ("", None))
    if cap is not None and cap < cores and (threads is None or threads <= cap):
        yield Finding(
            "advice",
            "blas-capped",
            f"{capping}={variables[capping]} limits BLAS to {_count(cap, 'thread')}, "
            f"but {_count(cores, 'core')} can be used. {OWN_THREADS}",
            f"Run: unset {capping}",
        )
    elif threads == 1 < cores:
        yield Finding(
            "advice",
            "blas-single-threaded",
            f"BLAS uses one thread, but {cores} cores can be used, and no environment variable limits it. "
            f"{OWN_THREADS}",
            "The library may be built without threads. Run: pip install --force-reinstall numpy",
        )
    elif threads is not None and threads > cores:
        yield Finding(
            "advice",
            "blas-oversubscribed",
            f"BLAS starts {threads} threads, but this process can use only {_count(cores, 'core')}, "
            "so the threads wait for each other.",
            f"Run: export {_variables_of(machine.blas)[0]}={cores}",
        )


def _check_speed(machine: Machine, rates: list[MatmulRate]) -> Iterator[Finding]:
    by_threads = {rate.threads: rate.gflops for rate in rates if (rate.engine, rate.dtype) == ("numpy", "float32")}
    one = by_threads.get(1, by_threads.get(None))
    has_avx2 = "avx2" in machine.cpu_features
    expected = SLOW_GFLOPS_WITH_AVX2 if has_avx2 else SLOW_GFLOPS
    if has_avx2 and machine.blas.architecture.lower() in KERNELS_BEFORE_AVX2:
        yield Finding(
            "problem",
            "blas-old-kernels",
            f"This processor has AVX2, but BLAS runs its kernels for {machine.blas.architecture}, which do not use it.",
            "Unset OPENBLAS_CORETYPE if it is set. Otherwise run: pip install --upgrade numpy",
        )
    elif one is not None and one < expected:
        yield Finding(
            "problem",
            "blas-slow",
            f"NumPy multiplies float32 matrices at {one:.1f} GFLOP/s on one core, where at least {expected:.0f} "
            f"is expected: its BLAS ({machine.blas.name}) is not an optimised one, or the machine is very busy.",
            "Measure again on an idle machine. If it stays slow, run: pip install --force-reinstall numpy",
        )
    most = max((threads for threads in by_threads if threads is not None), default=1)
    if one is not None and most > 1 and by_threads[most] < 1.2 * one:
        yield Finding(
            "advice",
            "threads-without-gain",
            f"{most} threads multiply matrices less than 20 % faster than one "
            f"({by_threads[most]:.0f} against {one:.0f} GFLOP/s).",
            "Check for other programs that use the cores, then measure again.",
        )


def _check_bfloat16(machine: Machine) -> Iterator[Finding]:
    if PACKAGE in machine.without_bfloat16 and any(flag in machine.cpu_features for flag in BFLOAT16_FEATURES):
        yield Finding(
            "advice",
            "bfloat16-unused",
            "This processor multiplies bfloat16 about twice as fast as float32, but oneDNN is not installed.",
            f"Run: pip install {PACKAGE}, and give --precision bfloat16",
        )


def _check_memory(machine: Machine) -> Iterator[Finding]:
    free = machine.available_memory if machine.available_memory is not None else machine.usable_memory
    if free is not None and free < 4 * GIB:
        yield Finding(
            "problem" if free < GIB else "advice",
            "memory-little",
            f"Only {free / GIB:.1f} GiB of memory can be used.",
            "Close other programs or raise the container's limit. Otherwise use a small model and a small batch, and "
            "turn on gradient checkpointing.",
        )


def _check_mlx(machine: Machine) -> Iterator[Finding]:
    mlx = machine.mlx
    on_linux = "mlx[cuda13]" if machine.nvidia_gpu else "mlx[cpu]"
    package = on_linux if machine.system == "Linux" else "mlx"
    if mlx.import_error:
        yield Finding(
            "problem",
            "mlx-broken",
            f"MLX {mlx.version} is installed but cannot be imported: {mlx.import_error}",
            f'Run: pip install --force-reinstall "{package}"',
        )
    elif machine.nvidia_gpu and mlx.backend != "cuda":
        state = "finds no CUDA here" if mlx.installed else "is not installed"
        yield Finding(
            "advice",
            "mlx-without-cuda",
            f"This machine has an NVIDIA GPU, but MLX {state}, so the GPU is not used.",
            f'Run: pip install "{package}"',
        )
    elif mlx.cpu_reference_build:
        yield Finding(
            "ok",
            "mlx-cpu-reference",
            "MLX on Linux without a GPU uses a slow reference library for matrix products.",
            "No action needed: use MLX to compare results, and NumPy for training.",
        )
    elif machine.system == "Darwin" and machine.architecture == "arm64" and mlx.backend != "metal":
        state = "finds no Metal device" if mlx.installed else "is not installed"
        yield Finding(
            "advice",
            "mlx-without-metal",
            f"This is Apple silicon, but MLX {state}, so the GPU is not used.",
            "Virtual machines often hide the GPU; run on the Mac itself." if mlx.installed else "Run: pip install mlx",
        )


def _variables_of(blas: Blas) -> tuple[str, ...]:
    """The environment variables that this BLAS reads, by priority."""
    if blas.name == "mkl":
        return ("MKL_NUM_THREADS", "OMP_NUM_THREADS")
    if blas.name == "accelerate":
        return ("VECLIB_MAXIMUM_THREADS",)
    if "openblas" in blas.name:
        return ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    return ("OMP_NUM_THREADS",)


def _leading_number(text: str) -> int | None:
    """4 for "4" and for OpenMP's list "4,2"; None for zero and everything else."""
    number = text.split(",")[0].strip()
    return int(number) if number.isdigit() and int(number) > 0 else None


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
