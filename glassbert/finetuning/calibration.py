"""Calibration of probabilities: one temperature, fitted on held-out predictions and evaluated by cross-fitting.

    calibration = calibrate(outcome)
    calibration.temperature             divisor of the logits; None, with a `reason`, if none is used
    calibration.after.ece               the expected calibration error on new examples
    card = calibration.apply_to(card)   the card with its temperature and, for multilabel tasks, thresholds

A temperature evaluated on the rows it was fitted on looks better than it is. So `after` is computed with two
temperatures: each half of the rows uses the one fitted on the other half. The card gets the one of all rows.

Heads with several predictions per example (labels, rank steps, words) use one temperature for all of them. In an
ordinal head, step k counts only if the true rank is at least k. The loss of the head is the sum over these steps, so
the fit is exact there as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import Outcome, probabilities
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
MIN_PREDICTIONS = 20  # in each half


@dataclass(frozen=True)
class CalibrationScores:
    """Expected calibration error, log loss and calibration curve of predicted probabilities."""

    ece: Score
    log_loss: Score
    curve: CalibrationCurve

    def as_json(self) -> dict[str, Any]:
        return {"ece": self.ece.as_json(), "log_loss": self.log_loss.as_json()}


@dataclass(frozen=True)
class Calibration:
    """`before` and `after` are computed on the same rows, `after` by cross-fitting; `thresholds` are for multilabel."""

    temperature: float | None
    reason: str = ""
    before: CalibrationScores | None = None
    after: CalibrationScores | None = None
    thresholds: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()

    def apply_to(self, card: TaskCard) -> TaskCard:
        """The card with temperature and thresholds."""
        return card.replace(temperature=self.temperature, thresholds=self.thresholds)

    def as_json(self) -> dict[str, Any]:
        parts = {"before": self.before, "after": self.after}
        return {
            "temperature": self.temperature,
            **({"reason": self.reason} if self.reason else {}),
            **{name: part.as_json() for name, part in parts.items() if part is not None},
        }


def calibrate(outcome: Outcome, *, resamples: int = 0) -> Calibration:
    """The temperature, and for multilabel tasks the thresholds, from the outcome on held-out examples."""
    card = outcome.card.replace(temperature=None, thresholds=None)
    if card.head not in CALIBRATED or outcome.truth is None:
        return Calibration(None, f"a {card.head} head has no probabilities")
    outputs, truth = outcome.outputs, outcome.truth
    before = _calibration_scores(_flat_probabilities(probabilities(outputs, card), truth, card), resamples)
    try:
        temperature: float | None = fit_temperature(*_flat_logits(outputs, truth, card))
        cross_fitted_probs = _cross_fitted(outputs, truth, card)
    except Undefined as undefined:
        thresholds, notes = _thresholds(outputs, truth, card)
        return Calibration(None, str(undefined), before, None, thresholds, notes)
    after: CalibrationScores | None
    after = _calibration_scores(_flat_probabilities(cross_fitted_probs, truth, card), resamples)
    reason = _reason_against(before, after)
    if reason:
        temperature, after = None, None
    thresholds, notes = _thresholds(outputs, truth, card.replace(temperature=temperature))
    return Calibration(temperature, reason, before, after, thresholds, notes)


def _reason_against(before: CalibrationScores, after: CalibrationScores | None) -> str:
    """The reason not to use the temperature; empty if it lowers the cross-fitted log loss."""
    losses = before.log_loss.value, after.log_loss.value if after else None
    if losses[0] is None or losses[1] is None or losses[1] < losses[0]:
        return ""
    return f"a temperature does not lower the log loss ({losses[0]:.4f} without, {losses[1]:.4f} with it)"


def _cross_fitted(outputs: Any, truth: Any, card: TaskCard) -> Any:
    """Probabilities with the temperature fitted on the other half; the halves are even and odd rows."""
    halves = [np.arange(start, len(truth), 2) for start in (0, 1)]
    parts: list[Any] = [None, None]
    for own, other in ((0, 1), (1, 0)):
        fit_data = _flat_logits(_take(outputs, halves[other]), _take(truth, halves[other]), card)
        if len(fit_data[0]) < MIN_PREDICTIONS:
            raise Undefined(f"no temperature fits: {len(truth)} examples are too few to fit and evaluate it")
        fitted = card.replace(temperature=fit_temperature(*fit_data))
        parts[own] = probabilities(_take(outputs, halves[own]), fitted)
    rows: list[Any] = [None] * len(truth)
    for part, half in zip(parts, halves, strict=True):
        for index, row in enumerate(half.tolist()):
            rows[row] = part[index]
    return rows if card.head == "token" else np.array(rows)


def _flat_logits(outputs: Any, truth: Any, card: TaskCard) -> tuple[np.ndarray, np.ndarray]:
    """Truth and logits in the form that `fit_temperature` takes: one class or one binary target per row."""
    if card.head == "token":
        return np.concatenate(list(truth)), np.concatenate(list(outputs))
    outputs, truth = np.asarray(outputs, np.float64), np.asarray(truth)
    if card.head == "multilabel":
        return truth.reshape(-1).astype(np.int64), outputs.reshape(-1)
    if card.head == "ordinal":
        steps = np.arange(outputs.shape[1])
        is_target = steps <= truth[:, None]  # an example of rank k is a target of the steps 0 to k
        return (truth[:, None] > steps)[is_target].astype(np.int64), outputs[is_target]
    return truth, outputs


def _flat_probabilities(probs: Any, truth: Any, card: TaskCard) -> tuple[np.ndarray, np.ndarray]:
    """Truth and probabilities in the form that the calibration metrics take."""
    if card.head == "token":
        return np.concatenate(list(truth)), np.concatenate(list(probs))
    if card.head == "multilabel":
        return np.asarray(truth).reshape(-1).astype(np.int64), np.asarray(probs).reshape(-1)
    return np.asarray(truth), np.asarray(probs)


def _calibration_scores(predictions: tuple[np.ndarray, np.ndarray], resamples: int) -> CalibrationScores:
    return CalibrationScores(
        measure(expected_calibration_error, *predictions, resamples=resamples),
        measure(log_loss, *predictions, resamples=resamples),
        calibration_curve(*predictions),
    )


def _thresholds(outputs: Any, truth: Any, card: TaskCard) -> tuple[tuple[float, ...] | None, tuple[str, ...]]:
    if card.head != "multilabel":
        return None, ()
    tuned = tune_thresholds(np.asarray(truth).astype(np.int64), probabilities(outputs, card), card.label_names)
    return tuple(tuned.values.tolist()), tuned.notes


def _take(values: Any, rows: np.ndarray) -> Any:
    return [values[row] for row in rows] if isinstance(values, list) else np.asarray(values)[rows]
