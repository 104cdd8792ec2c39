"""`glassbert doctor`: show what this machine has, what is misconfigured and how to fix it."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from glassbert.cli.doctor_findings import BFLOAT16_FEATURES, GIB, Finding, MatmulRate, find_misconfigurations
from glassbert.cli.options import AsJson
from glassbert.cli.output import print_json
from glassbert.engines import machine as machine_facts
from glassbert.engines import which
from glassbert.engines.machine import EngineChoice, Machine
from glassbert.ops import operation_names

ENGINE_NAMES = {"numpy": "NumPy", "mlx": "MLX"}
COLOURS = {"ok": "green", "advice": "yellow", "problem": "red"}


def run(
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Show which code runs each operation, with file and line.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what this machine has, measure its matrix products, and report what is misconfigured.

    The exit code is 1 if there is a problem, and 0 otherwise.
    """
    if kernels:
        show_kernels(as_json)
        return
    machine = machine_facts.inspect_machine()
    rates = measure_rates(machine)
    engine = machine_facts.choose_engine(machine.mlx)
    findings = find_misconfigurations(machine, rates)
    if as_json:
        report = {
            "machine": asdict(machine),
            "rates": [asdict(rate) for rate in rates],
            "engine": engine._asdict(),
            "findings": [asdict(finding) for finding in findings],
        }
        print_json(report)
    else:
        show(Console(), machine, rates, engine, findings)
    if any(finding.severity == "problem" for finding in findings):
        raise typer.Exit(1)


def show_kernels(as_json: bool) -> None:
    """Which code runs each operation on the engines of this machine."""
    engines = ["numpy", *(["mlx"] if machine_facts.inspect_machine().mlx.backend else [])]
    sources = [source for engine in engines for name in operation_names() for source in which(name, engine)]
    if as_json:
        print_json([source._asdict() for source in sources])
        return
    console = Console()
    for engine in engines:
        table = Table(title=ENGINE_NAMES[engine], title_justify="left", title_style="bold", pad_edge=False, box=None)
        for heading in ("operation", "kernels", "code"):
            table.add_column(heading, no_wrap=heading != "code")
        for source in sources:
            if source.engine == engine:
                note = f"  ({source.note})" if source.note else ""
                table.add_row(source.operation, source.kernels, Text(f"{source.file}:{source.line}{note}"))
        console.print(table)
        console.print()


def planned_rates(machine: Machine) -> list[tuple[str, str, int | None]]:
    """Engine, precision and number of threads of each measurement."""
    # The threads of Accelerate cannot be set while the program runs, so there is only one measurement.
    thread_counts = [None] if machine.blas.threads is None else sorted({1, machine.usable_cores})
    own = ("float32", "float64", *(() if machine.without_bfloat16 else ("bfloat16",)))
    plan: list[tuple[str, str, int | None]] = [("numpy", dtype, threads) for dtype in own for threads in thread_counts]
    if machine.mlx.backend:
        precisions = ("float32",) if machine.mlx.backend == "cpu" else ("float32", "bfloat16")
        plan += [("mlx", dtype, None) for dtype in precisions]
    return plan


def measure_rates(machine: Machine) -> list[MatmulRate]:
    """Measure each engine, precision and number of threads; shows a progress bar in a terminal."""
    plan = planned_rates(machine)
    rates = []
    screen = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), console=screen, transient=True, disable=not screen.is_terminal
    ) as progress:
        task = progress.add_task("Multiplying matrices", total=len(plan))
        for engine, dtype, threads in plan:
            progress.update(task, description=f"Multiplying {dtype} matrices with {ENGINE_NAMES[engine]}")
            if engine == "numpy":
                gflops = machine_facts.measure_matmul_rate(dtype, threads)
            else:
                gflops = machine_facts.measure_mlx_matmul_rate(dtype)
            rates.append(MatmulRate(engine, dtype, threads, gflops))
            progress.advance(task)
    return rates


def show(
    console: Console,
    machine: Machine,
    rates: Sequence[MatmulRate],
    engine: EngineChoice,
    findings: Sequence[Finding],
) -> None:
    """Print the facts, the measured rates and the findings."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    for label, value in describe(machine).items():
        facts.add_row(label, Text(value))
    facts.add_row("Engine", Text(f"auto selects {engine.name}. {engine.reason}"))

    speeds = Table(title="Measured matrix products", title_justify="left", title_style="bold")
    for heading in ("engine", "precision", "threads"):
        speeds.add_column(heading)
    speeds.add_column("GFLOP/s", justify="right")
    for rate in rates:
        threads = "automatic" if rate.threads is None else str(rate.threads)
        speeds.add_row(ENGINE_NAMES[rate.engine], rate.dtype, threads, f"{rate.gflops:,.1f}")

    verdicts = Table.grid(padding=(0, 2))
    verdicts.add_column(no_wrap=True)
    verdicts.add_column()
    if all(finding.severity == "ok" for finding in findings):
        verdicts.add_row(Text("ok", style="bold green"), "Nothing is misconfigured.")
    for finding in findings:
        severity = Text(finding.severity, style=f"bold {COLOURS[finding.severity]}")
        verdicts.add_row(severity, Text.assemble(finding.message, "\n", (finding.remedy, "cyan")))

    for block in (facts, "", speeds, "", verdicts):
        console.print(block)


def describe(machine: Machine) -> dict[str, str]:
    """The facts about a machine, one line of text each."""
    blas, mlx = machine.blas, machine.mlx
    cores = f"{machine.logical_cores} logical"
    if machine.physical_cores is not None:
        cores = f"{machine.physical_cores} physical, {cores}"
    memory = "unknown" if machine.memory is None else f"{machine.memory / GIB:.1f} GiB"
    if machine.usable_memory != machine.memory and machine.usable_memory is not None:
        memory += f", {machine.usable_memory / GIB:.1f} GiB of it allowed"
    if machine.available_memory is not None:
        memory += f", {machine.available_memory / GIB:.1f} GiB free"
    blas_words = [blas.name, blas.version, blas.architecture and f"kernels for {blas.architecture}"]
    blas_words.append("threads unknown" if blas.threads is None else f"threads: {blas.threads}")
    mlx_words = [mlx.version, mlx.backend or "cannot be imported", mlx.device_name]
    mlx_words.append("reference build" if mlx.cpu_reference_build else "")
    caps = ", ".join(f"{name}={value}" for name, value in machine.thread_variables.items())
    return {
        "System": f"{machine.system} {machine.release} {machine.architecture} {machine.libc}".strip(),
        "Processor": machine.cpu_name,
        "Cores": f"{cores}, {machine.usable_cores} usable by this process",
        "Memory": memory,
        "Python": f"{machine.python_implementation} {machine.python}, {machine.python_bits} bits",
        "NumPy": machine.numpy,
        "BLAS": ", ".join(filter(None, blas_words)),
        "Thread caps": caps or "none set in the environment",
        "bfloat16": _bfloat16_in_words(machine),
        "NVIDIA GPU": "yes" if machine.nvidia_gpu else "none found",
        "MLX": ", ".join(filter(None, mlx_words)) if mlx.installed else "not installed",
    }


def _bfloat16_in_words(machine: Machine) -> str:
    """Whether the NumPy engine has bfloat16 here, and which instructions of the processor are for it."""
    names = [label for flag, label in BFLOAT16_FEATURES.items() if flag in machine.cpu_features]
    found = f"{' and '.join(names)} in the processor; " if names else ""
    return found + (
        f"not used by NumPy: {machine.without_bfloat16}" if machine.without_bfloat16 else "products by oneDNN"
    )
