"""Workers over MPI: processes of one machine or of many, `mpirun -n 4 glassbert pretrain ...`.

Backward completes the flat gradient buffer from its end to its front: head, last layer, ..., embeddings. What lies
behind the mark is complete, and as soon as that is a few megabytes its sum is begun.

Nobody blocks inside MPI: a process that waits looks again and again, so that it sleeps in between, hears signals, and
can say that a fellow is lost.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
import sys
import time
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI

from glassbert.arrays import FlatGradients, Gradients
from glassbert.engines.threads import usable_cores
from glassbert.training.distributed.requests import Requests
from glassbert.training.workers import WorkerLost, Workers

BUCKET = 4 * 2**20  # bytes: enough to fill a network, few enough to begin early
TIMEOUT = (
    600.0  # seconds without an answer, after which a fellow counts as lost; GLASSBERT_WORKER_TIMEOUT says otherwise
)
GRACE = 5.0  # seconds that the leader goes on waiting once it was told to stop
SPOKEN_AFTER = 0.1  # seconds: some launchers kill the rest a quarter of a second after a worker has died
LAST_WORDS = "Told to stop, and another worker has not finished the step. If it has died, the last checkpoint is whole."
LEADER_FIRST = 1.0  # seconds in which the leader may tell an error that all of them have


class MpiWorkers(Workers):
    """The processes of an MPI communicator, each with a NumPy engine."""

    def __init__(self, communicator: Any = None, *, overlap: bool = True, timeout: float | None = None):
        self._communicator = (communicator or MPI.COMM_WORLD).Dup()  # our sums must not meet those of others
        self.rank, self.size = self._communicator.rank, self._communicator.size
        self.name = f"{self.size} processes over MPI"
        self.overlap = overlap and MPI.Query_thread() == MPI.THREAD_MULTIPLE  # sums are begun and tended by any thread
        self.timeout = timeout or float(os.environ.get("GLASSBERT_WORKER_TIMEOUT", TIMEOUT))
        self.bucket = BUCKET
        self._mark: int | None = None  # gradients from here on are on their way
        self._requests = Requests(MPI.Request.Testall, in_background=self.overlap)
        self._told: float | None = None  # when this worker first heard that it shall stop, in the middle of a sum
        self._spoke = False
        self._parted = False
        atexit.register(self._leave)
        self.threads = self._fair_share()

    # ---- sums -----------------------------------------------------------------------------------------------------

    def sum_(self, array: np.ndarray) -> np.ndarray:
        self._begin(array)
        self._requests.wait(self._patience)
        return array

    def total(self, numbers: np.ndarray) -> np.ndarray:
        return self.sum_(numbers.copy())

    def wait_for_all(self) -> None:
        self._begin(np.zeros(1, np.int32))
        self._requests.wait(lambda waited: None)

    def finished(self, place: str, gradients: Gradients) -> None:
        if self.overlap and isinstance(gradients, FlatGradients):
            self._sum_from(_start_of(place, gradients), gradients, at_least=self.bucket)

    def sum_gradients(self, gradients: Any) -> Any:
        self._sum_from(0, gradients)
        self._requests.wait(self._patience)
        self._mark = None
        gradients.mark_all_full()
        return gradients

    def _sum_from(self, start: int | None, gradients: FlatGradients, at_least: int = 1) -> None:
        """Begin the sum of what lies between `start` and the mark, if that is enough to be worth it."""
        flat = gradients.flat
        end = len(flat) if self._mark is None else self._mark
        if start is not None and (end - start) * flat.itemsize >= at_least:
            _fill_up(gradients, start, end)
            self._begin(flat[start:end])
            self._mark = start

    def _begin(self, array: np.ndarray) -> None:
        self._requests.add(self._communicator.Iallreduce(MPI.IN_PLACE, array))

    # ---- fellows that are lost ------------------------------------------------------------------------------------

    def _patience(self, waited: float) -> None:
        now = time.monotonic()
        if self.leads and self._told is None and self.told_to_stop():
            self._told = now
        since = 0.0 if self._told is None else now - self._told
        if since > SPOKEN_AFTER and not self._spoke:
            self._spoke = True
            print(LAST_WORDS, file=sys.stderr, flush=True)
        if since > GRACE:
            raise WorkerLost(
                f"worker {self.rank} was told to stop while it waited for the other {self.size - 1}: one of them has "
                f"died, or the job was cancelled in the middle of a step"
            )
        if waited > self.timeout:
            raise WorkerLost(
                f"worker {self.rank} on {socket.gethostname()} has waited {waited:.0f} seconds for the other "
                f"{self.size - 1}: one of them hangs or its machine is out of reach (GLASSBERT_WORKER_TIMEOUT sets how "
                f"long to wait)"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait_for_all()
            self._parted = True
        elif not self.leads:
            time.sleep(
                LEADER_FIRST
            )  # an error that all of them have is told once, by the leader, who then ends the job

    def _leave(self) -> None:
        """A process that ends without having parted from the others takes them along: they would wait for ever."""
        if not self._parted and self.size > 1 and not MPI.Is_finalized():
            print(f"worker {self.rank} on {socket.gethostname()} leaves and ends the job", file=sys.stderr, flush=True)
            sys.stdout.flush()
            self._communicator.Abort(1)

    def _fair_share(self) -> int:
        """Cores for each of the processes that may run on exactly these; a launcher that binds gives each its own."""
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        place = hashlib.blake2b(f"{socket.gethostname()} {cores}".encode(), digest_size=16).digest()
        return max(1, usable_cores() // self.gather(place).count(place))


def _fill_up(gradients: FlatGradients, start: int, end: int) -> None:
    """Parameters that took no part in this step have a gradient of zeros; in memory is still that of an earlier one."""
    for name, offset in gradients.buffer.layout.offsets.items():
        if start <= offset < end and gradients.buffer_for(name) is not None:
            gradients.add(name, np.zeros(()))


def _start_of(place: str, gradients: FlatGradients) -> int | None:
    """Where the parameters under `place` begin in the flat buffer."""
    offsets = gradients.buffer.layout.offsets
    return min((offset for name, offset in offsets.items() if name.startswith(f"{place}.")), default=None)
