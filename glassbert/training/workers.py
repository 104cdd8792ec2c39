"""Workers: several processes that train one model, each on its share of every batch.

The training step asks for sums over all workers. A run also asks who writes (the worker that leads, rank 0), and wants
all of them to decide alike. `Alone` is the answer of a single process; MPI and MLX's distributed backends answer
through the same class (`glassbert.training.distributed`).
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
    """A fellow does not answer. The step that was under way moved nothing."""


class Workers(ABC):
    """This process among its fellows. Every worker must make the same calls in the same order.

    Leave it as a context manager: `with` waits for the others at the end, and a worker that leaves by an error ends the
    whole job, since the others would wait for it for ever.
    """

    rank: int
    size: int
    name: str
    threads: int | None = None  # how many cores each worker may use where several share a machine; None: all there are
    told_to_stop: Callable[[], bool] = staticmethod(lambda: False)  # asked while a fellow is waited for

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    # ---- sums for the training step -------------------------------------------------------------------------------

    @abstractmethod
    def sum_(self, array: Array) -> Array:
        """The sum over all workers: in place on NumPy, a new lazy array on MLX."""

    def finished(self, place: str, gradients: Gradients) -> None:
        """The gradients under `place` ("layers.3", "head") are complete; their sum may begin while backward goes on.

        Told in the order of backward. `sum_gradients` follows when all of them are complete.
        """
        return None

    def sum_gradients(self, gradients: Any) -> Any:
        """The gradients summed over all workers: the same object on NumPy, where they lie in one flat buffer."""
        if isinstance(gradients, FlatGradients):
            self.sum_(gradients.flat)
            gradients.mark_all_full()
            return gradients
        return {name: self.sum_(gradient) for name, gradient in gradients.items()}

    # ---- agreements for the run -----------------------------------------------------------------------------------

    @abstractmethod
    def total(self, numbers: np.ndarray) -> np.ndarray:
        """Whole numbers (int32) summed over all workers, now."""

    def wait_for_all(self) -> None:
        """Go on when every worker has come here, however long that takes."""
        self.total(np.zeros(1, np.int32))

    def decide(self, values: Sequence[float], flags: Sequence[bool] = ()) -> tuple[list[float], list[bool]]:
        """The leader's values, and which flags anybody has raised: the same answer everywhere."""
        count = len(values)
        packed = struct.pack(f"<{count}d", *(values if self.leads else [0.0] * count))
        found = self.total(np.array([*packed, *flags], np.int32))
        leaders = struct.unpack(f"<{count}d", bytes(found[: len(packed)].tolist()))
        return list(leaders), (found[len(packed) :] > 0).tolist()

    def leader_first(self, work: Callable[[], Result]) -> Result:
        """work() on the leader, and then on the others: what it writes the first time they only read."""
        done = [work()] if self.leads else []
        self.wait_for_all()
        return done[0] if done else work()

    def share(self, text: str) -> str:
        """The leader's text, on every worker."""
        content = text.encode() if self.leads else b""
        size = int(self.total(np.array([len(content)], np.int32))[0])
        own = np.zeros(size, np.int32)
        own[: len(content)] = list(content)
        return bytes(self.total(own).tolist()).decode() if size else ""

    def gather(self, digest: bytes) -> list[bytes]:
        """What every worker gave, in the order of their ranks; all must give equally many bytes."""
        table = np.zeros((self.size, len(digest)), np.int32)
        table[self.rank] = list(digest)
        return [bytes(row.tolist()) for row in self.total(table)]

    def check_equal(self, model: Model, moment: str) -> None:
        """Stop with a sentence unless every worker has the same weights, bit by bit."""
        if self.size == 1:
            return
        self.check_same(
            fingerprint(model),
            f"other weights than worker 0 {moment}. Start every worker with the same versions and run folder, on "
            f"processors of one kind: what differs in the last digit drifts apart",
        )

    def check_same(self, digest: bytes, complaint: str) -> None:
        """Stop with a sentence unless everybody brings the same bytes."""
        digests = self.gather(digest)
        other = [str(rank) for rank, brought in enumerate(digests) if brought != digests[0]]
        if other:
            who = f"worker {other[0]} has" if len(other) == 1 else f"workers {', '.join(other)} have"
            raise TrainingError(f"{who} {complaint}")


def digest_of(values: Any) -> bytes:
    """32 bytes that are equal for equal plain values."""
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=32).digest()


def fingerprint(model: Model) -> bytes:
    """32 bytes that are equal for equal weights."""
    digest = hashlib.blake2b(digest_size=32)
    for name, array in model.parameters.items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(model.engine.to_numpy(array)).data)
    return digest.digest()


class Alone(Workers):
    """One process: every sum is there already."""

    rank = 0
    size = 1
    name = "one process"

    def sum_(self, array: Array) -> Array:
        return array

    def sum_gradients(self, gradients: Any) -> Any:
        return gradients

    def total(self, numbers: np.ndarray) -> np.ndarray:
        return numbers
