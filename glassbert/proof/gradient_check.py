"""The referee: is this gradient the derivative of this function?

    report = gradient_check(function, {"x": x, "gamma": gamma})
    print(report)
    assert report.ok, report

The derivative is measured in float64, without knowing anything about the function:

    central    n(h) = (f(x + h) - f(x - h)) / 2h, at h and at h/2, joined to n = (4 n(h/2) - n(h)) / 3
    complex    n = Im f(x + ih) / h with h = 1e-30: no subtraction, so no digit is lost; analytic functions only

The two step sizes of a central difference cancel its h² error, and where they disagree they tell noise and kinks from a
wrong gradient. Small tensors are checked entry by entry. Of large ones some entries are checked, and whole random
directions, which no wrong entry escapes; where a direction disagrees, halving it again and again finds the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.proof.function import Checked
from glassbert.proof.report import GradientReport, TensorCheck

STEPS = {"central": 1e-4, "complex": 1e-30}
SMALLER = (0.1, 0.01)  # where the first step disagrees, smaller ones may settle it
EPSILON = float(np.finfo(np.float64).eps)


class Difference(NamedTuple):
    """A measured derivative, and how far its own two step sizes disagree."""

    value: float
    doubt: float


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
) -> GradientReport:
    """Compare the gradients of `function` with its numeric derivative; nothing is raised for a wrong gradient.

    function    called with the inputs; returns `(loss, gradients)`, or `(output, backward)` where
                `backward(d_output)` gives the gradients: then an output may have any shape, and only what is needed is
                computed. Gradients come as a mapping from name to array, or in the order of the inputs. Or a pair
                `(forward, backward)`: forward returns the output or `(output, cache)`, backward is called with
                d_output and the cache, or the inputs where there is no cache.
    inputs      a mapping, passed as keywords where the function has parameters of those names and as one mapping
                otherwise; a list, passed one by one; or a single array. Integer arrays and anything else that is no
                array of floats is handed on untouched.
    wrt         which inputs to check, by name or place; all floating-point ones unless said otherwise
    method      "central" or "complex"
    step        how far to move an entry, relative to the usual size of its tensor where that is below 1
    entries     tensors of up to so many entries are checked whole, larger ones at so many random places
    directions  how many random directions of a large tensor to check as well
    tolerance   the relative error |a - n| / (|a| + |n|) of a tensor up to which its gradient counts as exact

    An output that is no scalar is reduced with fixed random weights, drawn from `seed`.
    """
    if method not in STEPS:
        raise InputError(f"unknown method {method!r}; choose 'central' or 'complex'")
    if step is not None and not step > 0:
        raise InputError(f"step must be above 0, got {step!r}")
    if entries < 1:
        raise InputError(f"entries must be at least 1, got {entries!r}")
    rng = np.random.default_rng(seed)
    checked = Checked(function, inputs, wrt)
    analytic, problems = checked.analytic(rng)
    tensors = []
    judge = Judge(checked, method, step or STEPS[method], rng, entries, directions, tolerance)
    for name in checked.wrt:
        values = checked.values[name]
        problem = problems.pop(name, None)
        if problem is not None or checked.problems:
            tensors.append(TensorCheck(name, values.shape, tolerance, problem=problem or "not compared"))
        else:
            tensors.append(judge.tensor(name, analytic[name]))
    return GradientReport(
        tuple(tensors), tolerance, method, tuple(checked.problems), tuple(checked.notes), checked.evaluations
    )


class Judge:
    """Measures derivatives of one function and holds them against its gradients."""

    def __init__(
        self,
        checked: Checked,
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
        size, shape = gradient.size, gradient.shape
        flat = gradient.reshape(-1)
        whole = size <= self.entries
        places = np.arange(size) if whole else np.sort(self.rng.choice(size, self.entries, replace=False))
        moves = [(np.array([i]), np.ones(1)) for i in places]
        compared = "every entry" if whole else f"{len(places)} of {size:,} entries"
        if not whole and self.directions:
            everything = np.arange(size)
            moves += [(everything, _unit(self.rng.standard_normal(size))) for _ in range(self.directions)]
            compared += f" and {self.directions} directions"
        a = np.array([float(flat[where] @ weights) for where, weights in moves])
        measured = [self.measure(name, where, weights, x) for (where, weights), x in zip(moves, a, strict=True)]
        n = np.array([m.value for m in measured])
        if not np.isfinite(n).all():
            return TensorCheck(name, shape, self.tolerance, problem="the value is not finite near the given point")
        difference = np.abs(a - n)
        norms = float(np.linalg.norm(a) + np.linalg.norm(n))
        error = float(np.linalg.norm(difference)) / max(norms, self.floor(name, len(moves)))
        at = int(np.argmax(difference)) if len(moves) else 0
        worst: tuple[int, ...] | None = None
        if len(moves):
            where, weights = moves[at]
            if len(where) > 1 and error > self.tolerance:
                where = self.find(name, flat, where, weights)
            worst_analytic, worst_numeric, doubt = float(a[at]), float(n[at]), measured[at].doubt
            if len(where) == 1:
                worst = tuple(int(i) for i in np.unravel_index(where[0], shape))
                worst_analytic = float(flat[where[0]])
                worst_numeric, doubt = self.measure(name, where, np.ones(1), worst_analytic)
            if error > self.tolerance and doubt > 0.5 * abs(worst_analytic - worst_numeric):
                place = "" if worst is None else f" at {list(worst)}"
                self.checked.note(
                    f"near {name}{place} the measured derivative itself is unsure by {doubt:.1e}: a kink, a jump or noise"
                )
            return TensorCheck(
                name, shape, self.tolerance, error, float(difference.max()), worst, worst_analytic, worst_numeric, compared
            )
        return TensorCheck(name, shape, self.tolerance, compared="no entries")

    def floor(self, name: str, moves: int) -> float:
        """Norms below this are judged by their absolute size.

        Rounding alone moves a central difference by about ε·|f|/h. Where a gradient is truly zero, such noise would be
        a relative error of 1, so a difference no larger than it is not held against the gradient.
        """
        if self.method == "complex":
            return 1e-300
        noise = 4.0 * EPSILON * self.checked.scale / (self.step * self.size_of(name))
        return noise * moves**0.5 / self.tolerance

    def size_of(self, name: str) -> float:
        """The usual size of a tensor's entries, limited to [0.001, 1]: what a step is measured in."""
        values = self.checked.values[name]
        usual = float(np.sqrt(np.mean(values * values))) if values.size else 1.0
        return min(1.0, max(usual, 1e-3)) if usual > 0 else 1.0

    def measure(self, name: str, where: np.ndarray, weights: np.ndarray, expected: float) -> Difference:
        """The derivative along a direction; smaller steps are tried where the first does not confirm `expected`.

        Of several steps the one whose own two estimates agree best is believed, whatever `expected` is.
        """
        if self.method == "complex":
            return Difference(self.checked.imaginary(name, where, weights, self.step) / self.step, 0.0)
        h = self.step * self.size_of(name)
        best = self.central(name, where, weights, h)
        for factor in SMALLER:
            if abs(best.value - expected) <= 0.1 * self.tolerance * (abs(best.value) + abs(expected)):
                break
            if best.doubt <= 1e-3 * abs(best.value - expected):
                break  # the measurement is settled, the gradient is not
            best = min(best, self.central(name, where, weights, h * factor), key=lambda found: found.doubt)
        return best

    def central(self, name: str, where: np.ndarray, weights: np.ndarray, h: float) -> Difference:
        wide = self.checked.change(name, where, weights, h) / (2.0 * h)
        narrow = self.checked.change(name, where, weights, 0.5 * h) / h
        return Difference((4.0 * narrow - wide) / 3.0, abs(narrow - wide))

    def find(self, name: str, flat: np.ndarray, where: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The entry behind a direction that disagrees: halve the direction and follow the half that is further off."""
        while len(where) > 1:
            half = len(where) // 2
            halves = [(where[:half], weights[:half]), (where[half:], weights[half:])]
            off = []
            for part, part_weights in halves:
                expected = float(flat[part] @ part_weights)
                off.append(abs(self.measure(name, part, part_weights, expected).value - expected))
            where, weights = halves[int(np.argmax(off))]
        return where


def _unit(direction: np.ndarray) -> np.ndarray:
    return direction / np.linalg.norm(direction)


