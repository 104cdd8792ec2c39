"""Batches one after the other, made in threads while the steps before them are computed.

A batch is a pure function of epoch and index, so a position in the data is a number: how many batches of a length have
been taken. Batches that were made ahead and never taken leave no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from glassbert.engines.threads import usable_cores

MOST_THREADS = 4  # beyond that they only meet at the interpreter's lock


class Source(Protocol):
    """What the feed needs of MLMDataGenerator."""

    def __len__(self) -> int: ...

    def batch(self, epoch: int, index: int, *, rows: slice | None = None, mask_rate: float | None = None) -> Any: ...


class Order(NamedTuple):
    """The batch that a step shall have."""

    length: int
    mask_rate: float | None


class Feed:
    """Takes orders for the coming steps, and hands out their batches in the same order.

    `prepare` is what is done with a batch in the thread that made it.
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
        self.ahead = 2 * threads + 1  # batches in the making
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
        """How many batches are ordered and not yet taken."""
        return len(self._waiting)

    def order(self, order: Order) -> None:
        epoch, index = divmod(self._ordered[order.length], len(self.sources[order.length]))
        self._ordered[order.length] += 1
        self._waiting.append((order.length, self._threads.submit(self._make, order, epoch, index)))

    def _make(self, order: Order, epoch: int, index: int) -> Any:
        rows = self._rows[order.length]
        return self._prepare(self.sources[order.length].batch(epoch, index, rows=rows, mask_rate=order.mask_rate))

    def take(self) -> Any:
        """The next batch; an error in making it is raised here."""
        length, future = self._waiting.popleft()
        batch = future.result()
        self.taken[length] += 1
        return batch


def threads_for(engine: Any) -> int:
    """One where the processor also computes the steps; several where a GPU waits to be fed."""
    return min(MOST_THREADS, usable_cores()) if engine.compiles else 1
