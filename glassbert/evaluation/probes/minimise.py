"""The minimum of a smooth function of many numbers, by L-BFGS with a preconditioner.

Newton's method would go to x - H⁻¹g. L-BFGS knows H⁻¹ by the last few steps s and the changes y of the gradient on
them; what it has not seen yet it takes from `precondition`, a rough H⁻¹ that the caller knows. It stops when the last
`WINDOW` steps together have gained less than `tolerance`. The gains shrink from step to step by a nearly constant
factor, so what is left to gain is about as much. (L-BFGS's own estimate, g·H⁻¹g / 2, was ten times too hopeful here.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]  # x -> value, gradient
Memory = deque[tuple[np.ndarray, np.ndarray, float]]
REMEMBERED = 16  # steps
WINDOW = 16
ARMIJO, WOLFE = 1e-4, 0.9  # a step gains this share of what the slope promised, and leaves less than that of the slope
TRIES = 20
ROUNDING = 1e-6  # of the value


@dataclass(frozen=True)
class Minimum:
    """Where the search ended. `gain` is that of the last steps, which estimates what is left to gain."""

    x: np.ndarray
    value: float
    gradient: np.ndarray
    gain: float
    steps: int
    converged: bool

    def above(self, l2: float) -> float:
        """How far the value lies above the minimum at most, for a function whose curvature is nowhere below `l2`."""
        return float(self.gradient @ self.gradient) / (2 * l2)


def minimise(
    function: Function,
    start: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    tolerance: float = 3e-4,
    most_steps: int = 400,
) -> Minimum:
    x = np.array(start, np.float64)
    value, gradient = function(x)
    rough = precondition or (lambda g: g)
    memory: Memory = deque(maxlen=REMEMBERED)
    values = [value]
    for step in range(most_steps):
        gain = values[max(0, len(values) - 1 - WINDOW)] - value
        if not gradient.any() or (step >= WINDOW and gain <= tolerance):
            return Minimum(x, value, gradient, gain, step, True)
        direction = -_inverse_times(gradient, memory, rough)
        slope = float(gradient @ direction)
        found = _search(function, x, value, direction, slope)
        if (
            found is None
        ):  # the memory misleads, or rounding leaves nothing to gain: what the slope promises is too little
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
    """H⁻¹g by the two loops of L-BFGS."""
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
    """A point along the direction that meets Wolfe's conditions: half of too long a step, twice too short a one."""
    length, low, high = 1.0, 0.0, np.inf
    for _ in range(TRIES):
        new = x + length * direction
        new_value, new_gradient = function(new)
        if not new_value <= value + ARMIJO * length * slope:  # also where it is not a number
            high = length
        elif float(new_gradient @ direction) < WOLFE * slope:
            low = length
        else:
            return new, new_value, new_gradient
        length = (low + high) / 2 if np.isfinite(high) else 2 * length
    return None
