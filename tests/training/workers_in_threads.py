"""Workers that are threads of one process: everything that workers do, with no launcher and no network."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from glassbert.training.workers import Workers


class Meeting:
    """Where the threads put what they bring, and take the sum away."""

    def __init__(self, size: int):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=10)
        self.brought: list[Any] = [None] * size

    def sum(self, rank: int, array: np.ndarray) -> np.ndarray:
        self.brought[rank] = array.copy()
        self.barrier.wait()
        total = sum(self.brought[1:], self.brought[0])
        self.barrier.wait()
        return total


class ThreadWorkers(Workers):
    name = "threads"

    def __init__(self, meeting: Meeting, rank: int):
        self.meeting, self.rank, self.size = meeting, rank, meeting.size

    def sum_(self, array: np.ndarray) -> np.ndarray:
        array[...] = self.meeting.sum(self.rank, array)
        return array

    def total(self, numbers: np.ndarray) -> np.ndarray:
        return self.meeting.sum(self.rank, numbers)


def together(size: int, work: Callable[[Workers], Any]) -> list[Any]:
    """work(workers) in `size` threads; what each of them returned or raised."""
    meeting = Meeting(size)
    results: list[Any] = [None] * size

    def one(rank: int) -> None:
        try:
            results[rank] = work(ThreadWorkers(meeting, rank))
        except Exception as error:
            results[rank] = error  # whoever waits for this thread gives up after the barrier's timeout

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
