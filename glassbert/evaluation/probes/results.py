"""What the probes of a task answered, as plain arrays; `scoring` makes measures of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from glassbert.evaluation.probes.questions import Questions
from glassbert.evaluation.probes.tasks import ProbeTask

TRAINED, RANDOM = "trained", "random weights"
MIX, ALL = "mix", "all layers"
LINEAR, HIDDEN, BIAFFINE = "linear", "hidden layer", "biaffine"


@dataclass(frozen=True)
class Probed:
    """What one probe answered about every question of dev, and how well it had converged.

    `left` is about how much the loss could still fall, in nats; `trees` for heads: right and true edges by sentence.
    """

    encoder: str
    view: str
    probe: str
    answers: np.ndarray
    left: float
    steps: int
    converged: bool
    seconds: float
    shares: np.ndarray | None = None
    trees: np.ndarray | None = None
    control: np.ndarray | None = None  # what it answered in the control task

    def with_control(self, twin: Probed) -> Probed:
        """This probe, with the answers of its twin that learned the control task."""
        converged, seconds = self.converged and twin.converged, self.seconds + twin.seconds
        return replace(self, control=twin.answers, converged=converged, seconds=seconds)


@dataclass(frozen=True)
class TaskResult:
    """Everything that was found out about one task."""

    task: ProbeTask
    train: Questions
    dev: Questions
    control: Questions
    majority: np.ndarray
    probed: list[Probed]
    l2: float | None
    notes: list[str]

    @property
    def known(self) -> np.ndarray:
        """Which questions of dev are about words that training has."""
        return np.isin(self.dev.types, self.train.types)

    def of(self, view: str, probe: str = LINEAR, encoder: str = TRAINED) -> Probed | None:
        for one in self.probed:
            if (one.view, one.probe, one.encoder) == (view, probe, encoder):
                return one
        return None


def layer_name(number: int) -> str:
    return f"layer {number}" if number else "embeddings"
