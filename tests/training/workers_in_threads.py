"""Workers as threads of one process, without launcher and network."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from glassbert.training.workers import Workers


class ThreadSum:
    """Sums arrays over threads."""

    def __init__(self, size: int):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=10)
        self.arrays: list[Any] = [None] * size

    def sum(self, rank: int, array: np.ndarray) -> np.ndarray:
        self.arrays[rank] = array.copy()
        self.barrier.wait()
        total = sum(self.arrays[1:], self.arrays[0])
        self.barrier.wait()
        return total


class ThreadWorkers(Workers):
    name = "threads"

    def __init__(self, summing: ThreadSum, rank: int):
        self.summing, self.rank, self.size = summing, rank, summing.size

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        array[...] = self.summing.sum(self.rank, array)
        return array

    def total(self, numbers: np.ndarray) -> np.ndarray:
        return self.summing.sum(self.rank, numbers)


def together(size: int, work: Callable[[Workers], Any]) -> list[Any]:
    """Run work(workers) in `size` threads; returns what each of them returned or raised."""
    summing = ThreadSum(size)
    results: list[Any] = [None] * size

    def one(rank: int) -> None:
        try:
            results[rank] = work(ThreadWorkers(summing, rank))
        except Exception as error:
            results[rank] = error  # the other threads end at the timeout of the barrier

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
