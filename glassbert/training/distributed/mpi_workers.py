"""Workers over MPI: processes on one machine or on several, `mpirun -n 4 glassbert pretrain ...`.

Backward completes the flat gradient buffer from its end to its start: head, last layer, ..., embeddings. As soon as a
few megabytes at the end are complete, their sum begins while backward continues.

No call blocks inside MPI. A waiting process polls, so it can sleep, handle signals and detect that a worker is lost.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI

from glassbert.arrays import FlatGradients, Gradients
from glassbert.engines.machine import usable_cores
from glassbert.training.workers import WorkerLost, Workers

BUCKET = 4 * 2**20  # bytes: large enough to use the network well, small enough to begin early
TIMEOUT = 600.0  # seconds without a response after which a worker counts as lost; set by GLASSBERT_WORKER_TIMEOUT
GRACE = 5.0  # seconds that the leader continues to wait after a stop request
MESSAGE_AFTER = 0.1  # seconds: some launchers kill all processes 0.25 s after a worker has died
STOP_MESSAGE = "Stop requested, but another worker has not finished the step. The last checkpoint is complete."
FOLLOWER_DELAY = 1.0  # seconds for which the other workers wait, so that the leader reports a common error first
POLL = 0.0005  # seconds between two polls in the background
QUICK_POLL = 0.00005  # seconds between two polls while the process only waits
QUICK_PERIOD = 0.05  # seconds of quick polls; a longer wait is for another worker, not for the network


class Requests:
    """MPI requests that are waited for together.

    An MPI library transfers data only inside its calls, so a started sum makes no progress by itself. With
    `in_background` a thread polls every half millisecond; the library must then support calls from any thread.
    """

    def __init__(self, test_all: Callable[[list[Any]], bool], in_background: bool):
        self._test_all = test_all
        self._requests: list[Any] = []
        self._lock = threading.Lock()
        self._any_open = threading.Event()
        if in_background:
            threading.Thread(target=self._poll_forever, name="glassbert-sums", daemon=True).start()

    def add(self, request: Any) -> None:
        with self._lock:
            self._requests.append(request)
        self._any_open.set()

    def done(self) -> bool:
        """Let MPI make progress; returns whether all requests are complete."""
        with self._lock:
            if self._requests and self._test_all(self._requests):
                self._requests.clear()
            if not self._requests:
                self._any_open.clear()
            return not self._requests

    def wait(self, on_wait: Callable[[float], None]) -> None:
        """Return when all requests are complete. `on_wait` is called with the seconds waited so far, and may raise."""
        began = time.monotonic()
        while not self.done():
            waited = time.monotonic() - began
            on_wait(waited)
            time.sleep(QUICK_POLL if waited < QUICK_PERIOD else POLL)

    def _poll_forever(self) -> None:
        while True:
            self._any_open.wait()
            time.sleep(POLL)
            self.done()


class MpiWorkers(Workers):
    """The processes of an MPI communicator, each with a NumPy engine."""

    def __init__(self, communicator: Any = None, *, overlap: bool = True, timeout: float | None = None):
        self._communicator = (communicator or MPI.COMM_WORLD).Dup()  # separate from messages of other code
        self.rank, self.size = self._communicator.rank, self._communicator.size
        self.name = f"{self.size} processes over MPI"
        self.overlap = overlap and MPI.Query_thread() == MPI.THREAD_MULTIPLE  # any thread starts and polls sums
        self.timeout = timeout or float(os.environ.get("GLASSBERT_WORKER_TIMEOUT", TIMEOUT))
        self.bucket = BUCKET
        self._summed_from: int | None = None  # sums of the gradients from this offset on have started
        self._requests = Requests(MPI.Request.Testall, in_background=self.overlap)
        self._stop_seen: float | None = None  # time at which a stop request was first seen while waiting
        self._message_printed = False
        self._ended = False
        atexit.register(self._abort_unless_ended)
        self.threads = self._threads_per_process()

    # ---- sums -----------------------------------------------------------------------------------------------------

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        self._start_sum(array)
        self._requests.wait(self._check_wait)
        return array

    def total(self, numbers: np.ndarray) -> np.ndarray:
        return self.all_reduce(numbers.copy())

    def wait_for_all(self) -> None:
        self._start_sum(np.zeros(1, np.int32))
        self._requests.wait(lambda waited: None)

    def on_complete(self, module: str, gradients: Gradients) -> None:
        if self.overlap and isinstance(gradients, FlatGradients):
            self._sum_from(_offset_of(module, gradients), gradients, at_least=self.bucket)

    def sum_gradients(self, gradients: Any) -> Any:
        self._sum_from(0, gradients)
        self._requests.wait(self._check_wait)
        self._summed_from = None
        gradients.mark_all_full()
        return gradients

    def _sum_from(self, start: int | None, gradients: FlatGradients, at_least: int = 1) -> None:
        """Start the sum from offset `start` to the part already started, if it has at least `at_least` bytes."""
        flat = gradients.flat
        end = len(flat) if self._summed_from is None else self._summed_from
        if start is not None and (end - start) * flat.itemsize >= at_least:
            _zero_unused(gradients, start, end)
            self._start_sum(flat[start:end])
            self._summed_from = start

    def _start_sum(self, array: np.ndarray) -> None:
        self._requests.add(self._communicator.Iallreduce(MPI.IN_PLACE, array))

    # ---- lost workers ---------------------------------------------------------------------------------------------

    def _check_wait(self, waited: float) -> None:
        """Raise WorkerLost after the timeout, or on the leader `GRACE` seconds after a stop request."""
        now = time.monotonic()
        if self.leads and self._stop_seen is None and self.stop_requested():
            self._stop_seen = now
        since = 0.0 if self._stop_seen is None else now - self._stop_seen
        if since > MESSAGE_AFTER and not self._message_printed:
            self._message_printed = True
            print(STOP_MESSAGE, file=sys.stderr, flush=True)
        if since > GRACE:
            raise WorkerLost(
                f"worker {self.rank} received a stop request while it waited for the other {self.size - 1}: one of "
                f"them has died, or the job was cancelled during a step"
            )
        if waited > self.timeout:
            raise WorkerLost(
                f"worker {self.rank} on {socket.gethostname()} has waited {waited:.0f} seconds for the other "
                f"{self.size - 1}: one of them hangs or its machine cannot be reached (GLASSBERT_WORKER_TIMEOUT sets "
                f"the limit in seconds)"
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait_for_all()
            self._ended = True
        elif not self.leads:
            time.sleep(FOLLOWER_DELAY)  # an error common to all workers is reported once, by the leader

    def _abort_unless_ended(self) -> None:
        """End the whole job if this process exits without `__exit__`: the other workers would wait forever."""
        if not self._ended and self.size > 1 and not MPI.Is_finalized():
            print(f"worker {self.rank} on {socket.gethostname()} exits and ends the job", file=sys.stderr, flush=True)
            sys.stdout.flush()
            self._communicator.Abort(1)

    def _threads_per_process(self) -> int:
        """The usable cores divided by the processes that may run on the same cores of this machine."""
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        digest = hashlib.blake2b(f"{socket.gethostname()} {cores}".encode(), digest_size=16).digest()
        return max(1, usable_cores() // self.gather(digest).count(digest))


def _zero_unused(gradients: FlatGradients, start: int, end: int) -> None:
    """Set the gradients of parameters that this step did not use to zero; the buffer still has older values there."""
    for name, offset in gradients.buffer.layout.offsets.items():
        if start <= offset < end and gradients.buffer_for(name) is not None:
            gradients.add(name, np.zeros(()))


def _offset_of(module: str, gradients: FlatGradients) -> int | None:
    """The offset of a module's first parameter in the flat buffer."""
    offsets = gradients.buffer.layout.offsets
    return min((offset for name, offset in offsets.items() if name.startswith(f"{module}.")), default=None)
