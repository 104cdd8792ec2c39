"""Pieces of files on a cluster: Ray Data gives each to a worker, and gives it to another one if that worker dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from glassbert.bulk.inputs import Piece
from glassbert.bulk.job import Executor, Make, Part, Work, Worker
from glassbert.errors import GlassBertError, InputError
from glassbert.finetuning.predictor import Predictor
from glassbert.on_ray.cluster import REMEDY, RETRIES, Cluster, connected, explain_lost_workers


class Tries:
    """Counts how often each piece was begun, in a process of its own: that of a worker may end."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def begin(self, number: int) -> int:
        self.counts[number] += 1
        return self.counts[number]


def begin_on_cluster(tries: Any, number: int) -> int:
    """`Tries.begin` in its process; 1 where that cannot be reached."""
    import ray

    try:
        return ray.get(tries.begin.remote(number))
    except ray.exceptions.RayError:
        return 1


class RayWorker:
    """The function over batches: a batch is one piece, its result one row about the part that was written.

    What is wrong with a model or a file is a sentence in the result: Ray would wrap it in its own errors. Ray Data
    begins a piece again without limit if its worker dies, so `begin` counts how often that was.
    """

    def __init__(self, work: Work, begin: Callable[[int], int]):
        self.work, self.begin = work, begin
        self.worker: Worker | None = None
        try:
            self.worker = Worker(work)
        except GlassBertError as error:
            self.problem = str(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        made = [self.make(Piece(*map(int, values))) for values in zip(*(batch[name] for name in FIELDS), strict=True)]
        return {name: [one[name] for one in made] for name in made[0]}

    def make(self, piece: Piece) -> dict[str, Any]:
        if self.worker is None:
            return {**Part(piece.number, 0, 0)._asdict(), PROBLEM: self.problem}
        if self.begin(piece.number) > 1 + RETRIES:
            rows = f"{self.work.inputs.files[piece.file].name}, rows {piece.start + 1:,} to {piece.stop:,}"
            problem = f"{rows}: the worker died {1 + RETRIES} times, {REMEDY}"
            return {**Part(piece.number, 0, 0)._asdict(), PROBLEM: problem}
        try:
            return {**self.worker.make(piece)._asdict(), PROBLEM: ""}
        except GlassBertError as error:
            return {**Part(piece.number, 0, 0)._asdict(), PROBLEM: str(error)}


FIELDS, PROBLEM = ("number", "file", "start", "stop"), "problem"


def on_cluster(address: str | None = None, workers: int | None = None) -> Executor:
    """An executor for `run_job`: workers in the processes of a cluster."""

    @contextmanager
    def executor(work: Work, _: Predictor) -> Iterator[Make]:
        with connected(address, workers, work.threads) as cluster:
            yield partial(_make, cluster, work)

    return executor


def _make(cluster: Cluster, work: Work, pieces: list[Piece]) -> Iterator[Part]:
    data = cluster.ray.data
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    tries = cluster.ray.remote(num_cpus=0)(Tries).remote()
    items = [{name: getattr(piece, name) for name in FIELDS} for piece in pieces]
    found = data.from_items(items, override_num_blocks=len(items)).map_batches(
        RayWorker,
        fn_constructor_args=(work, partial(begin_on_cluster, tries)),
        batch_size=1,
        num_cpus=cluster.threads,
        num_gpus=1 if work.engine == "mlx" and cluster.ray.cluster_resources().get("GPU") else 0,
        compute=data.ActorPoolStrategy(size=min(cluster.workers, len(pieces))),
    )
    with explain_lost_workers(cluster.ray):
        for row in found.iter_rows():
            if row[PROBLEM]:
                raise InputError(row[PROBLEM])
            yield Part(**{name: int(row[name]) for name in Part._fields})
