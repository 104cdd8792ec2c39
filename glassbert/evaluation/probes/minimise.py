"""L-BFGS with a preconditioner, for smooth functions.

L-BFGS approximates the inverse Hessian H⁻¹ from the last steps s and the gradient changes y. In other directions it
uses `precondition`, an approximate H⁻¹ of the caller. It stops when the last `WINDOW` steps together gained less than
`tolerance`. The gains shrink by a nearly constant factor per step, so the remaining gain is about the same. (The usual
estimate g·H⁻¹g / 2 was ten times too small here.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]  # x -> value, gradient
Memory = deque[tuple[np.ndarray, np.ndarray, float]]
HISTORY = 16  # steps
WINDOW = 16
ARMIJO, WOLFE = 1e-4, 0.9  # conditions of the line search
TRIES = 20
ROUNDING = 1e-6  # relative to the value


@dataclass(frozen=True)
class Minimum:
    """The result. `gain` is that of the last WINDOW steps, an estimate of the remaining gain."""

    x: np.ndarray
    value: float
    gradient: np.ndarray
    gain: float
    steps: int
    converged: bool


def minimise(
    function: Function,
    start: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    tolerance: float = 3e-4,
    most_steps: int = 400,
) -> Minimum:
    """Minimise `function` (value and gradient) from `start`."""
    x = np.array(start, np.float64)
    value, gradient = function(x)
    rough = precondition or (lambda g: g)
    memory: Memory = deque(maxlen=HISTORY)
    values = [value]
    for step in range(most_steps):
        gain = values[max(0, len(values) - 1 - WINDOW)] - value
        if not gradient.any() or (step >= WINDOW and gain <= tolerance):
            return Minimum(x, value, gradient, gain, step, True)
        direction = -_inverse_times(gradient, memory, rough)
        slope = float(gradient @ direction)
        found = _search(function, x, value, direction, slope)
        if found is None:  # the history is misleading, or the expected gain is below the rounding error
            if not memory or -slope <= ROUNDING * abs(value):
                return Minimum(x, value, gradient, min(gain, -slope), step, -slope <= tolerance)
            memory.clear()
            continue
        new, value, new_gradient = found
        s, y = new - x, new_gradient - gradient
        if (curvature := float(s @ y)) > 0:
            memory.append((s, y, curvature))
        x, gradient = new, new_gradient
        values.append(value)
    return Minimum(x, value, gradient, values[max(0, len(values) - 1 - WINDOW)] - value, most_steps, False)


def _inverse_times(gradient: np.ndarray, memory: Memory, rough: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """H⁻¹g by the two-loop recursion of L-BFGS."""
    q = gradient.copy()
    shares = []
    for s, y, curvature in reversed(memory):
        share = float(s @ q) / curvature
        q -= share * y
        shares.append(share)
    scale = 1.0
    if memory:
        _, y, curvature = memory[-1]
        scale = curvature / float(y @ rough(y))
    q = scale * rough(q)
    for (s, y, curvature), share in zip(memory, reversed(shares), strict=True):
        q += (share - float(y @ q) / curvature) * s
    return q


def _search(
    function: Function, x: np.ndarray, value: float, direction: np.ndarray, slope: float
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Line search: bisection or doubling until the Wolfe conditions hold; None if they never do."""
    length, low, high = 1.0, 0.0, np.inf
    for _ in range(TRIES):
        new = x + length * direction
        new_value, new_gradient = function(new)
        if not new_value <= value + ARMIJO * length * slope:  # also true for NaN
            high = length
        elif float(new_gradient @ direction) < WOLFE * slope:
            low = length
        else:
            return new, new_value, new_gradient
        length = (low + high) / 2 if np.isfinite(high) else 2 * length
    return None
