"""Parts of a corpus on a cluster: the same function over units as in the processes of one machine.

The folder of the corpus must be one that all machines share. A part is moved into place when it is complete, so a task
that Ray runs twice writes the same file twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from glassbert.errors import GlassBertError, TextError
from glassbert.on_ray.cluster import RETRIES, connected, explain_lost_workers
from glassbert.text.corpus.parts import Unit
from glassbert.text.corpus.workers import Job, MakeParts, make


def make_or_explain(unit: Unit, digest: str, job: Job) -> int | str:
    """The number of the unit whose part was written, or a sentence that says what is wrong with it."""
    try:
        return make(unit, digest, job)
    except GlassBertError as error:
        return str(error)


def parts_on_cluster(address: str | None = None, workers: int | None = None) -> MakeParts:
    """A function in the place of `glassbert.text.corpus.workers.make_all`."""

    def make_all(units: Iterable[tuple[Unit, str]], job: Job, _: int) -> Iterator[int]:
        with connected(address, workers) as cluster:
            ray = cluster.ray
            task = ray.remote(num_cpus=1, max_retries=RETRIES)(make_or_explain)
            shared = ray.put(replace(job, folder=job.folder.absolute(), tokenizer=job.tokenizer.absolute()))
            waiting: list[Any] = []

            def finished(most: int) -> Iterator[int]:
                """Wait until at most so many tasks are left."""
                while len(waiting) > most:
                    done, waiting[:] = ray.wait(waiting)
                    with explain_lost_workers(ray):
                        numbers = ray.get(done)
                    for number in numbers:
                        if isinstance(number, str):
                            raise TextError(number)
                        yield number

            for unit, digest in units:
                waiting.append(task.remote(unit, digest, shared))
                yield from finished(2 * cluster.workers)
            yield from finished(0)

    return make_all
