"""Workers over MLX's own backends: GPUs and Macs, `mlx.launch -n 2 glassbert pretrain ...`.

Sums are lazy like all MLX operations, and each starts when its inputs have been computed. Small gradients are summed
together, in the order in which backward completes them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import mlx.core as mx
import numpy as np

from glassbert.errors import TrainingError
from glassbert.training.workers import WorkerLost, Workers

BUCKET = 4 * 2**20  # bytes
LOST = ("[ring]", "[nccl]", "nccl error", "[jaccl]", "peer")  # parts of MLX's errors when another worker is gone


class MlxWorkers(Workers):
    """The processes of MLX's global group, each with an MLX engine."""

    def __init__(self, backend: str = "any"):
        try:
            self._group = mx.distributed.init(strict=True, backend=backend)
        except (RuntimeError, ValueError) as error:
            raise TrainingError(f"MLX's distributed backend {backend} did not start: {error}") from error
        self.rank, self.size = self._group.rank(), self._group.size()
        self.name = f"{self.size} processes over MLX ({backend})"

    def all_reduce(self, array: Any) -> Any:
        return mx.distributed.all_sum(array, group=self._group)

    def sum_gradients(self, gradients: Mapping[str, Any]) -> dict[str, Any]:
        summed: dict[str, Any] = {}
        for names in buckets({name: gradient.nbytes for name, gradient in gradients.items()}):
            flat = mx.concatenate([gradients[name].reshape(-1) for name in names])
            ends = np.cumsum([gradients[name].size for name in names])[:-1].tolist()
            for name, part in zip(names, mx.split(self.all_reduce(flat), ends), strict=True):
                summed[name] = part.reshape(gradients[name].shape)
        return {name: summed[name] for name in gradients}

    def total(self, numbers: np.ndarray) -> np.ndarray:
        return np.array(self.all_reduce(mx.array(numbers)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait_for_all()
        elif isinstance(error, RuntimeError) and any(word in str(error).lower() for word in LOST):
            raise WorkerLost(
                f"worker {self.rank} on {socket.gethostname()} lost the connection to another worker: {error}. "
                f"The last checkpoint is complete"
            ) from error


def buckets(sizes: Mapping[str, int], at_least: int = BUCKET) -> Iterator[list[str]]:
    """The names in order, in groups of at least `at_least` bytes; the last group may be smaller."""
    group: list[str] = []
    filled = 0
    for name, size in sizes.items():
        group.append(name)
        filled += size
        if filled >= at_least:
            yield group
            group, filled = [], 0
    if group:
        yield group
