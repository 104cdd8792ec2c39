"""The held-out loss and accuracy to expect of a run, with an interval, from the reference runs.

Losses begin at log(V), where every word of the vocabulary is as likely, and end on a power law:

    z = log(L / (log(V) - L)),     z(x) = w · x + f(x) + c(corpus) + noise

x are logarithms of size, tokens, batch, row length and vocabulary, and a few switches of the recipe. Tokens that are
read again count less than new ones (`useful_tokens`). w has a prior (the slopes that scaling laws usually have), f is a
smooth correction that nearby reference runs share, c is the same for all runs on one text. All are Gaussian, so the
prediction is that of a Gaussian process: near the reference runs the interval is their noise, away from them f is
unknown, and on another text c is. Nothing is widened by hand.

`python -m benchmarks.plan --table` leaves every row out in turn and predicts it from the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from glassbert.training.planning.table import ReferenceRun, Traits

LEVEL = 0.9
DEVIATIONS = 1.645  # of a normal distribution at LEVEL
CORPUS_SPREAD = 0.15  # of c: by how much texts differ
SMOOTH_SPREAD = 0.25  # of f
NOISE = 0.05  # of one run: seed, learning rate, shape, and details that x does not have
ACCURACY_NOISE = 0.05  # of the logit of the accuracy around its curve
REPEATS = 15.0  # Muennighoff et al. 2023: so many repetitions later one adds 1/e of the first
FAR = 2.0  # a distance in x, in units of f's scales, from which on a run is beyond the table


class Range(NamedTuple):
    """A middle value and the bounds of its interval."""

    middle: float
    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high


class Feature(NamedTuple):
    """A component of x: its prior slope with its uncertainty, and the distance over which f changes."""

    slope: float
    spread: float
    scale: float


FEATURES = {
    "blocks": Feature(-0.10, 0.05, 2.0),
    "tokens": Feature(-0.20, 0.05, 2.0),
    "batch": Feature(0.05, 0.10, 2.0),
    "length": Feature(-0.05, 0.05, 3.0),
    "vocabulary": Feature(0.05, 0.10, 1.5),
    "learned": Feature(0.2, 0.2, 1.0),
    "untied": Feature(0.1, 0.1, 2.0),
    "mask": Feature(-0.1, 0.1, 1.0),  # 1 where twice BERT's 15 % are masked at first
    "distilled": Feature(-0.1, 0.1, 3.0),
    "optimizer": Feature(0.2, 0.2, 3.0),  # 1 for another than Muon
}


@dataclass(frozen=True)
class Expectation:
    """What to expect of a run. `notes` say where the table knows little."""

    loss: Range
    accuracy: Range
    notes: tuple[str, ...] = ()
    level: float = LEVEL


class ExpectedLoss:
    """The Gaussian process over the rows of a table."""

    def __init__(self, rows: Sequence[ReferenceRun]):
        self.rows = [row for row in rows if row.loss < ceiling(row)]
        self.x = features(self.rows)  # [n, k]
        self.z = np.array([to_z(row.loss, row) for row in self.rows])
        self.base = self._base(self.x)
        covariance = self._covariance(self.x, self.rows, self.x, self.rows) + NOISE**2 * np.eye(len(self.rows))
        self.inverse = np.linalg.inv(covariance)
        self.curve = fit_accuracy(self.rows)

    def at(self, run: Traits) -> Expectation:
        x = features([run])
        against = self._covariance(x, [run], self.x, self.rows)  # [1, n]
        mean = (self._base(x) + against @ self.inverse @ (self.z - self.base))[0]
        own = self._covariance(x, [run], x, [run])[0, 0]
        deviation = math.sqrt(max(own - (against @ self.inverse @ against.T)[0, 0], 0.0) + NOISE**2)
        loss = Range(*(from_z(mean + shift * DEVIATIONS * deviation, run) for shift in (0, -1, 1)))
        return Expectation(loss, self.curve.at(loss), tuple(self._notes(run, x[0])))

    def _base(self, x: np.ndarray) -> np.ndarray:
        return x @ np.array([feature.slope for feature in FEATURES.values()])

    def _covariance(self, x: np.ndarray, runs: Sequence[Traits], y: np.ndarray, others: Sequence[Traits]) -> np.ndarray:
        spreads = np.array([feature.spread for feature in FEATURES.values()])
        scales = np.array([feature.scale for feature in FEATURES.values()])
        linear = 1.0 + (x * spreads) @ (y * spreads).T  # 1: the height of the law is unknown
        distances = ((x[:, None] - y[None]) / scales) ** 2
        same = np.array([[(bool(a.corpus) and a.corpus == b.corpus) or a is b for b in others] for a in runs])
        return linear + SMOOTH_SPREAD**2 * np.exp(-0.5 * distances.sum(-1)) + CORPUS_SPREAD**2 * same

    def _notes(self, run: Traits, x: np.ndarray) -> list[str]:
        scales = np.array([feature.scale for feature in FEATURES.values()])
        nearest = np.sqrt((((self.x - x) / scales) ** 2).sum(1)).min()
        tokens = [row.tokens for row in self.rows]
        found = []
        if nearest > FAR:
            found.append("No reference run is like this one: the interval is mostly the prior of scaling laws.")
        if not min(tokens) <= run.tokens <= max(tokens):
            found.append(f"{run.tokens:,} tokens are beyond the reference runs ({min(tokens):,} to {max(tokens):,}).")
        if run.corpus not in {row.corpus for row in self.rows}:
            found.append(
                "The reference runs had another text; losses of two texts differ, and the interval allows for it. "
                "`glassbert scale` on this text adds runs of it to your table."
            )
        if run.vocabulary not in {row.vocabulary for row in self.rows}:
            found.append(f"No reference run had a vocabulary of {run.vocabulary:,}.")
        passes = [row.tokens / row.corpus_tokens for row in self.rows if row.corpus_tokens]
        if run.corpus_tokens and run.tokens / run.corpus_tokens > max(passes):
            found.append(
                f"The run reads its text {run.tokens / run.corpus_tokens:,.0f} times, reference runs at most "
                f"{max(passes):.0f} times: it may begin to know the text by heart, and the held-out loss may be higher."
            )
        return found


def features(runs: Sequence[Traits]) -> np.ndarray:
    """[n, k] the components of x, around a Mini of two million tokens."""
    return np.array(
        [
            [
                math.log(run.blocks / 1.3e6),
                math.log(useful_tokens(run) / 2e6),
                math.log(run.batch_tokens / 4_096),
                math.log(run.length / 64),
                math.log(run.vocabulary / 8_192),
                run.positions == "learned",
                not run.tied,
                run.mask_rate / 0.15 - 1,
                run.distilled,
                run.optimizer != "muon",
            ]
            for run in runs
        ],
        np.float64,
    ).reshape(len(runs), len(FEATURES))


def useful_tokens(run: Traits) -> float:
    """The number of new tokens that are worth as much as those of a run, which may read its text several times."""
    if not run.corpus_tokens or run.tokens <= run.corpus_tokens:
        return float(run.tokens)
    repetitions = run.tokens / run.corpus_tokens - 1
    return run.corpus_tokens * (1 + REPEATS * (1 - math.exp(-repetitions / REPEATS)))


def ceiling(run: Traits) -> float:
    """The loss of a guess among all words of the vocabulary."""
    return math.log(run.vocabulary)


def to_z(loss: float, run: Traits) -> float:
    return math.log(loss / (ceiling(run) - loss))


def from_z(z: float, run: Traits) -> float:
    return ceiling(run) / (1 + math.exp(-z))


@dataclass(frozen=True)
class AccuracyCurve:
    """logit(accuracy) as a parabola of the loss."""

    coefficients: np.ndarray

    def at(self, loss: Range) -> Range:
        middle, high, low = (float(np.polyval(self.coefficients, one)) for one in loss)
        half = DEVIATIONS * ACCURACY_NOISE
        return Range(*(1 / (1 + math.exp(-value)) for value in (middle, low - half, high + half)))


def fit_accuracy(rows: Sequence[ReferenceRun]) -> AccuracyCurve:
    known = [(row.loss, row.accuracy) for row in rows if row.accuracy]
    logits = [math.log(accuracy / (1 - accuracy)) for _, accuracy in known]
    return AccuracyCurve(np.polyfit([loss for loss, _ in known], logits, 2))


def leave_one_out(rows: Sequence[ReferenceRun]) -> list[tuple[ReferenceRun, Expectation]]:
    """Every row with what the others let expect of it."""
    return [(row, ExpectedLoss([other for other in rows if other is not row]).at(row)) for row in rows]
