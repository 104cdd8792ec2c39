"""Calibration of probabilities: a temperature and a bias per class, fitted on held-out predictions.

    p = softmax(logits / temperature + bias)          or σ(logit / temperature + bias)

    calibration = calibrate(outcome)                  fitted on these examples
    calibration = calibration.measured_on(other)      evaluated on others
    calibration.temperature, calibration.bias         None, with a `reason`, if none is used
    calibration.after.ece                             the expected calibration error on new examples
    card = calibration.apply_to(card)                 the card with both, and thresholds of labels or cuts of ranks

What is fitted is used only if it lowers the log loss of examples it was not fitted on: each half of the rows is
predicted with the fit of the other half (cross-fitting). The card gets the fit of all rows.

A bias moves the border between two answers. So it is fitted only where other examples are reported
(`TaskCard.chosen_apart`), and only for one label per text: heads with several predictions per example (labels, rank
steps, words) use one temperature for all of them. In an ordinal head a temperature moves the answer as well, so it is
fitted there on the same condition. Step k counts only if the true rank is at least k. The loss of the head is the sum
over these steps, so the fit is exact there as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import Outcome, probabilities
from glassbert.finetuning.ranks import fit_cuts
from glassbert.metrics import (
    CalibrationCurve,
    Score,
    Undefined,
    calibration_curve,
    expected_calibration_error,
    fit_scaling,
    fit_temperature,
    log_loss,
    measure,
    tune_thresholds,
)

CALIBRATED = ("binary", "multiclass", "multilabel", "ordinal", "token")
WITH_BIAS = ("binary", "multiclass")
MAX_BIASES = 50  # labels
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
    """`before` and `after` are computed on the same rows; `apart`: rows on which nothing was fitted or chosen.

    `thresholds` are for multilabel tasks, `cuts` for ranks.
    """

    temperature: float | None
    reason: str = ""
    before: CalibrationScores | None = None
    after: CalibrationScores | None = None
    thresholds: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()
    bias: tuple[float, ...] | None = None
    apart: bool = False
    cuts: tuple[float, ...] | None = None

    @property
    def calibrated(self) -> bool:
        """Whether the probabilities of examples that it was not fitted on are better with it."""
        if self.before is None or self.after is None:
            return False
        before, after = self.before.log_loss.value, self.after.log_loss.value
        return before is not None and after is not None and after < before

    def apply_to(self, card: TaskCard) -> TaskCard:
        """The card with temperature, bias, thresholds and cuts."""
        return card.replace(temperature=self.temperature, bias=self.bias, thresholds=self.thresholds, cuts=self.cuts)

    def measured_on(self, outcome: Outcome, *, resamples: int = 0) -> Calibration:
        """The same calibration, evaluated on examples that it was not fitted on."""
        if self.before is None:
            return self
        truth, plain = outcome.truth, outcome.card.uncalibrated
        both = []
        for card in (plain, self.apply_to(plain)):
            probs = probabilities(outcome.outputs, card)
            both.append(_calibration_scores(_flat_probabilities(probs, truth, card), resamples))
        after = both[1] if self.temperature is not None else None
        return replace(self, before=both[0], after=after, apart=True)

    def as_json(self) -> dict[str, Any]:
        parts = {"before": self.before, "after": self.after}
        return {
            "temperature": self.temperature,
            "bias": None if self.bias is None else list(self.bias),
            "calibrated": self.calibrated,
            **({"reason": self.reason} if self.reason else {}),
            **({"cuts": list(self.cuts)} if self.cuts is not None else {}),
            **{name: part.as_json() for name, part in parts.items() if part is not None},
        }


class Fit(NamedTuple):
    """A temperature, and a bias or None."""

    temperature: float
    bias: tuple[float, ...] | None

    def apply_to(self, card: TaskCard) -> TaskCard:
        return card.replace(temperature=self.temperature, bias=self.bias)


def _fit_temperature(outputs: Any, truth: Any, card: TaskCard) -> Fit:
    return Fit(fit_temperature(*_flat_logits(outputs, truth, card)), None)


def _fit_with_bias(outputs: Any, truth: Any, card: TaskCard) -> Fit:
    temperature, bias = fit_scaling(*_flat_logits(outputs, truth, card))
    return Fit(temperature, tuple(bias.tolist()))


def calibrate(outcome: Outcome, *, resamples: int = 0, bias: bool | None = None) -> Calibration:
    """The best fit and, for multilabel tasks, the thresholds, from the outcome on held-out examples.

    `bias`: whether a bias may be fitted; None: if other examples are reported.
    """
    card = outcome.card.uncalibrated
    bias = card.chosen_apart if bias is None else bias
    if card.head not in CALIBRATED or outcome.truth is None:
        return Calibration(None, f"a {card.head} head has no probabilities")
    outputs, truth = outcome.outputs, outcome.truth
    if card.head == "ordinal" and not bias:
        scores = _calibration_scores(_flat_probabilities(probabilities(outputs, card), truth, card), resamples)
        return Calibration(
            None,
            "a temperature would move answers to other ranks, and no other examples are reported",
            scores,
            cuts=_cuts(outputs, truth, card),
        )
    before = _calibration_scores(_flat_probabilities(probabilities(outputs, card), truth, card), resamples)
    found: Fit | None = None
    after: CalibrationScores | None = None
    reason = ""
    fits = [_fit_temperature]
    if bias and card.head in WITH_BIAS and len(card.labels) <= MAX_BIASES:
        fits.append(_fit_with_bias)
    for fit in fits:
        try:
            fitted, crossed = fit(outputs, truth, card), _cross_fitted(outputs, truth, card, fit)
        except Undefined as undefined:
            reason = reason or str(undefined)
            continue
        scores = _calibration_scores(_flat_probabilities(crossed, truth, card), resamples)
        against = _reason_against(after or before, scores)
        if against:
            reason = reason or against
        else:
            found, after = fitted, scores
    card = card if found is None else found.apply_to(card)
    thresholds, notes = _thresholds(outputs, truth, card)
    cuts = _cuts(outputs, truth, card)
    if found is None:
        return Calibration(None, reason, before, None, thresholds, notes, cuts=cuts)
    return Calibration(found.temperature, "", before, after, thresholds, notes, found.bias, cuts=cuts)


def _reason_against(before: CalibrationScores, after: CalibrationScores) -> str:
    """The reason not to use a fit; empty if it lowers the cross-fitted log loss."""
    losses = before.log_loss.value, after.log_loss.value
    if losses[0] is None or losses[1] is None or losses[1] < losses[0]:
        return ""
    return f"a temperature does not lower the log loss ({losses[0]:.4f} without, {losses[1]:.4f} with it)"


def _cross_fitted(outputs: Any, truth: Any, card: TaskCard, fit: Callable[[Any, Any, TaskCard], Fit]) -> Any:
    """Probabilities with what was fitted on the other half; the halves are even and odd rows."""
    halves = [np.arange(start, len(truth), 2) for start in (0, 1)]
    parts: list[Any] = [None, None]
    for own, other in ((0, 1), (1, 0)):
        other_outputs, other_truth = _take(outputs, halves[other]), _take(truth, halves[other])
        if len(_flat_logits(other_outputs, other_truth, card)[0]) < MIN_PREDICTIONS:
            raise Undefined(f"no temperature fits: {len(truth)} examples are too few to fit and evaluate it")
        fitted = fit(other_outputs, other_truth, card).apply_to(card)
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


def _cuts(outputs: Any, truth: Any, card: TaskCard) -> tuple[float, ...] | None:
    return fit_cuts(np.asarray(truth), probabilities(outputs, card)) if card.needs_cuts else None


def _take(values: Any, rows: np.ndarray) -> Any:
    return [values[row] for row in rows] if isinstance(values, list) else np.asarray(values)[rows]
