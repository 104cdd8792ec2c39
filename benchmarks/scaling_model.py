"""Predicted efficiency of data-parallel training with many workers: a calculation, not a measurement.

    python -m benchmarks.scaling_model [--workers N] [--markdown]

In every step, a ring all-reduce sums the gradients: one pass to reduce, one pass to distribute. With n workers, G bytes
of gradients, a link of B bytes per second and a latency of l seconds, in k buckets:

    exchange = 2 (n - 1) / n · G / B  +  2 (n - 1) · k · l

The first term hardly grows with n. Backward is two thirds of a step, and gradients are sent as soon as they are
complete; those of the embeddings are complete last and cannot overlap. In a step that computes for C seconds, at least

    exposed = max(exchange - 2/3 C, exchange of the embeddings)

is spent waiting. The efficiency is C / (C + exposed); without overlap it is C / (C + exchange). The batch per worker is
constant: n workers have n times the logical batch.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

from benchmarks.common import Table, count, run_program
from glassbert.families.bert import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, BertConfig
from glassbert.models.config import EncoderConfig
from glassbert.models.flops import training_flops
from glassbert.models.model import Model

BUCKET = 4 * 2**20  # bytes, as in glassbert.training.distributed
BACKWARD = 2 / 3
MASKED = 0.15


@dataclass(frozen=True)
class Link:
    """A network link: nominal bits per second in one direction, and latency in seconds."""

    name: str
    bits: float
    latency: float

    def exchange(self, workers: int, size: float) -> float:
        """Seconds to sum `size` bytes over a ring of workers."""
        buckets = math.ceil(size / BUCKET)
        turns = 2 * (workers - 1)
        return turns / workers * size / (self.bits / 8) + turns * buckets * self.latency


LINKS = (
    Link("Ethernet 1 Gb/s", 1e9, 50e-6),
    Link("Ethernet 10 Gb/s", 10e9, 25e-6),
    Link("Ethernet 100 Gb/s", 100e9, 10e-6),
    Link("InfiniBand 400 Gb/s", 400e9, 2e-6),
    Link("NVLink 4 (450 GB/s)", 3.6e12, 3e-6),
)


@dataclass(frozen=True)
class Task:
    """A model, the batch of one worker, and the seconds per step of one worker alone."""

    name: str
    config: EncoderConfig
    rows: int
    length: int
    seconds: float

    def bytes(self) -> tuple[int, int]:
        """The bytes of all gradients in float32, and of those of the embeddings."""
        layout = Model(self.config, "mlm", engine="numpy", initialize=False).layout
        sizes = {name: 4 * math.prod(shape) for name, shape in layout.shapes.items()}
        return sum(sizes.values()), sum(size for name, size in sizes.items() if name.startswith("embeddings."))


@dataclass(frozen=True)
class Prediction:
    """Seconds of the parts of a step."""

    compute: float
    exchange: float
    last: float  # exchange of the embeddings' gradients, which are complete last

    def __str__(self) -> str:
        return f"{1e3 * self.exchange:,.1f}: {self.efficiency:.0%} ({self.efficiency_without_overlap:.0%})"

    @property
    def efficiency(self) -> float:
        return self.compute / (self.compute + max(self.exchange - BACKWARD * self.compute, self.last))

    @property
    def efficiency_without_overlap(self) -> float:
        return self.compute / (self.compute + self.exchange)


def predict(task: Task, link: Link, workers: int) -> Prediction:
    """The parts of a step with this number of workers."""
    everything, last = task.bytes()
    return Prediction(task.seconds, link.exchange(workers, everything), link.exchange(workers, last))


def seconds_at_rate(flops_per_second: float, config: EncoderConfig, rows: int, length: int) -> float:
    """The estimated seconds of a step that was not measured, at a given rate of arithmetic."""
    return training_flops(config, rows, length, scored_rows=round(rows * length * MASKED)) / flops_per_second


BERT_BASE = BertConfig.get_base_config()
# Seconds of one worker alone, from docs/lab-notes.md: benchmarks.train_step on the CPU, benchmarks.gpu on the H200.
WORKERS: dict[str, tuple[Task, ...]] = {
    "2 CPU cores": (
        Task("Mini", MINI_BERT_CONFIG, 32, 64, 0.1335),
        Task("Larger", LARGER_BERT_CONFIG, 8, 128, 0.5692),
        Task("BERT-base", BERT_BASE, 8, 128, seconds_at_rate(150e9, BERT_BASE, 8, 128)),
    ),
    "H200": (
        Task("Mini", MINI_BERT_CONFIG, 1024, 64, 0.0066),
        Task("Larger", LARGER_BERT_CONFIG, 256, 128, 0.01255),
        Task("BERT-base", BERT_BASE, 256, 128, 0.05197),
    ),
}


def table_of(workers: int) -> Table:
    columns = ["each worker", "model (rows x tokens)", "MB", "ms a step", *(link.name for link in LINKS)]
    table = Table(f"PREDICTED for {workers} workers: ms of exchange, efficiency (without overlap)", columns, left=2)
    for kind, tasks in WORKERS.items():
        for task in tasks:
            found = [predict(task, link, workers) for link in LINKS]
            cells = [str(one) for one in found]
            shape = f"{task.name} ({task.rows} x {task.length})"
            table.rows.append([kind, shape, f"{task.bytes()[0] / 1e6:,.0f}", f"{1e3 * task.seconds:,.1f}", *cells])
        table.rows.append(None)
    table.notes = ["Calculated from nominal bandwidth and latency of an idle network; not a measurement."]
    return table


def markdown(table: Table) -> str:
    """The table in Markdown, as in docs/scaling.md."""
    rows = [table.columns, ["---"] * len(table.columns), *(row for row in table.rows if row is not None)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=count, default=8, help="number of workers (default 8)")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown, as in docs/scaling.md")
    options = parser.parse_args(arguments)
    table = table_of(options.workers)
    if options.markdown:
        print(markdown(table))
    else:
        table.show()


if __name__ == "__main__":
    run_program(main)
