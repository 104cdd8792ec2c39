"""`glassbert doctor`, and the command line in general."""

import dataclasses
import importlib.metadata
import json
import subprocess
import sys

import pytest
from rich.console import Console

import glassbert
from glassbert import cli
from glassbert.cli import doctor
from glassbert.cli.doctor_findings import GIB, MatmulRate, find_misconfigurations
from glassbert.engines.machine import Blas, EngineChoice, Machine, Mlx
from glassbert.errors import GlassBertError

HEALTHY = Machine(
    system="Linux",
    release="6.8",
    architecture="x86_64",
    libc="glibc 2.39",
    cpu_name="A processor",
    cpu_features=("avx2", "fma"),
    physical_cores=4,
    logical_cores=8,
    usable_cores=8,
    memory=32 * GIB,
    usable_memory=32 * GIB,
    available_memory=24 * GIB,
    python="3.12.1",
    python_implementation="CPython",
    python_bits=64,
    free_threaded=False,
    translated=False,
    numpy="2.1.0",
    blas=Blas("openblas", "0.3.29", "Haswell", threads=8),
    mlx=Mlx(installed=False),
    nvidia_gpu=False,
)
HEALTHY_MAC = dataclasses.replace(
    HEALTHY,
    system="Darwin",
    architecture="arm64",
    libc="",
    cpu_features=(),
    blas=Blas("accelerate"),
    mlx=Mlx(installed=True, version="0.32.4", backend="metal"),
)
REFERENCE_MLX = Mlx(installed=True, version="0.32.4", backend="cpu", cpu_reference_build=True)


def rates(one: float = 90, eight: float = 600) -> list[MatmulRate]:
    return [MatmulRate("numpy", "float32", 1, one), MatmulRate("numpy", "float32", 8, eight)]


@pytest.mark.parametrize(
    ("machine", "measured"),
    [
        (HEALTHY, rates()),
        (HEALTHY_MAC, [MatmulRate("numpy", "float32", None, 1500), MatmulRate("mlx", "float32", None, 3000)]),
        (dataclasses.replace(HEALTHY, nvidia_gpu=True, mlx=Mlx(installed=True, backend="cuda")), rates()),
        (dataclasses.replace(HEALTHY, thread_variables={"OMP_NUM_THREADS": "8"}), rates()),
        # OpenBLAS does not read MKL's variable, and prefers its own to OpenMP's.
        (dataclasses.replace(HEALTHY, thread_variables={"MKL_NUM_THREADS": "1"}), rates()),
        (
            dataclasses.replace(HEALTHY, thread_variables={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "8"}),
            rates(),
        ),
    ],
)
def test_a_healthy_machine_has_no_findings(machine, measured):
    assert find_misconfigurations(machine, measured) == []


@pytest.mark.parametrize(
    ("name", "severity", "changes"),
    [
        ("package-missing", "problem", {"missing_packages": ("tokenizers",)}),
        (
            "bfloat16-unused",
            "advice",
            {"cpu_features": ("avx2", "avx512_bf16"), "without_bfloat16": "bfloat16 needs onednn-cpu-gomp"},
        ),
        ("numpy-old", "problem", {"numpy": "1.26.4"}),
        ("python-32-bit", "problem", {"python_bits": 32}),
        ("python-translated", "problem", {"system": "Darwin", "translated": True}),
        ("python-unusual", "advice", {"python_implementation": "PyPy"}),
        ("python-free-threaded", "advice", {"free_threaded": True}),
        ("glibc-absent", "advice", {"libc": ""}),
        (
            "blas-capped",
            "advice",
            {"blas": Blas("openblas", threads=1), "thread_variables": {"OMP_NUM_THREADS": "1"}},
        ),
        (
            "blas-capped",
            "advice",
            {"blas": Blas("openblas", threads=4), "thread_variables": {"OPENBLAS_NUM_THREADS": "4,2"}},
        ),
        ("blas-capped", "advice", {"blas": Blas("mkl", threads=1), "thread_variables": {"MKL_NUM_THREADS": "1"}}),
        ("blas-capped", "advice", {"blas": Blas("accelerate"), "thread_variables": {"VECLIB_MAXIMUM_THREADS": "1"}}),
        ("thread-variable-invalid", "advice", {"thread_variables": {"OMP_NUM_THREADS": "all"}}),
        ("blas-single-threaded", "advice", {"blas": Blas("openblas", threads=1)}),
        ("blas-oversubscribed", "advice", {"usable_cores": 2}),
        ("blas-old-kernels", "problem", {"blas": Blas("openblas", architecture="Katmai", threads=8)}),
        ("memory-little", "advice", {"available_memory": 3 * GIB}),
        ("memory-little", "problem", {"usable_memory": GIB // 2, "available_memory": None}),
        ("mlx-broken", "problem", {"mlx": Mlx(installed=True, version="0.32.4", import_error="no libmlx")}),
        ("mlx-without-cuda", "advice", {"nvidia_gpu": True}),
        ("mlx-without-cuda", "advice", {"nvidia_gpu": True, "mlx": REFERENCE_MLX}),
        ("mlx-cpu-reference", "ok", {"mlx": REFERENCE_MLX}),
        ("mlx-without-metal", "advice", {"system": "Darwin", "architecture": "arm64"}),
    ],
)
def test_each_misconfiguration_gives_one_finding(name, severity, changes):
    findings = find_misconfigurations(dataclasses.replace(HEALTHY, **changes), rates())
    assert [(finding.name, finding.severity) for finding in findings] == [(name, severity)]
    assert findings[0].message and findings[0].remedy


@pytest.mark.parametrize(
    ("name", "severity", "changes", "measured"),
    [
        ("blas-slow", "problem", {}, rates(one=8, eight=60)),
        ("blas-slow", "problem", {"cpu_features": ()}, rates(one=2, eight=15)),
        ("blas-slow", "problem", {"blas": Blas("none")}, [MatmulRate("numpy", "float32", None, 1.5)]),
        ("threads-without-gain", "advice", {}, rates(one=90, eight=91)),
    ],
)
def test_slow_products_are_found(name, severity, changes, measured):
    findings = find_misconfigurations(dataclasses.replace(HEALTHY, **changes), measured)
    assert [(finding.name, finding.severity) for finding in findings] == [(name, severity)]


def test_a_thread_limit_has_its_remedy_and_problems_come_first():
    machine = dataclasses.replace(
        HEALTHY, python_bits=32, blas=Blas("openblas", threads=1), thread_variables={"OMP_NUM_THREADS": "1"}
    )
    findings = find_misconfigurations(machine, rates())
    assert [finding.severity for finding in findings] == ["problem", "advice"]
    assert findings[1].message.startswith("OMP_NUM_THREADS=1 limits BLAS to 1 thread, but 8 cores can be used. Train")
    assert findings[1].remedy == "Run: unset OMP_NUM_THREADS"


def doctor_on(machine: Machine, monkeypatch, *options: str) -> int:
    monkeypatch.setattr("glassbert.engines.machine.inspect_machine", lambda: machine)
    monkeypatch.setattr("glassbert.engines.machine.measure_matmul_rate", lambda dtype, threads: 80.0 * (threads or 1))
    monkeypatch.setattr("glassbert.engines.machine.measure_mlx_matmul_rate", lambda dtype: 5.5)
    with pytest.raises(SystemExit) as exit:
        cli.main(["doctor", *options])
    return exit.value.code


def test_json_is_one_object_with_everything(monkeypatch, capsys):
    assert doctor_on(dataclasses.replace(HEALTHY, mlx=REFERENCE_MLX), monkeypatch, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["machine"]["blas"]["threads"] == 8
    assert report["engine"]["name"] == "numpy"
    assert [(rate["engine"], rate["dtype"], rate["threads"]) for rate in report["rates"]] == [
        ("numpy", "float32", 1),
        ("numpy", "float32", 8),
        ("numpy", "float64", 1),
        ("numpy", "float64", 8),
        ("numpy", "bfloat16", 1),
        ("numpy", "bfloat16", 8),
        ("mlx", "float32", None),
    ]
    assert [finding["name"] for finding in report["findings"]] == ["mlx-cpu-reference"]


def test_only_a_problem_makes_the_exit_code_1(monkeypatch, capsys):
    assert doctor_on(HEALTHY, monkeypatch) == 0
    assert "Nothing is misconfigured." in capsys.readouterr().out
    assert doctor_on(dataclasses.replace(HEALTHY, free_threaded=True), monkeypatch) == 0
    assert doctor_on(dataclasses.replace(HEALTHY, numpy="1.26.4"), monkeypatch) == 1
    output = capsys.readouterr().out
    assert "problem" in output and "Nothing is misconfigured." not in output


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("machine", [HEALTHY, HEALTHY_MAC], ids=["linux", "mac"])
def test_the_tables_fit_the_screen(width, machine):
    console = Console(width=width)
    findings = find_misconfigurations(dataclasses.replace(machine, numpy="1.26.4", free_threaded=True), rates())
    with console.capture() as capture:
        doctor.show(console, machine, rates(), EngineChoice("numpy", "MLX is not installed."), findings)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


def test_errors_are_one_line_and_unexpected_ones_keep_their_traceback_for_debugging(monkeypatch, capsys):
    def fail():
        raise GlassBertError("The file [model] is empty.")

    monkeypatch.setattr(doctor, "run", fail)
    with pytest.raises(SystemExit) as exit:
        cli.main(["doctor"])
    assert exit.value.code == 2
    assert capsys.readouterr().err == "The file [model] is empty.\n"

    def break_down():
        raise RuntimeError("unexpected")

    monkeypatch.setattr(doctor, "run", break_down)
    with pytest.raises(SystemExit) as exit:
        cli.main(["doctor"])
    shown = capsys.readouterr().err
    assert exit.value.code == 70 and "RuntimeError: unexpected; the traceback is in" in shown
    assert "Traceback" not in shown and shown.count("\n") == 1
    monkeypatch.setenv("GLASSBERT_DEBUG", "1")
    with pytest.raises(RuntimeError, match="unexpected"):
        cli.main(["doctor"])


def test_help_lists_every_command_without_importing_any():
    program = (
        "import sys\nfrom glassbert import cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({f'glassbert.cli.{name}' for name in cli.COMMANDS} & {*sys.modules}))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "[]"
    assert all(name in output for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_in_the_table_has_help(name, capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main([name, "--help"])
    assert exit.value.code == 0
    assert f"glassbert {name}" in capsys.readouterr().out


def test_the_version_is_shown_of_a_package_that_is_not_installed(monkeypatch, capsys):
    monkeypatch.setattr("importlib.metadata.version", not_installed)
    with pytest.raises(SystemExit) as exit:
        cli.main(["--version"])
    assert exit.value.code == 0
    assert capsys.readouterr().out == f"glassbert {glassbert.__version__}\n"


def test_doctor_says_whether_the_cpu_has_bfloat16():
    features = ("amx_bf16", "avx2", "avx512_bf16")
    here = dataclasses.replace(HEALTHY, cpu_features=features)
    assert doctor.describe(here)["bfloat16"] == "AVX512-BF16 and AMX in the processor; products by oneDNN"
    missing = dataclasses.replace(here, without_bfloat16="oneDNN is not installed")
    assert doctor.describe(missing)["bfloat16"].endswith("in the processor; not used by NumPy: oneDNN is not installed")
    old = dataclasses.replace(HEALTHY, without_bfloat16="this processor has no instructions for bfloat16")
    assert doctor.describe(old)["bfloat16"] == "not used by NumPy: this processor has no instructions for bfloat16"
    assert "bfloat16-unused" not in [finding.name for finding in find_misconfigurations(old, rates())]
    assert "bfloat16" not in [dtype for _, dtype, _ in doctor.planned_rates(old)]


def not_installed(package):
    """As for a package that runs from its source folder."""
    raise importlib.metadata.PackageNotFoundError(package)
