"""A training step in bfloat16 on a GPU: GlassBERT on MLX and `transformers` on PyTorch, eager and compiled.

    python3 -m benchmarks.gpu [--only NAME,...] [--contenders mlx,eager,compiled] [--quick] [--json [FILE]]

Forward, backward, clip and AdamW over float32 master weights. All contenders get the same batches, with word-like token
frequencies, 15 % masked, no padding, no dropout; batches are prepared on the host and uploaded inside the step.
PyTorch uses autocast, TF32 for what stays in float32, its fused attention and its fused AdamW. The share of the matrix
rate is the arithmetic that the step needs (masked rows of the head only, local attention within its window), the same
for all contenders, divided by the larger of MLX's and PyTorch's rate for a product of 8192 x 8192 x 8192 in bfloat16.

Each contender has its own process. A group of models is prepared (compiled) in parallel, then measured one after the
other, with contenders in turns. The table shows the error of a contender that fails. `--in-process --together 1` uses
no further processes. `--smoke` tests everything with tiny models, also without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.common import (
    Local,
    Spread,
    Table,
    Worker,
    add_json_option,
    count,
    describe_machine,
    interleave,
    progress,
    require,
    rounded,
    run_program,
    show_json,
)
from benchmarks.gpu_contenders import MATRIX, WORKLOADS, Workload
from glassbert.models.flops import training_flops

GIB = 2**30
NAMES = {
    "mlx": "GlassBERT (MLX)",
    "eager": "PyTorch, eager",
    "compiled": "PyTorch, compiled",
    "eager-sparse": "PyTorch, eager, masked rows only",
    "compiled-sparse": "PyTorch, compiled, masked rows only",
}
DEFAULT = ("mlx", "eager", "compiled")


@dataclass
class Plan:
    contenders: tuple[str, ...] = DEFAULT
    rounds: int = 7
    round_seconds: float = 1.0  # of each contender
    seconds_per_model: float = 45.0
    prepare_seconds: float = 300.0
    together: int = 3
    in_process: bool = False


class TurnError(Exception):
    """The contender whose turn failed, and its error."""

    def __init__(self, name: str, error: Exception):
        super().__init__(name)
        self.name, self.error = name, error


def process_of(name: str) -> str:
    """The process of a contender; PyTorch's eager and compiled contenders share one model and process."""
    return "mlx" if name == "mlx" else "torch-sparse" if name.endswith("-sparse") else "torch"


class WorkloadRun:
    """One workload and the processes of its contenders."""

    def __init__(self, workload: Workload, plan: Plan):
        self.workload = workload
        self.plan = plan
        self.members: dict[str, Worker | Local] = {}  # by process
        self.facts: dict[str, dict[str, Any]] = {}  # of the prepared contenders
        self.errors: dict[str, str] = {}
        if not plan.in_process:
            for name in plan.contenders:  # start all processes, so that imports run in parallel
                self.member(name)

    def member(self, name: str) -> Worker | Local:
        """The process of a contender, started on first use."""
        process = process_of(name)
        if process not in self.members:
            options: dict[str, Any] = {"workload": self.workload}
            if process != "mlx":
                options["sparse"] = process == "torch-sparse"
            contender = "benchmarks.gpu_contenders:Mlx" if process == "mlx" else "benchmarks.gpu_contenders:Torch"
            if self.plan.in_process:
                self.members[process] = Local(contender, **options)
            else:
                cores = str(max(1, (os.cpu_count() or 1) // self.plan.together))
                self.members[process] = Worker(contender, {"TORCHINDUCTOR_COMPILE_THREADS": cores}, **options)
        return self.members[process]

    def prepare_all(self, deadline: float) -> None:
        for name in self.plan.contenders:
            self.prepare(name, deadline)

    def prepare(self, name: str, deadline: float) -> None:
        try:
            left = max(1.0, deadline - time.monotonic())
            self.facts[name] = self.member(name).call("prepare", name, timeout=min(self.plan.prepare_seconds, left))
        except Exception as error:
            self.exclude(name, error, deadline)

    def exclude(self, name: str, error: Exception, deadline: float) -> None:
        """Record the error of a contender; prepare the others of its process again in a new one."""
        self.errors[name] = str(error)
        self.facts.pop(name, None)
        details = getattr(error, "details", "")
        print(f"{self.workload.name}: {NAMES[name]} failed: {error}\n{details}", file=sys.stderr, flush=True)
        member = self.members.pop(process_of(name), None)
        if member is not None:
            member.close()
        for other in [other for other in self.facts if process_of(other) == process_of(name)]:
            self.prepare(other, deadline)

    def measure(self) -> dict[str, Any]:
        """Measure in interleaved rounds. A contender that fails is excluded, and the rounds start again."""
        deadline = time.monotonic() + self.plan.seconds_per_model
        while True:
            memory: dict[str, float] = {}
            active = [name for name in self.plan.contenders if name in self.facts]
            turns = {name: lambda name=name, memory=memory: self.turn(name, memory) for name in active}
            processes = {process_of(name): name for name in active}
            rates = {f"matmul {process}": lambda name=name: self.rate(name) for process, name in processes.items()}
            try:
                times = interleave({**rates, **turns}, self.plan.rounds, deadline=deadline)
            except TurnError as failure:
                self.exclude(failure.name, failure.error, time.monotonic() + self.plan.prepare_seconds)
                continue
            return summarise(self.workload, times, memory, self.facts, self.errors)

    def turn(self, name: str, memory: dict[str, float]) -> float:
        steps = max(1, min(200, round(self.plan.round_seconds / self.facts[name]["seconds"])))
        try:
            seconds, memory[name] = self.member(name).call("run", name, steps, timeout=120.0)
        except Exception as error:
            raise TurnError(name, error) from error
        return seconds

    def rate(self, name: str) -> float:
        try:
            return self.member(name).call("matmul", timeout=120.0)
        except Exception as error:
            raise TurnError(name, error) from error

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        self.members.clear()


def summarise(
    workload: Workload,
    times: dict[str, list[float]],
    memory: dict[str, float],
    facts: dict[str, dict[str, Any]],
    errors: dict[str, str],
) -> dict[str, Any]:
    """The report of one workload from seconds per step and matrix rates of all rounds."""
    batches = workload.batches()
    masked = sum(batch.masked for batch in batches) / len(batches)
    flops = training_flops(workload.config, workload.batch, workload.length, scored_rows=round(masked))
    rates = {name: Spread.of(values).median for name, values in times.items() if name.startswith("matmul ")}
    rate = max(rates.values(), default=0.0)
    report: dict[str, Any] = {
        "model": workload.name,
        "preset": workload.preset,
        "batch": workload.batch,
        "length": workload.length,
        "dropout": workload.dropout,
        "masked_rows": round(masked),
        "tflop_per_step": rounded(flops / 1e12),
        "matmul_tflops": {name.removeprefix("matmul "): rounded(value / 1e12) for name, value in rates.items()},
        "contenders": {},
        "errors": errors,
    }
    for name, values in times.items():
        if name.startswith("matmul "):
            continue
        seconds = Spread.of(values).median
        report["contenders"][name] = {
            "tokens_per_second": rounded(workload.tokens / seconds),
            "seconds_per_step": rounded(seconds),
            "share_of_matmul": rounded(flops / seconds / rate),
            "peak_memory_gib": rounded(memory[name] / GIB),
            "rounds": len(values),
            **{key: value for key, value in facts[name].items() if key != "seconds"},
        }
        if name != "mlx" and "mlx" in times:
            ratio = Spread.of_ratio(values, times["mlx"])
            report[f"ratio_{name}"] = rounded(ratio.median)
            report[f"ratio_{name}_range"] = ratio.range
    return report


COLUMNS = ["model", "contender", "ms a step", "tokens/s", "of bf16 matmul", "our speed-up", "peak memory", "preparing"]


def rows_of(report: dict[str, Any]) -> list[list[str]]:
    rows = []
    title = f"{report['model']} (B {report['batch']}, T {report['length']})"
    for name, part in report["contenders"].items():
        low_high = report.get(f"ratio_{name}_range")
        speed_up = f"{report[f'ratio_{name}']:.2f} ({low_high[0]:.2f} – {low_high[1]:.2f})" if low_high else ""
        rows.append(
            [title, NAMES[name], f"{part['seconds_per_step'] * 1e3:,.2f}", f"{part['tokens_per_second']:,.0f}",
             f"{part['share_of_matmul']:.1%}", speed_up, f"{part['peak_memory_gib']:.1f} GiB",
             f"{part['preparing_seconds']:.0f} s"]
        )  # fmt: skip
        title = ""
    for name, error in report["errors"].items():
        rows.append([title, NAMES[name], "failed", error[:60], "", "", "", ""])
        title = ""
    return rows


def table_of(reports: list[dict[str, Any]], machine: str) -> Table:
    table = Table("Training step on the GPU, bfloat16 over float32 masters", COLUMNS, left=2)
    for report in reports:
        table.rows += [*rows_of(report), None]
    rates = [rate for report in reports for rate in report["matmul_tflops"].values()]
    table.notes = [
        "Speed-up: median of the ratio within a round (95 % interval).",
        f"Matrix product of {MATRIX} in bfloat16: up to {max(rates, default=0.0):,.0f} TFLOP/s.",
        "The share counts the arithmetic that the step needs: masked rows of the head only, the same for all.",
        machine,
    ]
    return table


def groups(workloads: list[Workload], size: int) -> list[list[Workload]]:
    return [workloads[i : i + size] for i in range(0, len(workloads), size)]


def run_workloads(workloads: list[Workload], plan: Plan, total_seconds: float) -> list[dict[str, Any]]:
    from concurrent.futures import ThreadPoolExecutor

    end = time.monotonic() + total_seconds
    reports: list[dict[str, Any]] = []
    for group in groups(workloads, plan.together):
        if time.monotonic() > end:
            print(f"out of time: {', '.join(workload.name for workload in group)} left out", flush=True)
            continue
        runs = [WorkloadRun(workload, plan) for workload in group]
        try:
            progress(f"preparing {', '.join(workload.name for workload in group)}")
            with ThreadPoolExecutor(len(runs)) as pool:
                list(pool.map(lambda run: run.prepare_all(end), runs))
            for run in runs:
                if time.monotonic() > end:
                    print(f"out of time: {run.workload.name} left out", flush=True)
                    continue
                reports.append(run.measure())
                for row in rows_of(reports[-1]):
                    print("  ".join(filter(None, row)), flush=True)
                run.close()
        finally:
            for run in runs:
                run.close()
    return reports


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WORKLOADS), help=f"some of {', '.join(WORKLOADS)}")
    parser.add_argument("--contenders", default=",".join(DEFAULT), help=f"some of {', '.join(NAMES)}")
    parser.add_argument("--batch", type=count, help="batch size (default: that of the model's workload)")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--rounds", type=count, default=7)
    parser.add_argument(
        "--seconds-per-model", type=float, default=45.0, help="no round begins after this time (default 45)"
    )
    parser.add_argument(
        "--prepare-seconds", type=float, default=300.0, help="time limit for the preparation of a contender"
    )
    parser.add_argument(
        "--total-seconds", type=float, default=520.0, help="no model begins after this time (default 520)"
    )
    parser.add_argument("--together", type=count, default=3, help="models prepared in parallel (default 3)")
    parser.add_argument("--in-process", action="store_true", help="everything in this process")
    parser.add_argument("--quick", action="store_true", help="3 rounds of a third of a second")
    parser.add_argument("--smoke", action="store_true", help="tiny models, also without a GPU")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    chosen, contenders = options.only.split(","), tuple(options.contenders.split(","))
    for given, known in ((chosen, WORKLOADS), (contenders, NAMES)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    if "mlx" in contenders and importlib.util.find_spec("mlx") is None:
        parser.error("MLX is not installed; install it, or use --contenders eager,compiled")
    if set(contenders) != {"mlx"}:
        require("torch", "transformers")
    workloads = [replace(WORKLOADS[name], dropout=options.dropout) for name in chosen]
    if options.batch:
        workloads = [replace(workload, batch=options.batch) for workload in workloads]
    if options.smoke:
        workloads = [workload.small() for workload in workloads]
    plan = Plan(
        contenders=contenders,
        rounds=3 if options.quick or options.smoke else options.rounds,
        round_seconds=0.05 if options.smoke else 0.33 if options.quick else 1.0,
        seconds_per_model=options.seconds_per_model,
        prepare_seconds=options.prepare_seconds,
        together=1 if options.in_process else max(1, options.together),
        in_process=options.in_process,
    )
    machine, described = describe_machine("mlx", "torch", "transformers")
    reports = run_workloads(workloads, plan, options.total_seconds)
    table_of(reports, machine).show()
    if options.json:
        show_json({"models": {report["model"]: report for report in reports}, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
