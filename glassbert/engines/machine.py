"""Facts about this machine (processor, memory, BLAS, MLX), the choice of the engine, and matrix product rates."""

import functools
import importlib.metadata
import importlib.util
import math
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from glassbert.engines import onednn

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# Modules that are imported only when they are used, and the packages that have them.
REQUIRED_PACKAGES = {
    "matplotlib": "matplotlib",
    "safetensors": "safetensors",
    "sklearn": "scikit-learn",
    "tokenizers": "tokenizers",
}


@dataclass(frozen=True)
class Blas:
    """The BLAS library that NumPy uses; `threads` is None if it is unknown (Apple's Accelerate)."""

    name: str
    version: str = ""
    architecture: str = ""
    threads: int | None = None


@dataclass(frozen=True)
class Mlx:
    """The installed MLX; `backend` is "metal", "cuda" or "cpu", or empty if MLX cannot be imported."""

    installed: bool
    version: str = ""
    backend: str = ""
    device_name: str = ""
    import_error: str = ""
    cpu_reference_build: bool = False


@dataclass(frozen=True)
class Machine:
    """Facts about this machine; sizes are in bytes, and None means unknown."""

    system: str
    release: str
    architecture: str
    libc: str
    cpu_name: str
    cpu_features: tuple[str, ...]
    physical_cores: int | None
    logical_cores: int
    usable_cores: int
    memory: int | None
    usable_memory: int | None
    available_memory: int | None
    python: str
    python_implementation: str
    python_bits: int
    free_threaded: bool
    translated: bool
    numpy: str
    blas: Blas
    mlx: Mlx
    nvidia_gpu: bool
    thread_variables: dict[str, str] = field(default_factory=dict)
    missing_packages: tuple[str, ...] = ()
    without_bfloat16: str = ""  # why the NumPy engine has no bfloat16 here; "" if it has


class EngineChoice(NamedTuple):
    """The engine for `engine="auto"` on this machine, and the reason in a sentence."""

    name: str
    reason: str


def inspect_machine() -> Machine:
    """Collect the facts about this machine, without measurements."""
    memory, available = _memory()
    limits = [limit for folder in cgroup_folders("memory") if (limit := cgroup_memory(folder)) is not None]
    usable_memory = None if memory is None else min([memory, *limits])
    if available is not None and usable_memory is not None:
        available = min(available, usable_memory)
    return Machine(
        system=platform.system(),
        release=platform.mac_ver()[0] or platform.release(),
        architecture=platform.machine(),
        libc=" ".join(platform.libc_ver()).strip(),
        cpu_name=_cpu_field("model name") or _sysctl("machdep.cpu.brand_string") or platform.machine(),
        cpu_features=tuple(sorted((_cpu_field("flags") or _cpu_field("Features")).split())),
        physical_cores=_physical_cores(),
        logical_cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        memory=memory,
        usable_memory=usable_memory,
        available_memory=available,
        python=platform.python_version(),
        python_implementation=platform.python_implementation(),
        python_bits=64 if sys.maxsize > 2**32 else 32,
        free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        translated=_sysctl("sysctl.proc_translated") == "1",
        numpy=np.__version__,
        blas=inspect_blas(),
        mlx=inspect_mlx(),
        nvidia_gpu=any(Path("/dev").glob("nvidia[0-9]*")),
        thread_variables={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        missing_packages=tuple(p for name, p in REQUIRED_PACKAGES.items() if importlib.util.find_spec(name) is None),
        without_bfloat16=onednn.why_not(),
    )


def inspect_blas() -> Blas:
    """Find NumPy's BLAS: the loaded library if threadpoolctl finds it, otherwise the one of NumPy's build."""
    loaded = [library for library in threadpool_info() if library["user_api"] == "blas"]
    # PyTorch or SciPy may have loaded a BLAS of their own.
    loaded.sort(key=lambda library: "numpy" not in library["filepath"])
    if loaded:
        library = loaded[0]
        return Blas(
            name=library["internal_api"],
            version=library.get("version") or "",
            architecture=library.get("architecture") or "",
            threads=library["num_threads"],
        )
    build = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})  # type: ignore[union-attr]
    return Blas(name=build.get("name") or "none", version=build.get("version") or "")


@functools.cache
def inspect_mlx() -> Mlx:
    """Find MLX and the device it would compute on."""
    try:
        version = importlib.metadata.version("mlx")
    except importlib.metadata.PackageNotFoundError:
        return Mlx(installed=False)
    try:
        import mlx.core as mx
    except (ImportError, OSError, RuntimeError) as error:
        return Mlx(installed=True, version=version, import_error=str(error))
    available = (name for name in ("metal", "cuda") if hasattr(mx, name) and getattr(mx, name).is_available())
    backend = next(available, "cpu")
    return Mlx(
        installed=True,
        version=version,
        backend=backend,
        device_name=str(mx.device_info().get("device_name", "")) if hasattr(mx, "device_info") else "",
        cpu_reference_build=backend == "cpu" and platform.system() == "Linux",
    )


def recommended_engine() -> str:
    """The name of the recommended engine on this machine: "mlx" or "numpy"."""
    return choose_engine(inspect_mlx()).name


def choose_engine(mlx: Mlx) -> EngineChoice:
    """Choose MLX on Apple silicon and CUDA, NumPy elsewhere."""
    if mlx.backend == "metal":
        return EngineChoice("mlx", "MLX computes on the GPU of this Apple silicon.")
    if mlx.backend == "cuda":
        return EngineChoice("mlx", "MLX computes on the NVIDIA GPU.")
    if mlx.import_error:
        return EngineChoice("numpy", "MLX is installed but cannot be imported.")
    if mlx.backend == "cpu":
        return EngineChoice("numpy", "MLX finds no GPU, and on the processor NumPy is the faster engine.")
    return EngineChoice("numpy", "MLX is not installed.")


def measure_matmul_rate(
    dtype: str = "float32", threads: int | None = None, size: int | None = None, seconds: float = 0.4
) -> float:
    """Measure the rate of NumPy's product of two square matrices in GFLOP/s: the median over about `seconds`.

    `threads` limits the threads of BLAS during the measurement; None: as configured. bfloat16 is oneDNN's product,
    whose rows so many threads share (None: all). Without `size` the matrices are enlarged until one product takes at
    least 6 ms.
    """

    def prepare_bfloat16(n: int) -> Callable[[], object]:
        from glassbert.engines.threads import run_together

        left, right = onednn.to_bfloat16(np.random.default_rng(0).random((2, n, n), dtype=np.float32))
        product, parts = np.empty((n, n), np.float32), threads or usable_cores()
        rows = [slice(n * i // parts, n * (i + 1) // parts) for i in range(parts)]
        return lambda: run_together(lambda part: onednn.matmul(left[part], right, product[part]), rows)

    if dtype == "bfloat16":
        return _median_rate(prepare_bfloat16, size, seconds)

    def prepare(n: int) -> Callable[[], object]:
        left, right = np.random.default_rng(0).random((2, n, n), dtype=np.float32).astype(dtype)
        product = np.empty_like(left)
        return lambda: np.matmul(left, right, out=product)

    with threadpool_limits(limits=threads, user_api="blas"):
        return _median_rate(prepare, size, seconds)


def measure_mlx_matmul_rate(dtype: str = "float32", size: int | None = None, seconds: float = 0.4) -> float:
    """Measure the same product on MLX's default device, in GFLOP/s."""
    import mlx.core as mx

    def prepare(n: int) -> Callable[[], object]:
        left, right = (mx.random.normal((n, n)).astype(getattr(mx, dtype)) for _ in range(2))
        mx.eval(left, right)
        return lambda: mx.eval(left @ right)

    return _median_rate(prepare, size, seconds)


def _median_rate(prepare: Callable[[int], Callable[[], object]], size: int | None, seconds: float) -> float:
    n = size or 128
    multiply = prepare(n)
    multiply()  # Warm-up: creates threads, buffers and kernels.
    while size is None and n < 8192 and _duration(multiply) < 0.006:
        n *= 2
        multiply = prepare(n)
        multiply()
    rounds: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(rounds) < 3 or time.perf_counter() < deadline:
        rounds.append(_duration(multiply))
    return 2 * n**3 / statistics.median(rounds) / 1e9


def _duration(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def usable_cores() -> int:
    """The number of cores that this process may use; a container or `taskset` may limit them."""
    # sched_getaffinity is missing on macOS.
    granted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(granted, cores_of_quota())))


@functools.cache
def cores_of_quota() -> float:
    """The whole cores that the quotas of this process's control groups pay for; infinite without a quota."""
    quotas = [quota for folder in cgroup_folders("cpu") if (quota := cgroup_cores(folder)) is not None]
    return min(map(math.ceil, quotas), default=math.inf)


def cgroup_folders(
    controller: str, root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> Iterator[Path]:
    """The control group (version 1 or 2) of this process and its ancestors; each may set a limit."""
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        folder = base / path.lstrip("/")
        yield folder
        while folder != base:
            folder = folder.parent
            yield folder


def cgroup_cores(folder: Path) -> float | None:
    """Read the processor quota of one control group, in cores; None means unlimited."""
    quota, period = [*_read(folder / "cpu.max").split(), "", ""][:2]
    if not quota:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def cgroup_memory(folder: Path) -> int | None:
    """Read the memory limit of one control group, in bytes; None means unlimited."""
    limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
    return int(limit) if limit.isdigit() else None


def _memory() -> tuple[int | None, int | None]:
    """Return total and available memory."""
    meminfo = dict(line.split(":", 1) for line in _read(Path("/proc/meminfo")).splitlines())
    if meminfo:
        total, available = (int(meminfo[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))
        return total, available
    total_text = _sysctl("hw.memsize")
    return int(total_text) if total_text else None, None


def _physical_cores() -> int | None:
    topologies = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology")
    cores = {(_read(folder / "physical_package_id"), _read(folder / "core_id")) for folder in topologies}
    return len(cores) or int(_sysctl("hw.physicalcpu") or 0) or None


def _cpu_field(name: str) -> str:
    lines = _read(Path("/proc/cpuinfo")).splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == name), "")


def _sysctl(name: str) -> str:
    if platform.system() != "Darwin":
        return ""
    return subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False).stdout.strip()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
