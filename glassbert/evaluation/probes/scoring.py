"""From answers to measures, with intervals over sentences: the words of a sentence are not drawn apart.

accuracy     right / asked
selectivity  accuracy - accuracy in the control task
unknown      accuracy on words that training does not have
span F1      for tags of spans: 2 · right / (found + true)
UUAS         true edges in the undirected tree / true edges
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from glassbert.evaluation.measures import RESAMPLES, Measure, estimate, rate
from glassbert.evaluation.probes.results import Probed, TaskResult
from glassbert.metrics import sentence_spans
from glassbert.metrics.inputs import Value, as_weights, ratio


class Scorer:
    """Makes the measures of one task."""

    def __init__(self, result: TaskResult, resamples: int = RESAMPLES):
        self.result, self.resamples = result, resamples
        dev = result.dev
        self.sentences = len(dev.starts) - 1
        self.asked = np.bincount(dev.sentences, minlength=self.sentences)
        made_of = repr((result.task.name, dev.words.tolist(), dev.labels.tolist()))
        self.key = hashlib.sha256(made_of.encode()).hexdigest()[:16]

    def accuracy(self, answers: np.ndarray, name: str = "accuracy", **fields: Any) -> Measure:
        return self._rate(name, self._right(answers), self.asked, **fields)

    def selectivity(self, probed: Probed, name: str = "selectivity", **fields: Any) -> Measure | None:
        if probed.control is None:
            return None
        gained = self._right(probed.answers) - self._right(probed.control, self.result.control.labels)
        return self._rate(name, gained, self.asked, **fields)

    def unknown(self, answers: np.ndarray, name: str = "unknown words", **fields: Any) -> Measure:
        new = ~self.result.known
        asked = np.bincount(self.result.dev.sentences[new], minlength=self.sentences)
        right = np.bincount(
            self.result.dev.sentences[new], (answers == self.result.dev.labels)[new], minlength=self.sentences
        )
        return self._rate(name, right, asked, **fields)

    def trees(self, probed: Probed, name: str = "UUAS", **fields: Any) -> Measure | None:
        return None if probed.trees is None else self._rate(name, probed.trees[0], probed.trees[1], **fields)

    def spans(self, answers: np.ndarray, name: str = "span F1", **fields: Any) -> Measure:
        counts = self._span_counts(answers)
        return estimate(
            name, span_rate, *counts, key=f"{self.key}-spans", resamples=self.resamples, unit="share", **fields
        )

    def main(self, answers: np.ndarray, name: str, **fields: Any) -> Measure:
        """What the task is decided by."""
        return (self.spans if self.result.task.score == "spans" else self.accuracy)(answers, name, **fields)

    def value(self, answers: np.ndarray) -> float:
        """The main score without its interval."""
        if self.result.task.score == "spans":
            return float(span_rate(*self._span_counts(answers)))
        return float((answers == self.result.dev.labels).mean())

    def _rate(self, name: str, right: np.ndarray, asked: np.ndarray, **fields: Any) -> Measure:
        fields.setdefault("unit", "share")
        return estimate(name, rate, right, asked, key=f"{self.key}-{name}", resamples=self.resamples, **fields)

    def _right(self, answers: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        true = self.result.dev.labels if labels is None else labels
        return np.bincount(self.result.dev.sentences, answers == true, minlength=self.sentences)

    def _span_counts(self, answers: np.ndarray) -> np.ndarray:
        """[3, sentences]: right, found and true spans. What is not asked, or unseen in training, is "O"."""
        dev = self.result.dev
        found = []
        for numbers in (answers, dev.labels):
            tags = np.full(int(dev.starts[-1]), "O", dtype=object)
            tags[dev.words] = [dev.names[n] if n >= 0 else "O" for n in numbers.tolist()]
            sentences = [tags[a:b].tolist() for a, b in zip(dev.starts[:-1], dev.starts[1:], strict=True)]
            found.append(sentence_spans(sentences))
        pairs = list(zip(*found, strict=True))
        return np.array([[len(set(a) & set(b)), len(a), len(b)] for a, b in pairs], np.float64).T


def span_rate(right: Any, found: Any, true: Any, weights: Any = None) -> Value:
    weights = as_weights(weights, len(right))
    return ratio(2 * (weights @ right), weights @ found + weights @ true, "there are no spans")
