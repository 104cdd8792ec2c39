"""Where a run stands: the numbers that a checkpoint keeps beside the arrays."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self

from glassbert.errors import TrainingError


@dataclass
class RunState:
    """Counters of a run after `step` steps."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    begun: float | None = None  # seconds on the clock at the first step
    taken: dict[int, int] = field(default_factory=dict)  # batches taken, by length: the position in the data
    skipped: int = 0
    skipped_in_a_row: int = 0
    best_loss: float | None = None
    best_step: int | None = None
    evaluations_without_gain: int = 0
    log_position: int = 0

    @property
    def length(self) -> int | None:
        """Of the rows of the last step: short ones come first."""
        return max((length for length, count in self.taken.items() if count), default=None)

    def forget_best(self) -> None:
        self.best_loss = self.best_step = None
        self.evaluations_without_gain = 0

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        try:
            state = cls(**{f.name: values[f.name] for f in dataclasses.fields(cls)})
            state.taken = {int(length): int(count) for length, count in state.taken.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TrainingError(f"a checkpoint's state is incomplete: {error}") from error
        return state
