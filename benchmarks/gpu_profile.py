"""Where the time of a training step on an NVIDIA GPU goes: a table of its kernels that adds up.

    python3 -m benchmarks.gpu_profile [--only NAME,...] [--steps 20] [--kernels 12] [--json [FILE]]

The steps are those of `benchmarks.gpu`. CUPTI, through PyTorch's profiler, records every kernel that MLX starts, with
its beginning and end. Kernels are put together by what they do; "no kernel runs" is the rest of the step, so the rows
add up. Two lines below say whether the GPU waits for its host: how long a step takes without the profiler, and how long
the host needs to submit it. `--kernels N` lists the N most expensive kernels by name.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.common import (
    Table,
    add_json_option,
    count,
    describe_machine,
    progress,
    require,
    rounded,
    run_program,
    show_json,
)
from benchmarks.gpu_contenders import WORKLOADS, Mlx, Workload
from glassbert.engines.mlx_cuda.launch import on_cuda
from glassbert.models.flops import training_flops

# What a kernel does, by its name: the first pattern that is found counts.
KINDS = (
    ("attention", r"sdpa|flash|fmha|attention|cudnn_generated"),
    ("products", r"gemm|gemv|cutlass|nvjet|xmma|splitK|cublas"),
    ("layer norm", r"layer_?norm|rms_?norm"),
    ("bias gradients, ends of layer norms", r"glassbert_(column|finish)_sums"),
    ("cross-entropy", r"cross_entropy|logsumexp|softmax"),
    ("many parameters at once", r"glassbert_(each|sum_of_squares)"),
    ("embedding and chosen rows", r"gather|scatter|slice_update|glassbert_(table|add)_rows"),
    ("activations, rotary positions, heads", r"glassbert_"),
    ("sums", r"reduce"),
    ("copies", r"copy|memcpy|memset|fill"),
)
REST = "elementwise"
IDLE = "no kernel runs"


@dataclass(frozen=True)
class Kernel:
    name: str
    start: int  # nanoseconds
    end: int


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if re.search(pattern, name, re.IGNORECASE)), REST)


def busy(kernels: Iterable[Kernel]) -> int:
    """Nanoseconds in which at least one kernel runs."""
    total, until = 0, 0
    for kernel in sorted(kernels, key=lambda one: one.start):
        total += max(0, kernel.end - max(kernel.start, until))
        until = max(until, kernel.end)
    return total


def recorded(step: Any, finish: Any, steps: int) -> list[Kernel]:
    """The kernels of some steps."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for i in range(steps):
            step(i)
        finish()
    events = profiler.profiler.kineto_results.events()
    return [
        Kernel(event.name(), event.start_ns(), event.start_ns() + event.duration_ns())
        for event in events
        if "CUDA" in str(event.device_type())
    ]


def measure(workload: Workload, steps: int) -> dict[str, Any]:
    progress(f"{workload.name}: compiling")
    contender = Mlx(workload)
    contender.prepare("mlx")
    progress(f"{workload.name}: measuring")
    start = time.perf_counter()
    for i in range(steps):
        contender.step(i)
    submitted = time.perf_counter() - start
    contender.finish()
    whole = time.perf_counter() - start
    recorded(contender.step, contender.finish, 2)  # the profiler itself needs a start
    kernels = recorded(contender.step, contender.finish, steps)
    batches = contender.batches
    masked = round(sum(batch.masked for batch in batches) / len(batches))
    return {
        **summary(kernels, steps),
        "model": workload.name,
        "batch": workload.batch,
        "length": workload.length,
        "seconds": whole / steps,
        "host_seconds": submitted / steps,
        "tflop": training_flops(workload.config, workload.batch, workload.length, scored_rows=masked) / 1e12,
        "matmul_tflops": contender.matmul() / 1e12,
        "steps": steps,
    }


def summary(kernels: list[Kernel], steps: int) -> dict[str, Any]:
    """Kinds and names of kernels with their milliseconds and launches a step, the most expensive first."""
    span = max(one.end for one in kernels) - min(one.start for one in kernels)
    kinds, names = defaultdict(list), defaultdict(list)
    for one in kernels:
        kinds[kind_of(one.name)].append(one.end - one.start)
        names[one.name].append(one.end - one.start)

    def rows(groups: dict[str, list[int]]) -> list[dict[str, Any]]:
        found = [
            {"name": name, "ms": sum(each) / steps / 1e6, "launches": len(each) / steps}
            for name, each in groups.items()
        ]
        return sorted(found, key=lambda row: -row["ms"])  # type: ignore[operator,return-value]

    overlapping = sum(map(sum, kinds.values())) - busy(kernels)
    return {
        "kinds": rows(kinds),
        "kernels": rows(names),
        "span_ms": span / steps / 1e6,
        "idle_ms": (span - busy(kernels)) / steps / 1e6,
        "overlap_ms": overlapping / steps / 1e6,
        "launches": len(kernels) / steps,
    }


def table_of(report: dict[str, Any], most: int, machine: str) -> Table:
    table = Table(
        f"A step of {report['model']} (B {report['batch']}, T {report['length']}) on the GPU, bfloat16",
        ["what runs", "ms", "share", "launches"],
    )
    span = report["span_ms"]
    for row in report["kinds"]:
        table.rows.append([row["name"], f"{row['ms']:.2f}", f"{row['ms'] / span:.1%}", f"{row['launches']:.0f}"])
    table.rows.append([IDLE, f"{report['idle_ms']:.2f}", f"{report['idle_ms'] / span:.1%}", ""])
    if report["overlap_ms"] > 0.005:
        overlap = -report["overlap_ms"]
        table.rows.append(["at the same time", f"{overlap:.2f}", f"{overlap / span:.1%}", ""])
    table.rows += [None, ["sum", f"{span:.2f}", "100.0%", f"{report['launches']:.0f}"]]
    table.rows.append(["without the profiler", f"{report['seconds'] * 1e3:.2f}", "", ""])
    table.rows.append(["the host submits a step in", f"{report['host_seconds'] * 1e3:.2f}", "", ""])
    if most:
        table.rows.append(None)
    for row in report["kernels"][:most]:
        name = row["name"] if len(row["name"]) <= 90 else row["name"][:60] + " ... " + row["name"][-25:]
        table.rows.append([name, f"{row['ms']:.3f}", f"{row['ms'] / span:.1%}", f"{row['launches']:.0f}"])
    needed = report["tflop"] / report["matmul_tflops"] * 1e3
    share = needed / report["seconds"] / 1e3
    products = sum(row["ms"] for row in report["kinds"] if row["name"] == "products")
    table.notes = [
        f"The arithmetic of the step takes {needed:.2f} ms at the rate of a large product "
        f"({report['matmul_tflops']:,.0f} TFLOP/s): {share:.1%} of that rate. Its products take {products:.2f} ms.",
        f"Means of {report['steps']} steps. {machine}",
    ]
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WORKLOADS), help=f"some of {', '.join(WORKLOADS)}")
    parser.add_argument("--steps", type=count, default=20, help="recorded steps (default 20)")
    parser.add_argument("--kernels", type=int, default=12, help="kernels listed by name (default 12)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if unknown := [name for name in chosen if name not in WORKLOADS]:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(WORKLOADS)}")
    require("mlx", "torch")
    if not on_cuda():
        parser.exit(1, "this program needs an NVIDIA GPU, and MLX for CUDA (pip install 'glassbert[cuda]')\n")
    machine, described = describe_machine("mlx", "torch")
    reports = []
    for name in chosen:
        reports.append(measure(WORKLOADS[name], options.steps))
        table_of(reports[-1], options.kernels, machine).show()
    if options.json:
        kept = [{k: rounded(v) if isinstance(v, float) else v for k, v in report.items()} for report in reports]
        show_json({"profiles": kept, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
