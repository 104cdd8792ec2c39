"""Metrics for probabilities: log loss, Brier score, calibration, and temperature scaling.

    log loss = - mean ln p(label)
    Brier    = mean (p - y)²  for two classes;  mean Σ_k (p_k - [label = k])²  for several

Both are proper scores: the true probabilities minimise them.

Calibration: predictions are binned by confidence. Expected calibration error, over bins b of n_b examples:

    ECE = Σ_b n_b / N · |observed frequency in b - mean confidence in b|

Temperature scaling: p = softmax(z / T) with one T > 0. T > 1 lowers the confidence; the ranking does not change. T
minimises the log loss on validation logits. In b = 1 / T that loss is convex, with

    loss'(b)  = mean(E_p[z] - z_label)        loss''(b) = mean(Var_p[z])

so Newton's method finds the minimum; a step that leaves the bracketing interval is replaced by its geometric mean.
For two classes with a single logit z, the logits are (0, z).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.classification import as_columns
from glassbert.metrics.inputs import (
    Undefined,
    Value,
    as_binary,
    as_numbers,
    as_weights,
    check_lengths,
    ratio_or_zero,
    sums_by_group,
    weighted_mean,
)

MIN_PROBABILITY = np.finfo(np.float64).eps  # a probability of 0 has a log loss of 36 instead of infinity
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3
BIAS_PENALTY = 0.5  # on the squared biases, added to the summed log loss
TINY = 1e-9
Bins = Literal["uniform", "quantile"]

# ---- log loss and Brier score ----------------------------------------------------------------------------------------


def log_loss(truth: Any, probabilities: Any, weights: Any = None) -> Value:
    """`probabilities` [N] of the positive class with truth 0 and 1, or [N, L] with truth as column indices."""
    return weighted_mean(-np.log(np.clip(_label_probability(truth, probabilities), MIN_PROBABILITY, 1.0)), weights)


def brier_score(truth: Any, probabilities: Any, weights: Any = None) -> Value:
    """Between 0 and 1 for two classes, between 0 and 2 for several."""
    p = as_probabilities(probabilities)
    own = _label_probability(truth, p)
    if p.ndim == 1:
        return weighted_mean((1.0 - own) ** 2, weights)
    return weighted_mean((p * p).sum(1) - own * own + (1.0 - own) ** 2, weights)


def as_probabilities(probabilities: Any) -> np.ndarray:
    """[N], or [N, L] with rows that sum to 1."""
    p = as_numbers(probabilities, "probabilities")
    if p.ndim not in (1, 2):
        raise InputError(f"probabilities must be [N] or [N, labels], got the shape {list(p.shape)}")
    if p.size and (p.min() < 0 or p.max() > 1):
        raise InputError(
            f"probabilities must lie between 0 and 1, got {p.min():.4g} to {p.max():.4g}; are these logits?"
        )
    if p.ndim == 2 and p.size and np.abs(p.sum(1) - 1).max() > 1e-3:
        row = int(np.abs(p.sum(1) - 1).argmax())
        raise InputError(f"probabilities of an example must sum to 1; those of row {row} sum to {p[row].sum():.4g}")
    return p


def _label_probability(truth: Any, probabilities: Any) -> np.ndarray:
    """The probability of the true label, [N]."""
    p = as_probabilities(probabilities)
    if p.ndim == 1:
        positive = as_binary(truth)
        check_lengths(truth=positive, probabilities=p)
        return np.where(positive, p, 1.0 - p)
    return p[np.arange(len(p)), as_columns(truth, p)]


# ---- calibration -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CalibrationCurve:
    """One entry for every non-empty bin: mean confidence, observed frequency, number of examples."""

    confidence: np.ndarray
    observed: np.ndarray
    counts: np.ndarray


def calibration_curve(truth: Any, probabilities: Any, bins: int = 10, strategy: Bins = "uniform") -> CalibrationCurve:
    """For [N] the probability of the positive class; for [N, L] the highest probability and whether it was correct."""
    confidence, outcome = _confidence_and_outcome(truth, probabilities)
    groups = _bin_of(confidence, bins, strategy)
    columns = (np.ones(len(confidence)), confidence, outcome)
    counts, confident, positive = (sums_by_group(values, groups, bins) for values in columns)
    full = counts > 0
    return CalibrationCurve(
        confident[full] / counts[full], positive[full] / counts[full], counts[full].astype(np.int64)
    )


def expected_calibration_error(
    truth: Any, probabilities: Any, bins: int = 10, strategy: Bins = "uniform", weights: Any = None
) -> Value:
    """The mean gap between confidence and observed frequency, weighted by bin size."""
    confidence, outcome = _confidence_and_outcome(truth, probabilities)
    groups = _bin_of(confidence, bins, strategy)
    weights = as_weights(weights, len(confidence))
    gap = np.abs(sums_by_group(weights * (outcome - confidence), groups, bins)).sum(-1)
    error = ratio_or_zero(gap, weights.sum(-1))
    return float(error) if error.ndim == 0 else error


def _confidence_and_outcome(truth: Any, probabilities: Any) -> tuple[np.ndarray, np.ndarray]:
    """The predicted confidence, and 1 where the prediction was correct (for [N]: where truth is 1), [N] each."""
    p = as_probabilities(probabilities)
    if p.ndim == 1:
        positive = as_binary(truth)
        check_lengths(truth=positive, probabilities=p)
        return p, positive.astype(np.float64)
    return p.max(1), (p.argmax(1) == as_columns(truth, p)).astype(np.float64)


def _bin_of(confidence: np.ndarray, bins: int, strategy: str) -> np.ndarray:
    """The bin index of each value; a value on an edge belongs to the bin below it."""
    if bins < 1:
        raise InputError(f"bins must be at least 1, got {bins}")
    if strategy not in ("uniform", "quantile"):
        raise InputError(f"strategy must be 'uniform' or 'quantile', got {strategy!r}")
    shares = np.linspace(0.0, 1.0, bins + 1)
    edges = np.quantile(confidence, shares) if strategy == "quantile" else shares
    return np.searchsorted(edges[1:-1], confidence)


# ---- temperature scaling ---------------------------------------------------------------------------------------------


def fit_temperature(truth: Any, logits: Any) -> float:
    """T from validation logits: [N] of the positive class with truth 0 and 1, or [N, L] with truth as columns."""
    z, columns = _as_two_columns(truth, logits)
    z = z - z[np.arange(len(z)), columns][:, None]  # the label's own logit becomes 0: loss' = mean E_p[z]
    low, high = 1.0 / MAX_TEMPERATURE, 1.0 / MIN_TEMPERATURE
    if not z.any():
        raise Undefined("no temperature fits: all logits of an example are alike")
    if _derivatives(z, low)[0] >= 0:
        raise Undefined("no temperature fits: these logits are no better than chance")
    if _derivatives(z, high)[0] <= 0:
        raise Undefined("no temperature fits: every example is right, so the loss has no minimum")
    b = 1.0
    for _ in range(200):
        slope, curvature = _derivatives(z, b)
        if slope > 0:
            high = b
        else:
            low = b
        newton = b - slope / curvature if curvature > 0 else low
        after = newton if low < newton < high else (low * high) ** 0.5
        if abs(after - b) <= 1e-12 * b:
            break
        b = after
    return 1.0 / b


def fit_scaling(truth: Any, logits: Any) -> tuple[float, np.ndarray]:
    """T and a bias per class that minimise the log loss of logits / T + bias; the biases of all classes sum to 0.

    For logits [N] of the positive class the bias is [1]. A small penalty on the biases keeps that of a rare class
    finite. Newton's method, with the step halved until the loss falls.
    """
    z, columns = _as_two_columns(truth, logits)
    single = np.ndim(logits) == 1
    count, classes = z.shape
    inverse = 1.0 / fit_temperature(truth, logits)
    bias = np.zeros(classes)
    hit = np.eye(classes)[columns]

    def loss(scale: float, bias: np.ndarray) -> float:
        scores = scale * z + bias
        top = scores.max(1)
        logs = top + np.log(np.exp(scores - top[:, None]).sum(1))
        return float((logs - scores[np.arange(count), columns]).sum() + 0.5 * BIAS_PENALTY * (bias**2).sum())

    value = loss(inverse, bias)
    for _ in range(100):
        p = apply_temperature(inverse * z + bias, 1.0)
        mean = (p * z).sum(1)  # [N]
        slope = np.r_[((p - hit) * z).sum(), (p - hit).sum(0) + BIAS_PENALTY * bias]
        curvature = np.empty((classes + 1, classes + 1))
        curvature[0, 0] = (p * z * z).sum() - (mean**2).sum() + TINY
        curvature[0, 1:] = curvature[1:, 0] = (p * (z - mean[:, None])).sum(0)
        curvature[1:, 1:] = np.diag(p.sum(0) + BIAS_PENALTY) - p.T @ p
        step = np.linalg.solve(curvature, slope)
        size = 1.0
        while size > 1e-6:
            trial = inverse - size * step[0], bias - size * step[1:]
            if trial[0] > 1.0 / MAX_TEMPERATURE and (after := loss(*trial)) <= value:
                break
            size /= 2
        else:
            break
        gain, (inverse, bias), value = value - after, trial, after
        if gain < 1e-9 * max(1.0, abs(value)):
            break
    bias = bias - bias.mean()
    return 1.0 / float(inverse), bias[1:] - bias[:1] if single else bias


def apply_temperature(logits: Any, temperature: float) -> np.ndarray:
    """Probabilities: [N] from [N] by the sigmoid, [N, L] from [N, L] by the softmax."""
    z = as_numbers(logits, "logits") / temperature
    if z.ndim == 1:
        return np.exp(-np.logaddexp(0.0, -z))
    exp = np.exp(z - z.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def _derivatives(z: np.ndarray, b: float) -> tuple[float, float]:
    """The first and the second derivative of the loss with respect to b."""
    p = apply_temperature(z, 1.0 / b)
    mean = (p * z).sum(1)
    return float(mean.mean()), float(((p * z * z).sum(1) - mean**2).mean())


def _as_two_columns(truth: Any, logits: Any) -> tuple[np.ndarray, np.ndarray]:
    """Logits [N, L] and truth as column indices; a single logit z becomes (0, z)."""
    z = as_numbers(logits, "logits")
    if z.ndim == 1:
        positive = as_binary(truth)
        check_lengths(truth=positive, logits=z)
        return np.stack([np.zeros_like(z), z], 1), positive.astype(np.int64)
    if z.ndim != 2:
        raise InputError(f"logits must be [N] or [N, labels], got the shape {list(z.shape)}")
    return z, as_columns(truth, z)
