"""What many workers would give on machines that are not here: arithmetic, not a measurement.

    python -m benchmarks.scaling_model [--workers N] [--markdown]

Every step each worker sends its gradients once around a ring and the sums once around again. With n workers, G bytes
of gradients, a link of B bytes a second and l seconds before the first byte, in k buckets:

    exchange = 2 (n - 1) / n · G / B  +  2 (n - 1) · k · l

The first term hardly grows with n: that is why a ring scales. Backward is two thirds of a step, and what is complete
travels while the rest is computed; the embeddings are complete last, and nothing hides them. So of a step that computes
for C seconds at least

    exposed = max(exchange - 2/3 C, exchange of the embeddings)

is spent waiting, and the efficiency is C / (C + exposed); without overlap it is C / (C + exchange). Workers keep their
batch: n of them have n times the logical batch.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

from benchmarks.common import Table
from glassbert.families.bert import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, BertConfig
from glassbert.models.config import EncoderConfig
from glassbert.models.flops import training_flops
from glassbert.models.model import Model

BUCKET = 4 * 2**20  # bytes, as glassbert.training.distributed has them
BACKWARD = 2 / 3
MASKED = 0.15


@dataclass(frozen=True)
class Link:
    """Nominal figures: bits a second in one direction, and seconds until the first byte arrives."""

    name: str
    bits: float
    latency: float

    def exchange(self, workers: int, size: float) -> float:
        """Seconds for summing `size` bytes over a ring of workers."""
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
    """A model, the batch that one worker computes, and how many seconds a step of it takes alone."""

    name: str
    config: EncoderConfig
    rows: int
    length: int
    seconds: float

    def bytes(self) -> tuple[int, int]:
        """Of all gradients in float32, and of those of the embeddings."""
        layout = Model(self.config, "mlm", engine="numpy", initialize=False).layout
        sizes = {name: 4 * math.prod(shape) for name, shape in layout.shapes.items()}
        return sum(sizes.values()), sum(size for name, size in sizes.items() if name.startswith("embeddings."))


@dataclass(frozen=True)
class Prediction:
    """Seconds of a step's parts, for n workers on a link."""

    compute: float
    exchange: float
    last: float  # the exchange of what is complete at the very end

    def __str__(self) -> str:
        return f"{1e3 * self.exchange:,.1f}: {self.efficiency:.0%} ({self.efficiency_without_overlap:.0%})"

    @property
    def efficiency(self) -> float:
        return self.compute / (self.compute + max(self.exchange - BACKWARD * self.compute, self.last))

    @property
    def efficiency_without_overlap(self) -> float:
        return self.compute / (self.compute + self.exchange)


def predict(task: Task, link: Link, workers: int) -> Prediction:
    """What a step would need with so many workers."""
    everything, last = task.bytes()
    return Prediction(task.seconds, link.exchange(workers, everything), link.exchange(workers, last))


def at_rate(flops_per_second: float, config: EncoderConfig, rows: int, length: int) -> float:
    """Seconds of a step that nobody has timed, at the rate of those that were."""
    return training_flops(config, rows, length, scored_rows=round(rows * length * MASKED)) / flops_per_second


BERT_BASE = BertConfig.get_base_config()
# Seconds of one worker alone, from docs/lab-notes.md: benchmarks.train_step on the CPU, benchmarks.gpu on the H200.
WORKERS: dict[str, tuple[Task, ...]] = {
    "2 CPU cores": (
        Task("Mini", MINI_BERT_CONFIG, 32, 64, 0.1335),
        Task("Larger", LARGER_BERT_CONFIG, 8, 128, 0.5692),
        Task("BERT-base", BERT_BASE, 8, 128, at_rate(150e9, BERT_BASE, 8, 128)),
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
    table.notes = ["A model of nominal bandwidth and latency, not a measurement; nobody else uses the network."]
    return table


def markdown(table: Table) -> str:
    """The table as docs/scaling.md has it."""
    rows = [table.columns, ["---"] * len(table.columns), *(row for row in table.rows if row is not None)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8, help="how many workers (default 8)")
    parser.add_argument("--markdown", action="store_true", help="print the table as docs/scaling.md has it")
    options = parser.parse_args(arguments)
    table = table_of(options.workers)
    if options.markdown:
        print(markdown(table))
    else:
        table.show()


if __name__ == "__main__":
    main()
