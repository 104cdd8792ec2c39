"""What one model did on one set of examples: its outputs, what they mean, and how good they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.finetuning.answers import answers, choices, probabilities, true_names
from glassbert.finetuning.card import TaskCard
from glassbert.metrics import Score, Scores
from glassbert.tasks import TaskData


@dataclass(frozen=True)
class Outcome:
    """`truth` and `outputs` are those of `truth_of` and `score_examples`; row i of all is example i of `data`."""

    card: TaskCard
    data: TaskData
    truth: Any
    outputs: Any
    scores: Scores

    def __len__(self) -> int:
        return len(self.data)

    @property
    def main(self) -> Score:
        """The score of the card's own metric."""
        return self.scores[self.card.metric]

    @cached_property
    def _answers(self) -> list[Any]:
        return answers(self.outputs, self.card)

    def answers(self) -> list[Any]:
        """Label names, lists of them, numbers, tags or texts, one for each example."""
        return self._answers

    def true_answers(self) -> list[Any]:
        """The truth in the same words."""
        if self.truth is None:
            raise InputError(f"{self.data.source}: the true answers are not known")
        return true_names(self.truth, self.card)

    def choices(self) -> Any:
        """The answers as numbers; see `glassbert.finetuning.answers`."""
        return choices(self.outputs, self.card)

    def probabilities(self) -> Any:
        """[N] (binary), [N, L], a list of [words, L] (token), or None where the head gives none."""
        return probabilities(self.outputs, self.card)

    def rows(self) -> list[dict[str, Any]]:
        """An example a row, as predictions.jsonl has them."""
        chances, names = self.probabilities(), self.card.label_names
        truth = self.true_answers() if self.truth is not None else None
        found = []
        for i, answer in enumerate(self.answers()):
            row: dict[str, Any] = {"text": self.data.texts[i]}
            if self.data.pairs is not None:
                row["pair"] = self.data.pairs[i]
            if self.data.words is not None:
                row = {"words": self.data.words[i]}
            row["answer"] = answer
            if truth is not None:
                row["truth"] = truth[i]
            if chances is not None and self.card.head != "token":
                row["probabilities"] = _by_label(chances[i], names)
            found.append(row)
        return found


def _by_label(chances: Any, names: tuple[str, ...]) -> dict[str, float]:
    values = [1.0 - chances, chances] if np.ndim(chances) == 0 else list(chances)
    return {name: round(float(value), 6) for name, value in zip(names, values, strict=True)}
