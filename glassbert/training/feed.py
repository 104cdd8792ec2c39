"""Batches for the coming steps, made in threads while earlier steps are computed.

A batch is a pure function of epoch and index, so the position in the data is the number of batches taken, by row
length. Batches that were made but never taken do not change it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from glassbert.engines.machine import usable_cores

MAX_THREADS = 4  # more threads only wait for the interpreter lock


class Source(Protocol):
    """The part of MLMDataGenerator that `Feed` uses."""

    def __len__(self) -> int: ...

    def batch(self, epoch: int, index: int, *, rows: slice | None = None, mask_rate: float | None = None) -> Any: ...


class Order(NamedTuple):
    """The row length and masking rate of a step's batch."""

    length: int
    mask_rate: float | None


class Feed:
    """Makes ordered batches in threads and returns them in the order of the orders.

    `taken` is the number of batches used so far by row length. `prepare` is applied to each batch in the same thread.
    """

    def __init__(
        self,
        sources: Mapping[int, Source],
        taken: Mapping[int, int],
        rows: Mapping[int, slice | None],
        threads: int,
        prepare: Callable[[Any], Any],
    ):
        self.sources = sources
        self.ahead = 2 * threads + 1  # batches to order in advance
        self.taken = {length: taken.get(length, 0) for length in sources}
        self._ordered = dict(self.taken)
        self._rows = rows
        self._prepare = prepare
        self._waiting: deque[tuple[int, Future[Any]]] = deque()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="glassbert-batches")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def __len__(self) -> int:
        """The number of batches ordered and not yet taken."""
        return len(self._waiting)

    def order(self, order: Order) -> None:
        """Start making the next batch of this length."""
        epoch, index = divmod(self._ordered[order.length], len(self.sources[order.length]))
        self._ordered[order.length] += 1
        self._waiting.append((order.length, self._threads.submit(self._make, order, epoch, index)))

    def _make(self, order: Order, epoch: int, index: int) -> Any:
        rows = self._rows[order.length]
        return self._prepare(self.sources[order.length].batch(epoch, index, rows=rows, mask_rate=order.mask_rate))

    def take(self) -> Any:
        """Wait for the next batch and return it; an error in making it is raised here."""
        length, future = self._waiting.popleft()
        batch = future.result()
        self.taken[length] += 1
        return batch


def threads_for(engine: Any) -> int:
    """The number of threads for a feed: one if the CPU also computes the steps, several for a GPU."""
    return min(MAX_THREADS, usable_cores()) if engine.compiles else 1
