"""The queue of rows, and the threads that compute them.

A thread that is free takes the oldest row, the rows nearest to it in length, and computes them as one batch, whichever
requests they are from. It begins at once when the batch is full, and otherwise when the oldest row has waited for
`wait` seconds. The queue is bounded: `submit` raises `Full` and says when to come back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from glassbert.engines.threads import single_threaded_blas
from glassbert.serving.work import Lane

WINDOW = 512  # rows among which those of similar length are looked for
FEW_TOKENS = 100  # not shared by several threads: what Python does for a batch takes as long as computing so many


class Full(Exception):
    """The queue has no room; `retry` is the number of seconds after which it probably has."""

    def __init__(self, retry: int):
        super().__init__(f"the queue is full; try again in {retry} s")
        self.retry = retry


class Timing(NamedTuple):
    """Seconds from the queue to the first batch, and from there to the end; rows of the largest batch."""

    queued: float
    computed: float
    batch: int


class Job:
    """A request in the queue. `done(answer, error, timing)` is called by the thread that computes its last row."""

    def __init__(
        self,
        lane: Lane,
        item: Any,
        finish: Callable[[list[Any]], Any],
        done: Callable[[Any, BaseException | None, Timing], None],
    ):
        self.lane, self.item, self.finish, self.done = lane, item, finish, done
        self.key = id(lane), item.kind
        self.lengths: list[int] = item.lengths.tolist()
        self.outputs: list[Any] = [None] * len(self.lengths)
        self.left = len(self.lengths)
        self.arrived = time.perf_counter()
        self.started = 0.0
        self.batch = 0
        self.cancelled = False

    def end(self, answer: Any, error: BaseException | None) -> None:
        now = time.perf_counter()
        started = self.started or now
        self.done(answer, error, Timing(started - self.arrived, now - started, self.batch))


Unit = tuple[Job, int]


class Batcher:
    """`threads` threads over one queue of at most `room` rows; a batch has at most `batch_tokens` with its padding."""

    def __init__(
        self,
        *,
        threads: int,
        room: int = 1024,
        batch_tokens: int = 4096,
        wait: float = 0.001,
        on_batch: Callable[[int, int, float], None] = lambda rows, tokens, seconds: None,
    ):
        self.room, self.batch_tokens, self.wait, self.on_batch = room, batch_tokens, wait, on_batch
        self.waiting = 0  # rows
        self._queues: dict[Any, deque[Unit]] = {}
        self._changed = threading.Condition()
        self._idle = 0
        self._closing = False
        self._limit = ExitStack()
        self._rate = 0.0  # rows a second, all threads together
        self.count = threads
        self._threads = [
            threading.Thread(target=self._work, name=f"glassbert-{i}", daemon=True) for i in range(threads)
        ]

    def start(self) -> None:
        # Held until `close`, by the thread that starts the others: a limit that is set and restored for every batch is
        # slow, and one that another thread sets may not reach OpenBLAS.
        self._limit.enter_context(single_threaded_blas())
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Compute what is queued, then end the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._limit.close()

    def submit(self, job: Job) -> None:
        with self._changed:
            if self._closing or (self.waiting and self.waiting + job.left > self.room):
                raise Full(self.retry_after())
            queue = self._queues.setdefault(job.key, deque())
            queue.extend((job, unit) for unit in range(job.left))
            self.waiting += job.left
            self._changed.notify(min(job.left, self.count))

    def cancel(self, job: Job) -> None:
        """Leave out the rows of a job that nobody waits for any more."""
        with self._changed:
            job.cancelled = True
            queue = self._queues.get(job.key)
            if queue is not None:
                kept = deque(unit for unit in queue if unit[0] is not job)
                self.waiting -= len(queue) - len(kept)
                self._queues[job.key] = kept

    def retry_after(self) -> int:
        """Whole seconds until the queue is probably half empty."""
        return min(60, max(1, round(0.5 * self.waiting / self._rate))) if self._rate else 1

    # ---- the threads ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            members = self._take()
            if members is None:
                return
            self._compute(members)

    def _take(self) -> list[Unit] | None:
        """The rows of the next batch; None at the end."""
        with self._changed:
            self._idle += 1
            try:
                while True:
                    queue = self._oldest()
                    if queue is None:
                        if self._closing:
                            return None
                        self._changed.wait()
                        continue
                    left = queue[0][0].arrived + self.wait - time.perf_counter()
                    if left <= 0 or self._closing or self._is_full(queue):
                        return self._choose(queue)
                    self._changed.wait(left)
            finally:
                self._idle -= 1

    def _oldest(self) -> deque[Unit] | None:
        queues = [queue for queue in self._queues.values() if queue]
        if len(queues) < len(self._queues):
            self._queues = {key: queue for key, queue in self._queues.items() if queue}
        return min(queues, key=lambda queue: queue[0][0].arrived, default=None)

    def _is_full(self, queue: deque[Unit]) -> bool:
        return len(queue) * queue[0][0].lengths[queue[0][1]] >= self.batch_tokens

    def _choose(self, queue: deque[Unit]) -> list[Unit]:
        """The oldest row and those nearest in length, as many as the budget holds; free threads share what is more."""
        window = [queue[i] for i in range(min(WINDOW, len(queue)))]
        lengths = [job.lengths[unit] for job, unit in window]
        share = -(-len(window) // max(1, min(self._idle, len(window))))
        share = max(share, FEW_TOKENS // lengths[0])
        chosen = similar(lengths, share, self.batch_tokens)
        members = [window[i] for i in chosen]
        taken = set(chosen)
        rest = [unit for i, unit in enumerate(window) if i not in taken]
        for _ in window:
            queue.popleft()
        queue.extendleft(reversed(rest))
        self.waiting -= len(members)
        return members

    def _compute(self, members: list[Unit]) -> None:
        start = time.perf_counter()
        for job, _ in members:
            job.started = job.started or start
            job.batch = max(job.batch, len(members))
        try:
            outputs = members[0][0].lane.run([(job.item, unit) for job, unit in members])
        except Exception as error:
            self._fail(members, error)
            return
        seconds = time.perf_counter() - start
        self._rate = (
            0.9 * (self._rate or self.count * len(members) / seconds) + 0.1 * self.count * len(members) / seconds
        )
        self.on_batch(len(members), sum(job.lengths[unit] for job, unit in members), seconds)
        for (job, unit), output in zip(members, outputs, strict=True):
            job.outputs[unit] = output
        self._settle(members)

    def _settle(self, members: list[Unit]) -> None:
        complete = []
        with self._changed:
            for job, _ in members:
                job.left -= 1
                if job.left == 0 and not job.cancelled:
                    complete.append(job)
        for job in complete:
            try:
                answer = job.finish(job.outputs)
            except Exception as error:
                job.end(None, error)
            else:
                job.end(answer, None)

    def _fail(self, members: list[Unit], error: Exception) -> None:
        """An error of a batch belongs to one of its requests: compute them one by one, so that the others go on."""
        jobs = list(dict.fromkeys(job for job, _ in members))
        if len(jobs) > 1:
            for job in jobs:
                self._compute([unit for unit in members if unit[0] is job])
            return
        with self._changed:
            gone = jobs[0].cancelled
        if not gone:
            self.cancel(jobs[0])
            jobs[0].end(None, error)


def similar(lengths: Sequence[int], most: int, budget: int) -> list[int]:
    """Up to `most` places with lengths near the first one, whose padded size (longest x count) keeps to the budget."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    low = high = order.index(0)
    while high - low + 1 < min(most, len(order)):
        below = lengths[order[low - 1]] if low > 0 else None
        above = lengths[order[high + 1]] if high + 1 < len(order) else None
        size = high - low + 2
        fits_above = above is not None and above * size <= budget
        fits_below = below is not None and lengths[order[high]] * size <= budget
        if not fits_above and not fits_below:
            break
        nearer_above = fits_above and (not fits_below or above - lengths[0] <= lengths[0] - below)  # type: ignore[operator]
        low, high = (low, high + 1) if nearer_above else (low - 1, high)
    return [order[i] for i in range(low, high + 1)]
