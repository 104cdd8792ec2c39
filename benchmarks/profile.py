"""Where the time of a training step on the CPU goes: a table that adds up.

    python -m benchmarks.profile [--preset mini|larger|both] [--precision float32|bfloat16|both] [--json [FILE]]

One thread runs the same batches as `benchmarks.train_step`. Every operation, and what its kernel does inside, is timed
without what it calls; "between operations" is what remains, so the rows add up to the whole. Times are processor time
of the thread, so other programs disturb them little. `GFLOP/s` counts multiplications and additions of products; `of
the product` divides them by the rate of a large product in the same precision on one thread, measured in between.

The last line measures the same step with all threads. Two threads that never wait for each other take half the time.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.common import Table, add_json_option, count, describe_machine, progress, rounded, run_program, show_json
from benchmarks.train_step import BATCHES, WORKLOADS
from glassbert.engines import onednn
from glassbert.proof.cases import settings

PRECISIONS = ("float32", "bfloat16")
REST = "between operations: residual sums, Python"


class Clock:
    """Processor time by name, each without the names that ran inside it, and the arithmetic of products."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.flops: dict[str, float] = defaultdict(float)
        self.running: list[str] = [REST]
        self.since = time.thread_time()

    def switch(self) -> None:
        now = time.thread_time()
        self.seconds[self.running[-1]] += now - self.since
        self.since = now

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        self.switch()
        self.running.append(name)
        try:
            yield
        finally:
            self.switch()
            self.running.pop()

    def wrap(self, name: str, function: Callable[..., Any], flops: Callable[..., float] | None = None) -> Any:
        """The function, timed. `hints_of` reads the signature of the function itself."""

        def run(*arguments: Any, **options: Any) -> Any:
            with self.timed(name):
                result = function(*arguments, **options)
            if flops is not None:
                self.flops[name] += flops(*arguments)
            return result

        run.__wrapped__ = function  # type: ignore[attr-defined]
        return run


def linear_flops(x: Any, weight: Any, *_: Any) -> float:
    return 2.0 * x.size * len(weight)


def attention_flops(q: Any, k: Any, *_: Any) -> float:
    return 4.0 * q.size * k.shape[2]


def operation_names() -> dict[str, tuple[str, Any]]:
    """Operations of a step -> the row of the table, and the arithmetic of their forward."""
    rows: dict[str, tuple[str, Any]] = {
        "linear": ("linear maps", linear_flops),
        "attention": ("attention: products", attention_flops),
        "layer_norm": ("layer norm", None),
        "dropout": ("dropout: masking", None),
        "embedding": ("embedding", None),
        "take_rows": ("embedding", None),
        "cross_entropy": ("cross-entropy", None),
    }
    return {**rows, **dict.fromkeys(("relu", "gelu", "gelu_tanh", "geglu"), ("activation", None))}


def timed_operations(engine: Any, clock: Clock) -> dict[str, Any]:
    """The engine's own functions with clocks around them, for `with_operations`."""
    replaced = {}
    for name, (row, flops) in operation_names().items():
        forward, backward = engine.ops.forward_and_backward(name)
        vocabulary: list[Any] = []  # the states of linear maps remember their arithmetic for the backward

        def counted(*arguments: Any, flops: Any = flops, seen: list[Any] = vocabulary) -> float:
            seen.append(flops(*arguments))
            return seen[-1]

        replaced[name] = clock.wrap(row, forward, counted if flops else None)
        row_back = f"{row}, backward"
        back = clock.wrap(row_back, backward)
        if flops:
            back = counted_backward(clock, back, row_back, vocabulary)
        replaced[f"{name}_backward"] = back
    return replaced


def counted_backward(clock: Clock, function: Any, row: str, seen: list[float]) -> Any:
    """Two products for each one of the forward; the backward runs in the opposite order."""

    def run(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        clock.flops[row] += 2.0 * seen.pop()
        return result

    run.__wrapped__ = function  # type: ignore[attr-defined]
    return run


@contextlib.contextmanager
def inner_clocks(clock: Clock) -> Iterator[None]:
    """Clocks inside kernels, around masks of dropout, and around what a step does besides a pass."""
    from glassbert.arrays import FlatGradients
    from glassbert.engines import bfloat16_kernels, numpy_kernels
    from glassbert.engines.numpy_engine import NumpyDropout
    from glassbert.training.optimizers.base import Optimizer

    both = (numpy_kernels, bfloat16_kernels)
    places: list[tuple[Any, str, str]] = [
        (numpy_kernels, "_transposed", "attention: transposing"),
        *((module, "_softmax", "attention: softmax") for module in both),
        *(
            (module, "_softmax_backward", "attention: softmax, backward")
            for module in (numpy_kernels, bfloat16_kernels)
        ),
        *((module, "_masked", "dropout: masking") for module in both),
        (bfloat16_kernels, "to_bfloat16", "rounding to bfloat16"),
        (NumpyDropout, "mask", "dropout: drawing masks"),
        (Optimizer, "move", "optimizer: AdamW"),
        (Optimizer, "gradient_norm", "optimizer: norm of the gradient"),
        (FlatGradients, "add", "gradients: storing"),
        (FlatGradients, "add_rows", "gradients: storing"),
        (FlatGradients, "clear", "gradients: storing"),
    ]
    with contextlib.ExitStack() as stack:
        for owner, attribute, row in places:
            if hasattr(owner, attribute):
                stack.enter_context(settings(owner, **{attribute: clock.wrap(row, getattr(owner, attribute))}))
        yield


class Steps:
    """A model that trains on one thread, with clocks."""

    def __init__(self, preset: str, precision: str, threads: int | None):
        from glassbert.models.model import Model
        from glassbert.training.optimizers import AdamW
        from glassbert.training.step import TrainingStep

        workload = WORKLOADS[preset]
        self.batches = workload.batches()
        model = Model(workload.config, "mlm", engine="numpy", dtype=precision, threads=threads)
        if model.engine.dtype_name != precision:
            raise SystemExit(f"this machine has no {precision}; `glassbert doctor` says why")
        model.set_training(True)
        self.model, self.plain_engine = model, model.engine
        self.train = TrainingStep(model, AdamW(model, 1e-4))

    def step(self, i: int) -> None:
        batch = self.batches[i % BATCHES]
        self.train(batch.input_ids, batch.labels)

    def profiled(self, i: int) -> Clock:
        clock = Clock()
        self.model.engine = self.plain_engine.with_operations(timed_operations(self.plain_engine, clock))
        with inner_clocks(clock):
            self.step(i)
            clock.switch()
        self.model.engine = self.plain_engine
        return clock


def product_rate(precision: str, size: int = 1_024, times: int = 10) -> float:
    """GFLOP/s of a large product on one thread, by processor time."""
    from glassbert.engines.threads import single_threaded_blas

    left, right = np.random.default_rng(0).random((2, size, size), dtype=np.float32)
    product, multiply = np.empty_like(left), np.matmul
    if precision == "bfloat16":
        left, right, multiply = onednn.to_bfloat16(left), onednn.to_bfloat16(right), onednn.matmul
    with single_threaded_blas():
        multiply(left, right, product)
        start = time.thread_time()
        for _ in range(times):
            multiply(left, right, product)
        return 2 * size**3 * times / (time.thread_time() - start) / 1e9


def measure(preset: str, precision: str, rounds: int) -> dict[str, Any]:
    progress(f"{preset}, {precision}: profiling")
    alone, together = Steps(preset, precision, 1), Steps(preset, precision, None)
    clocks, bare, parallel, rates = [], [], [], []
    for steps in (alone, together):
        steps.step(0)
    alone.profiled(0)
    for i in range(1, rounds + 1):
        rates.append(product_rate(precision))
        start = time.thread_time()
        alone.step(i)
        bare.append(time.thread_time() - start)
        clocks.append(alone.profiled(i))
        start = time.perf_counter()
        together.step(i)
        parallel.append(time.perf_counter() - start)
    rate = statistics.median(rates)
    rows = []
    for name in sorted({name for clock in clocks for name in clock.seconds}):
        seconds = statistics.fmean(clock.seconds[name] for clock in clocks)
        flops = statistics.fmean(clock.flops[name] for clock in clocks)
        rows.append({"name": name, "seconds": seconds, "gflops": flops / seconds / 1e9 if flops else None})
    whole = math.fsum(row["seconds"] for row in rows)
    for row in rows:
        row["share"] = row["seconds"] / whole
        row["of_product"] = None if row["gflops"] is None else row["gflops"] / rate
    rows.sort(key=lambda row: -row["seconds"])
    needed = math.fsum(statistics.fmean(clock.flops[row["name"]] for clock in clocks) for row in rows)
    return {
        "preset": preset,
        "precision": precision,
        "rows": rows,
        "seconds": whole,
        "seconds_without_clocks": statistics.median(bare),
        "seconds_all_threads": statistics.median(parallel),
        "threads": together.plain_engine.threads,
        "product_gflops": rate,
        "gflop": needed / 1e9,
        "of_product": needed / 1e9 / statistics.median(bare) / rate,
        "rounds": rounds,
    }


def table_of(report: dict[str, Any], machine: str) -> Table:
    workload = WORKLOADS[report["preset"]]
    table = Table(
        f"A step of {report['preset']} (B {workload.batch}, T {workload.length}) in {report['precision']}, one thread",
        ["part", "ms", "share", "GFLOP/s", "of the product"],
    )
    for row in report["rows"]:
        rate = ("", "") if row["gflops"] is None else (f"{row['gflops']:.0f}", f"{row['of_product']:.0%}")
        table.rows.append([row["name"], f"{row['seconds'] * 1e3:.2f}", f"{row['share']:.1%}", *rate])
    table.rows.append(None)
    table.rows.append(["sum", f"{report['seconds'] * 1e3:.2f}", "100.0%", "", ""])
    bare = report["seconds_without_clocks"]
    whole = report["gflop"] / bare
    table.rows.append(["without clocks", f"{bare * 1e3:.2f}", "", f"{whole:.0f}", f"{report['of_product']:.0%}"])
    share = bare / report["threads"] / report["seconds_all_threads"]
    label = f"{report['threads']} threads, wall clock"
    table.rows.append([label, f"{report['seconds_all_threads'] * 1e3:.2f}", "", "", f"{share:.0%} of the ideal"])
    table.notes = [
        f"A product of 1,024 x 1,024 runs at {report['product_gflops']:.0f} GFLOP/s on one thread.",
        f"Means of {report['rounds']} steps in processor time; 'without clocks' and threads: medians.",
        machine,
    ]
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=[*WORKLOADS, "both"], default="both")
    parser.add_argument("--precision", choices=[*PRECISIONS, "both"], default="both")
    parser.add_argument("--rounds", type=count, default=9, help="number of rounds (default 9)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    machine, described = describe_machine()
    presets = list(WORKLOADS) if options.preset == "both" else [options.preset]
    precisions = PRECISIONS if options.precision == "both" else (options.precision,)
    if options.precision == "both" and onednn.why_not():
        print(f"without bfloat16: {onednn.why_not()}")
        precisions = ("float32",)
    reports = [measure(preset, precision, options.rounds) for preset in presets for precision in precisions]
    for report in reports:
        table_of(report, machine).show()
    if options.json:
        kept = [{k: rounded(v) if isinstance(v, float) else v for k, v in report.items()} for report in reports]
        show_json({"profiles": kept, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
