"""One worker of `benchmarks.scaling`: trains on its share of every batch; rank 0 prints the times as JSON.

Three ways of summing gradients take turns in the same processes: during backward ("overlapped"), after backward
("afterwards"), and not at all ("apart"). The difference from "apart" is the cost of communication.
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import partial
from typing import Any

from benchmarks.common import interleave, timed
from benchmarks.train_step import BATCHES, WORKLOADS, Workload
from glassbert.models.model import Model
from glassbert.training.distributed import find_workers
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from glassbert.training.workers import SingleWorker, Workers

WAYS = ("overlapped", "afterwards", "apart")


def make_step(way: str, workload: Workload, model: Model, workers: Workers) -> Any:
    """A function that runs step i with this worker's share of the batch."""
    partners = workers if way != "apart" else SingleWorker()
    train = TrainingStep(model, AdamW(model, 1e-4), workers=partners)
    share = workload.batch // workers.size
    rows = slice(workers.rank * share, (workers.rank + 1) * share)
    batches = [(batch.input_ids[rows], batch.labels[rows]) for batch in workload.batches()]

    def step(i: int) -> None:
        if hasattr(workers, "overlap"):
            workers.overlap = way == "overlapped"
        float(train(*batches[i % BATCHES]).loss)

    return step


def measure(workload: Workload, workers: Workers, engine: str, threads: int, rounds: int) -> dict[str, list[float]]:
    """Seconds per step of every round, by way of summing."""
    model = Model(workload.config, "mlm", engine=engine, threads=threads)
    model.set_training(True)
    ways = WAYS if workers.size > 1 else WAYS[-1:]
    steps = {way: make_step(way, workload, model, workers) for way in ways}

    def turn(step: Any) -> float:
        workers.wait_for_all()
        return timed(step, workload.steps, workers.wait_for_all)

    # No control: all workers must run the same rounds.
    return interleave({way: partial(turn, step) for way, step in steps.items()}, rounds, settle=0.0, control=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=list(WORKLOADS), default="mini")
    parser.add_argument("--engine", default="numpy")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with find_workers(options.engine) as workers:
        times = measure(WORKLOADS[options.preset], workers, options.engine, options.threads, options.rounds)
        if workers.leads:
            medians = {way: statistics.median(values) for way, values in times.items()}
            print(json.dumps({"workers": workers.name, "seconds": medians, "rounds": times}), flush=True)


if __name__ == "__main__":
    main()
