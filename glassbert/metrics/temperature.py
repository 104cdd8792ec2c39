"""Temperature scaling: one number that makes probabilities honest and leaves every ranking as it is.

    p = softmax(z / T)        T > 1 makes a model less sure, T < 1 surer

T minimises the log loss on validation logits. In b = 1 / T that loss is convex, with

    loss'(b)  = mean(E_p[z] - z_label)        loss''(b) = mean(Var_p[z])

so Newton's method finds the minimum; the interval that surely holds it shrinks as it goes and catches a step too far.
For two classes with a single logit z, take the logits (0, z).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_binary, as_numbers, check_lengths
from glassbert.metrics.probability import checked_columns
from glassbert.metrics.undefined import Undefined

COLDEST, HOTTEST = 1e-3, 1e3


def fit_temperature(truth: Any, logits: Any) -> float:
    """From validation logits [N] (of the positive class) with truth 0 and 1, or [N, L] with truth as columns."""
    z, columns = _two_sided(truth, logits)
    z = z - z[np.arange(len(z)), columns][:, None]  # the label's own logit is 0 now: loss' = mean E_p[z]
    low, high = 1.0 / HOTTEST, 1.0 / COLDEST
    if not z.any():
        raise Undefined("no temperature fits: all logits of an example are alike")
    if _slopes(z, low)[0] >= 0:
        raise Undefined("no temperature fits: these logits are no better than chance, so the best answer ignores them")
    if _slopes(z, high)[0] <= 0:
        raise Undefined("no temperature fits: every example is right, so nothing says how unsure the model should be")
    b = 1.0
    for _ in range(200):
        slope, curvature = _slopes(z, b)
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


def apply_temperature(logits: Any, temperature: float) -> np.ndarray:
    """Probabilities: [N] from [N] by the sigmoid, [N, L] from [N, L] by the softmax."""
    z = as_numbers(logits, "logits") / temperature
    if z.ndim == 1:
        return np.exp(-np.logaddexp(0.0, -z))
    exp = np.exp(z - z.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def _slopes(z: np.ndarray, b: float) -> tuple[float, float]:
    """The first and the second derivative of the loss by b."""
    p = apply_temperature(z, 1.0 / b)
    mean = (p * z).sum(1)
    return float(mean.mean()), float(((p * z * z).sum(1) - mean**2).mean())


def _two_sided(truth: Any, logits: Any) -> tuple[np.ndarray, np.ndarray]:
    z = as_numbers(logits, "logits")
    if z.ndim == 1:
        positive = as_binary(truth)
        check_lengths(truth=positive, logits=z)
        return np.stack([np.zeros_like(z), z], 1), positive.astype(np.int64)
    if z.ndim != 2:
        raise InputError(f"logits must be [N] or [N, labels], got the shape {list(z.shape)}")
    return z, checked_columns(truth, z)
