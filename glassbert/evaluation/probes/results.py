"""Answers of the probes of a task, and the measures computed from them, with intervals over sentences.

accuracy     right / all
selectivity  accuracy minus accuracy on the control task
unknown      accuracy on words that are not in the training set
span F1      for span tags: 2 · right / (found + true)
UUAS         true edges in the undirected tree / true edges
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glassbert.evaluation.measures import RESAMPLES, Measure, estimate, rate
from glassbert.evaluation.probes.questions import Questions
from glassbert.evaluation.probes.tasks import ProbeTask
from glassbert.metrics import sentence_spans
from glassbert.metrics.inputs import Value, as_weights, ratio

TRAINED, RANDOM = "trained", "random weights"
MIX, ALL = "mix", "all layers"
LINEAR, HIDDEN, BIAFFINE = "linear", "hidden layer", "biaffine"


@dataclass(frozen=True)
class ProbeResult:
    """The answers of one probe on dev, and how it converged.

    left      estimate of how much the loss could still fall, in nats
    shares    weights of the layers in a mix
    trees     for heads: right and true edges of every sentence, [2, sentences]
    control   answers on the control task
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
    control: np.ndarray | None = None

    def with_control(self, control: ProbeResult) -> ProbeResult:
        """This result with the answers of the same probe fitted on the control task."""
        converged, seconds = self.converged and control.converged, self.seconds + control.seconds
        return replace(self, control=control.answers, converged=converged, seconds=seconds)


@dataclass(frozen=True)
class TaskResult:
    """All probes of one task, with its data and the majority baseline."""

    task: ProbeTask
    train: Questions
    dev: Questions
    control: Questions
    majority: np.ndarray
    probed: list[ProbeResult]
    l2: float | None
    notes: list[str]

    @property
    def known(self) -> np.ndarray:
        """True for dev rows whose word type is in the training set."""
        return np.isin(self.dev.types, self.train.types)

    def of(self, view: str, probe: str = LINEAR, encoder: str = TRAINED) -> ProbeResult | None:
        """The result for these settings, or None."""
        for one in self.probed:
            if (one.view, one.probe, one.encoder) == (view, probe, encoder):
                return one
        return None


def layer_name(number: int) -> str:
    return f"layer {number}" if number else "embeddings"


class Scorer:
    """Computes the measures of one task."""

    def __init__(self, result: TaskResult, resamples: int = RESAMPLES):
        self.result, self.resamples = result, resamples
        dev = result.dev
        self.sentences = len(dev.starts) - 1
        self.counts = np.bincount(dev.sentences, minlength=self.sentences)
        made_of = repr((result.task.name, dev.words.tolist(), dev.labels.tolist()))
        self.key = hashlib.sha256(made_of.encode()).hexdigest()[:16]

    def accuracy(self, answers: np.ndarray, name: str = "accuracy", **fields: Any) -> Measure:
        return self._rate(name, self._right(answers), self.counts, **fields)

    def selectivity(self, probed: ProbeResult, name: str = "selectivity", **fields: Any) -> Measure | None:
        if probed.control is None:
            return None
        gained = self._right(probed.answers) - self._right(probed.control, self.result.control.labels)
        return self._rate(name, gained, self.counts, **fields)

    def unknown(self, answers: np.ndarray, name: str = "unknown words", **fields: Any) -> Measure:
        new = ~self.result.known
        counts = np.bincount(self.result.dev.sentences[new], minlength=self.sentences)
        right = np.bincount(
            self.result.dev.sentences[new], (answers == self.result.dev.labels)[new], minlength=self.sentences
        )
        return self._rate(name, right, counts, **fields)

    def trees(self, probed: ProbeResult, name: str = "UUAS", **fields: Any) -> Measure | None:
        return None if probed.trees is None else self._rate(name, probed.trees[0], probed.trees[1], **fields)

    def spans(self, answers: np.ndarray, name: str = "span F1", **fields: Any) -> Measure:
        counts = self._span_counts(answers)
        return estimate(
            name, span_rate, *counts, key=f"{self.key}-spans", resamples=self.resamples, unit="share", **fields
        )

    def main(self, answers: np.ndarray, name: str, **fields: Any) -> Measure:
        """The main score of the task: span F1 or accuracy."""
        return (self.spans if self.result.task.score == "spans" else self.accuracy)(answers, name, **fields)

    def value(self, answers: np.ndarray) -> float:
        """The main score without an interval."""
        if self.result.task.score == "spans":
            return float(span_rate(*self._span_counts(answers)))
        return float((answers == self.result.dev.labels).mean())

    def _rate(self, name: str, right: np.ndarray, counts: np.ndarray, **fields: Any) -> Measure:
        fields.setdefault("unit", "share")
        return estimate(name, rate, right, counts, key=f"{self.key}-{name}", resamples=self.resamples, **fields)

    def _right(self, answers: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        true = self.result.dev.labels if labels is None else labels
        return np.bincount(self.result.dev.sentences, answers == true, minlength=self.sentences)

    def _span_counts(self, answers: np.ndarray) -> np.ndarray:
        """[3, sentences]: right, found and true spans. Words without a label, or with an unseen one, are "O"."""
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
