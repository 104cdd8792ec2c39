"""Honest probabilities: one temperature, fitted on held-out predictions and measured on others.

    calibration = calibrate(outcome)
    calibration.temperature         what the logits are divided by; None with the reason where none fits
    calibration.after.ece           the calibration error that new examples may expect
    card = calibration.on(card)     the card with its temperature, and with thresholds where labels need them

A temperature fitted and measured on the same rows would look better than it is. So the figures are made with two: each
half of the rows is made honest by the temperature of the other half. The card gets the one of all rows.

Many questions at once (several labels, the steps between ranks, the words of a sentence) are many predictions with one
temperature. In an ordinal head a step is a question only where the truth is not below it, and its loss is the sum over
those, so that the same fit is exact there as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.finetuning.answers import probabilities
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import Outcome
from glassbert.metrics import (
    CalibrationCurve,
    Score,
    Undefined,
    calibration_curve,
    expected_calibration_error,
    fit_temperature,
    log_loss,
    measure,
    tune_thresholds,
)

CALIBRATED = ("binary", "multiclass", "multilabel", "ordinal", "token")
FEWEST = 20  # predictions in a half; fewer say nothing about a temperature


@dataclass(frozen=True)
class Honesty:
    """How honest probabilities are: the mean gap between what was claimed and what came true, and the log loss."""

    ece: Score
    log_loss: Score
    curve: CalibrationCurve

    def as_json(self) -> dict[str, Any]:
        return {"ece": self.ece.as_json(), "log_loss": self.log_loss.as_json()}


@dataclass(frozen=True)
class Calibration:
    """`before` and `after` are measured on the same rows, `after` by cross-fitting; `thresholds` are for labels."""

    temperature: float | None
    reason: str = ""
    before: Honesty | None = None
    after: Honesty | None = None
    thresholds: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()

    def on(self, card: TaskCard) -> TaskCard:
        """The card as the finished model has it."""
        return card.replace(temperature=self.temperature, thresholds=self.thresholds)

    def as_json(self) -> dict[str, Any]:
        parts = {"before": self.before, "after": self.after}
        return {
            "temperature": self.temperature,
            **({"reason": self.reason} if self.reason else {}),
            **{name: part.as_json() for name, part in parts.items() if part is not None},
        }


def calibrate(outcome: Outcome, *, resamples: int = 0) -> Calibration:
    """The temperature, and the thresholds of a multilabel task, from what a model said about held-out examples."""
    card = outcome.card.replace(temperature=None, thresholds=None)
    if card.head not in CALIBRATED or outcome.truth is None:
        return Calibration(None, f"a {card.head} head gives no probabilities")
    outputs, truth = outcome.outputs, outcome.truth
    before = _honesty(_claims(probabilities(outputs, card), truth, card), resamples)
    try:
        temperature: float | None = fit_temperature(*_predictions(outputs, truth, card))
        crossed = _cross_fitted(outputs, truth, card)
    except Undefined as undefined:
        thresholds, notes = _thresholds(outputs, truth, card)
        return Calibration(None, str(undefined), before, None, thresholds, notes)
    after: Honesty | None = _honesty(_claims(crossed, truth, card), resamples)
    reason = _useless(before, after)
    if reason:
        temperature, after = None, None
    thresholds, notes = _thresholds(outputs, truth, card.replace(temperature=temperature))
    return Calibration(temperature, reason, before, after, thresholds, notes)


def _useless(before: Honesty, after: Honesty | None) -> str:
    """Why the temperature is better left out; nothing where it helps examples that had no say in it."""
    losses = before.log_loss.value, after.log_loss.value if after else None
    if losses[0] is None or losses[1] is None or losses[1] < losses[0]:
        return ""
    return f"a temperature would not help (log loss {losses[0]:.4f} without, {losses[1]:.4f} with it)"


def _cross_fitted(outputs: Any, truth: Any, card: TaskCard) -> Any:
    """Probabilities of every example by the temperature of the other half; halves are even and odd rows."""
    halves = [np.arange(start, len(truth), 2) for start in (0, 1)]
    parts: list[Any] = [None, None]
    for own, other in ((0, 1), (1, 0)):
        told = _predictions(_take(outputs, halves[other]), _take(truth, halves[other]), card)
        if len(told[0]) < FEWEST:
            raise Undefined(f"no temperature fits: {len(truth)} examples are too few to fit and to measure it")
        fitted = card.replace(temperature=fit_temperature(*told))
        parts[own] = probabilities(_take(outputs, halves[own]), fitted)
    rows: list[Any] = [None] * len(truth)
    for part, half in zip(parts, halves, strict=True):
        for place, row in enumerate(half.tolist()):
            rows[row] = part[place]
    return rows if card.head == "token" else np.array(rows)


def _predictions(outputs: Any, truth: Any, card: TaskCard) -> tuple[np.ndarray, np.ndarray]:
    """Truth and logits as `fit_temperature` takes them: of one choice each, or of one yes or no."""
    if card.head == "token":
        return np.concatenate(list(truth)), np.concatenate(list(outputs))
    outputs, truth = np.asarray(outputs, np.float64), np.asarray(truth)
    if card.head == "multilabel":
        return truth.reshape(-1).astype(np.int64), outputs.reshape(-1)
    if card.head == "ordinal":
        steps = np.arange(outputs.shape[1])
        asked = steps <= truth[:, None]  # whoever is at rank k answers the steps 0 to k
        return (truth[:, None] > steps)[asked].astype(np.int64), outputs[asked]
    return truth, outputs


def _claims(chances: Any, truth: Any, card: TaskCard) -> tuple[np.ndarray, np.ndarray]:
    """Truth and probabilities as the calibration metrics take them."""
    if card.head == "token":
        return np.concatenate(list(truth)), np.concatenate(list(chances))
    if card.head == "multilabel":
        return np.asarray(truth).reshape(-1).astype(np.int64), np.asarray(chances).reshape(-1)
    return np.asarray(truth), np.asarray(chances)


def _honesty(claims: tuple[np.ndarray, np.ndarray], resamples: int) -> Honesty:
    return Honesty(
        measure(expected_calibration_error, *claims, resamples=resamples),
        measure(log_loss, *claims, resamples=resamples),
        calibration_curve(*claims),
    )


def _thresholds(outputs: Any, truth: Any, card: TaskCard) -> tuple[tuple[float, ...] | None, tuple[str, ...]]:
    if card.head != "multilabel":
        return None, ()
    found = tune_thresholds(np.asarray(truth).astype(np.int64), probabilities(outputs, card), card.label_names)
    return tuple(found.values.tolist()), found.notes


def _take(values: Any, rows: np.ndarray) -> Any:
    return [values[row] for row in rows] if isinstance(values, list) else np.asarray(values)[rows]
