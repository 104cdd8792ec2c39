"""Compare the gradients of a function with numeric derivatives.

    report = gradient_check(function, {"x": x, "gamma": gamma})
    print(report)
    assert report.ok, report

The derivative is measured in float64, with the function as a black box:

    central    n(h) = (f(x + h) - f(x - h)) / 2h, at h and at h/2, joined to n = (4 n(h/2) - n(h)) / 3
    complex    n = Im f(x + ih) / h with h = 1e-30: no subtraction, so no digit is lost; analytic functions only

The two step sizes of a central difference cancel its h² error; their difference shows noise and kinks. Small tensors
are checked entry by entry. Of large ones some entries are checked, and some random directions over all entries; if the
derivative along a direction is wrong, bisection finds the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.proof.function import CheckedFunction
from glassbert.proof.report import GradientReport, TensorCheck

STEPS = {"central": 1e-4, "complex": 1e-30}
SMALLER = (0.1, 0.01)  # factors of smaller steps, tried if the first step disagrees with the gradient
EPSILON = float(np.finfo(np.float64).eps)


class Direction(NamedTuple):
    """A direction in a flat tensor: the indices of the entries that change, and their weights."""

    indices: np.ndarray
    weights: np.ndarray


class Derivative(NamedTuple):
    """A measured derivative, and the difference of its two step sizes."""

    value: float
    uncertainty: float


def gradient_check(
    function: Callable[..., Any] | Sequence[Callable[..., Any]],
    inputs: Any,
    *,
    wrt: str | int | Iterable[str | int] | None = None,
    method: str = "central",
    step: float | None = None,
    seed: int = 0,
    entries: int = 128,
    directions: int = 2,
    tolerance: float = 1e-6,
    first_fault: bool = False,
) -> GradientReport:
    """Compare the gradients of `function` with its numeric derivative. The report says whether they are equal.

    function    called with the inputs; returns `(loss, gradients)`, or `(output, backward)` where
                `backward(d_output)` returns the gradients and the output may have any shape. Gradients are a mapping
                from name to array, or a sequence in the order of the inputs. Or a pair `(forward, backward)`: forward
                returns the output or `(output, cache)`, backward is called with d_output and the cache, or with
                d_output and the inputs if there is no cache.
    inputs      a mapping, passed as keywords if the function has parameters of those names, otherwise as one mapping;
                a list, passed as positional arguments; or a single array. Values that are not arrays of floats are
                passed unchanged.
    wrt         the inputs to check, by name or index; by default all arrays of floats
    method      "central" or "complex"
    step        the step h, relative to the root mean square of the tensor if that is below 1
    entries     tensors with at most so many entries are checked completely, larger ones at so many random entries
    directions  number of random directions that are also checked in a large tensor
    tolerance   the relative error |a - n| / (|a| + |n|) of a tensor up to which its gradient counts as exact
    first_fault stop after the first tensor whose gradient is not exact

    An output that is not a scalar is reduced with random weights, drawn from `seed`.
    """
    if method not in STEPS:
        raise InputError(f"unknown method {method!r}; choose 'central' or 'complex'")
    if step is not None and not step > 0:
        raise InputError(f"step must be above 0, got {step!r}")
    if entries < 1:
        raise InputError(f"entries must be at least 1, got {entries!r}")
    rng = np.random.default_rng(seed)
    checked = CheckedFunction(function, inputs, wrt)
    analytic, problems = checked.analytic(rng)
    tensors = []
    comparison = Comparison(checked, method, step or STEPS[method], rng, entries, directions, tolerance)
    for name in checked.wrt:
        values = checked.values[name]
        problem = problems.pop(name, None)
        if problem is not None or checked.problems:
            tensors.append(TensorCheck(name, values.shape, tolerance, problem=problem or "not compared"))
        else:
            tensors.append(comparison.tensor(name, analytic[name]))
        if first_fault and not tensors[-1].ok:
            break
    return GradientReport(
        tuple(tensors), tolerance, method, tuple(checked.problems), tuple(checked.notes), checked.evaluations
    )


class Comparison:
    """Measures derivatives of one function and compares them with its gradients."""

    def __init__(
        self,
        checked: CheckedFunction,
        method: str,
        step: float,
        rng: np.random.Generator,
        entries: int,
        directions: int,
        tolerance: float,
    ):
        self.checked = checked
        self.method = method
        self.step = step
        self.rng = rng
        self.entries = entries
        self.directions = directions
        self.tolerance = tolerance

    def tensor(self, name: str, gradient: np.ndarray) -> TensorCheck:
        """Compare one gradient with measured derivatives."""
        flat, shape = gradient.reshape(-1), gradient.shape
        directions, compared = self.directions_of(flat.size)
        if not directions:
            return TensorCheck(name, shape, self.tolerance, compared="no entries")
        a = np.array([float(flat[one.indices] @ one.weights) for one in directions])
        measured = [self.measure(name, one, expected) for one, expected in zip(directions, a, strict=True)]
        n = np.array([found.value for found in measured])
        if not np.isfinite(n).all():
            return TensorCheck(name, shape, self.tolerance, problem="the value is not finite near the given point")
        off = np.abs(a - n)
        norms = float(np.linalg.norm(a) + np.linalg.norm(n))
        error = float(np.linalg.norm(off)) / max(norms, self.floor(name, len(directions)))
        at = int(np.argmax(off))
        direction, expected, found = directions[at], float(a[at]), measured[at]
        if error > self.tolerance:
            if len(direction.indices) > 1:
                direction = self.find_entry(name, flat, direction)
                expected = float(flat[direction.indices[0]])
                found = self.measure(name, direction, expected)
            self.note_uncertainty(name, float(off.max()), max(m.uncertainty for m in measured))
        single = len(direction.indices) == 1
        worst = tuple(int(i) for i in np.unravel_index(direction.indices[0], shape)) if single else None
        largest = max(float(off.max()), abs(expected - found.value))
        return TensorCheck(name, shape, self.tolerance, error, largest, worst, expected, found.value, compared)

    def directions_of(self, size: int) -> tuple[list[Direction], str]:
        """Every entry of a small tensor; some entries and random directions of a large one. And a description."""
        if size <= self.entries:
            return [Direction(np.array([i]), np.ones(1)) for i in range(size)], "every entry"
        indices = np.sort(self.rng.choice(size, self.entries, replace=False))
        directions = [Direction(np.array([i]), np.ones(1)) for i in indices]
        for _ in range(self.directions):
            weights = self.rng.standard_normal(size)
            directions.append(Direction(np.arange(size), weights / np.linalg.norm(weights)))
        return directions, f"{self.entries:,} of {size:,} entries and {self.directions} random directions"

    def note_uncertainty(self, name: str, off: float, uncertainty: float) -> None:
        if uncertainty > 0.5 * off:
            self.checked.note(
                f"near this {name} the measured derivative is unsure by {uncertainty:.1e}: a kink, a jump or noise"
            )

    def floor(self, name: str, count: int) -> float:
        """The smallest norm that relative errors are computed with.

        Rounding changes a central difference by about ε·|f|/h. For a gradient of zero this noise would be a relative
        error of 1, so differences of this size are accepted.
        """
        if self.method == "complex":
            return 1e-300
        noise = 4.0 * EPSILON * self.checked.scale / (self.step * self.size_of(name))
        return noise * count**0.5 / self.tolerance

    def size_of(self, name: str) -> float:
        """The root mean square of a tensor, limited to [0.001, 1]: the unit of the step."""
        values = self.checked.values[name]
        size = float(np.sqrt(np.mean(values * values))) if values.size else 1.0
        return min(1.0, max(size, 1e-3)) if size > 0 else 1.0

    def measure(self, name: str, direction: Direction, expected: float) -> Derivative:
        """The derivative along a direction; smaller steps are tried if the first does not confirm `expected`.

        The result is the step with the smallest uncertainty, independent of `expected`.
        """
        if self.method == "complex":
            return self.complex(name, direction, expected)
        h = self.step * self.size_of(name)
        first = best = self.central(name, direction, h)
        for factor in SMALLER:
            if self.confirms(best.value, expected):
                break
            if best.uncertainty <= 1e-3 * abs(best.value - expected):
                break  # the measurement is certain and differs from the gradient
            best = min(best, self.central(name, direction, h * factor), key=lambda found: found.uncertainty)
        return Derivative(best.value, max(best.uncertainty, abs(first.value - best.value)))

    def confirms(self, measured: float, expected: float) -> bool:
        return abs(measured - expected) <= 0.1 * self.tolerance * (abs(measured) + abs(expected))

    def complex(self, name: str, direction: Direction, expected: float) -> Derivative:
        """The complex step. If it does not confirm `expected`, a central difference decides whether it is valid."""
        found = Derivative(self.checked.imaginary(name, *direction, self.step) / self.step, 0.0)
        if self.confirms(found.value, expected):
            return found
        second = self.central(name, direction, STEPS["central"] * self.size_of(name))
        apart = abs(second.value - found.value)
        if apart <= 1e-4 * (abs(second.value) + abs(found.value)) + 10.0 * second.uncertainty:
            return found
        self.checked.note(
            "a complex step and a central difference disagree, so the function is not analytic "
            "(it uses abs, maximum or similar); central differences were used"
        )
        return second

    def central(self, name: str, direction: Direction, h: float) -> Derivative:
        wide = self.checked.change(name, *direction, h) / (2.0 * h)
        narrow = self.checked.change(name, *direction, 0.5 * h) / h
        return Derivative((4.0 * narrow - wide) / 3.0, abs(narrow - wide))

    def find_entry(self, name: str, flat: np.ndarray, direction: Direction) -> Direction:
        """Bisect a direction with a wrong derivative to an entry: continue with the half that has the larger error."""
        while len(direction.indices) > 1:
            half = len(direction.indices) // 2
            halves = [
                Direction(direction.indices[part], direction.weights[part])
                for part in (slice(0, half), slice(half, None))
            ]
            expected = [float(flat[part.indices] @ part.weights) for part in halves]
            off = [abs(self.measure(name, part, e).value - e) for part, e in zip(halves, expected, strict=True)]
            direction = halves[int(np.argmax(off))]
        return Direction(direction.indices, np.ones(1))
