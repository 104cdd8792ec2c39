"""Batches made ahead in threads while the model works on the ones before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from glassbert.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(
    make: Callable[[Item], Result], items: Iterable[Item], workers: int = 1, ahead: int | None = None
) -> Iterator[Result]:
    """make(item) for every item, in their order, with up to `ahead` results waiting (two a worker unless given).

        for batch in prefetch(generator.at, range(first_step, last_step), workers=2): ...

    An error in `make` is raised where its result would have come. Who stops early leaves no thread behind.
    """
    ahead = 2 * workers if ahead is None else ahead
    if workers < 1 or ahead < 1:
        raise ConfigError(f"prefetching needs at least one worker and one place, got {workers} and {ahead}")
    return _prefetch(make, iter(items), workers, ahead)


def _prefetch(make: Callable[[Item], Result], items: Iterator[Item], workers: int, ahead: int) -> Iterator[Result]:
    pool = ThreadPoolExecutor(workers, thread_name_prefix="glassbert-prefetch")
    try:
        waiting: deque[Future[Result]] = deque(pool.submit(make, item) for item in islice(items, ahead))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(make, item) for item in islice(items, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
