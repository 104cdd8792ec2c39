"""Workers: several processes that train one model, each on its share of every batch.

The training step needs sums over all workers. A run needs to know which worker writes files (the leader, rank 0), and
needs the same decisions on all workers. `SingleWorker` implements this for a single process;
`glassbert.training.distributed` implements it for MPI and for MLX's distributed backends.
"""

from __future__ import annotations

import hashlib
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from glassbert.arrays import Array, FlatGradients, Gradients
from glassbert.errors import TrainingError

if TYPE_CHECKING:
    from glassbert.models.model import Model

Result = TypeVar("Result")


class WorkerLost(TrainingError):
    """Another worker does not respond. The current step has changed nothing."""


class Workers(ABC):
    """This process and the other workers. Every worker must make the same calls in the same order.

    Use it as a context manager: at the end it waits for the other workers. A worker that leaves with an error ends the
    whole job, because the others would wait for it forever.
    """

    rank: int
    size: int
    name: str
    threads: int | None = None  # cores for each worker where several share a machine; None: all cores
    stop_requested: Callable[[], bool] = staticmethod(lambda: False)  # called while waiting for another worker

    @property
    def leads(self) -> bool:
        """Whether this is the worker that writes files: rank 0."""
        return self.rank == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    # ---- sums for the training step -------------------------------------------------------------------------------

    @abstractmethod
    def all_reduce(self, array: Array) -> Array:
        """The sum over all workers: in place on NumPy, a new lazy array on MLX."""

    def on_complete(self, module: str, gradients: Gradients) -> None:
        """Called when the gradients of a module ("layers.3", "head") are complete, so their sum may begin.

        The calls come in the order of backward; `sum_gradients` follows when all gradients are complete.
        """
        return None

    def sum_gradients(self, gradients: Any) -> Any:
        """The gradients summed over all workers: in place on NumPy (one flat buffer), new lazy arrays on MLX."""
        if isinstance(gradients, FlatGradients):
            self.all_reduce(gradients.flat)
            gradients.mark_all_full()
            return gradients
        return {name: self.all_reduce(gradient) for name, gradient in gradients.items()}

    # ---- decisions of the run -------------------------------------------------------------------------------------

    @abstractmethod
    def total(self, numbers: np.ndarray) -> np.ndarray:
        """Integers (int32) summed over all workers. Waits for the result."""

    def wait_for_all(self) -> None:
        """Return when every worker has called this."""
        self.total(np.zeros(1, np.int32))

    def decide(self, values: Sequence[float], flags: Sequence[bool] = ()) -> tuple[list[float], list[bool]]:
        """On every worker: the values of the leader, and for each flag whether any worker has set it."""
        count = len(values)
        packed = struct.pack(f"<{count}d", *(values if self.leads else [0.0] * count))
        found = self.total(np.array([*packed, *flags], np.int32))
        leaders = struct.unpack(f"<{count}d", bytes(found[: len(packed)].tolist()))
        return list(leaders), (found[len(packed) :] > 0).tolist()

    def leader_first(self, work: Callable[[], Result]) -> Result:
        """Call work() on the leader, then on the others, which can read the files that the leader wrote."""
        done = [work()] if self.leads else []
        self.wait_for_all()
        return done[0] if done else work()

    def broadcast(self, text: str) -> str:
        """The leader's text, on every worker."""
        content = text.encode() if self.leads else b""
        size = int(self.total(np.array([len(content)], np.int32))[0])
        own = np.zeros(size, np.int32)
        own[: len(content)] = list(content)
        return bytes(self.total(own).tolist()).decode() if size else ""

    def gather(self, digest: bytes) -> list[bytes]:
        """The bytes of every worker, ordered by rank; all must have the same length."""
        table = np.zeros((self.size, len(digest)), np.int32)
        table[self.rank] = list(digest)
        return [bytes(row.tolist()) for row in self.total(table)]

    def check_weights(self, model: Model, moment: str) -> None:
        """Raise unless every worker has the same weights, bit by bit."""
        if self.size == 1:
            return
        self.check_same(
            fingerprint(model),
            f"other weights than worker 0 {moment}. Start all workers with the same versions and the same run folder, "
            f"on processors of the same type: rounding differences grow",
        )

    def check_same(self, digest: bytes, difference: str) -> None:
        """Raise unless every worker passes the same bytes; `difference` completes "worker 1 has ..."."""
        digests = self.gather(digest)
        other = [str(rank) for rank, own in enumerate(digests) if own != digests[0]]
        if other:
            subject = f"worker {other[0]} has" if len(other) == 1 else f"workers {', '.join(other)} have"
            raise TrainingError(f"{subject} {difference}")


def digest_of(values: Any) -> bytes:
    """A 32-byte hash of JSON values."""
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=32).digest()


def fingerprint(model: Model) -> bytes:
    """A 32-byte hash of the weights."""
    digest = hashlib.blake2b(digest_size=32)
    for name, array in model.parameters.items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(model.engine.to_numpy(array)).data)
    return digest.digest()


class SingleWorker(Workers):
    """A single process: every sum is its own array."""

    rank = 0
    size = 1
    name = "one process"

    def all_reduce(self, array: Array) -> Array:
        return array

    def sum_gradients(self, gradients: Any) -> Any:
        return gradients

    def total(self, numbers: np.ndarray) -> np.ndarray:
        return numbers
