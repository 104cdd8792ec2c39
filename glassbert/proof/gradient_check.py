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

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.proof.function import Checked
from glassbert.proof.report import GradientReport, TensorCheck

STEPS = {"central": 1e-4, "complex": 1e-30}
SMALLER = (0.1, 0.01)  # where the first step disagrees, smaller ones may settle it
EPSILON = float(np.finfo(np.float64).eps)


class Move(NamedTuple):
    """A direction: which entries of a flat tensor move, and how far each."""

    where: np.ndarray
    weights: np.ndarray


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
        """Hold one gradient against measured derivatives."""
        flat, shape = gradient.reshape(-1), gradient.shape
        moves, compared = self.moves(flat.size)
        if not moves:
            return TensorCheck(name, shape, self.tolerance, compared="no entries")
        a = np.array([float(flat[move.where] @ move.weights) for move in moves])
        measured = [self.measure(name, move, expected) for move, expected in zip(moves, a, strict=True)]
        n = np.array([found.value for found in measured])
        if not np.isfinite(n).all():
            return TensorCheck(name, shape, self.tolerance, problem="the value is not finite near the given point")
        off = np.abs(a - n)
        norms = float(np.linalg.norm(a) + np.linalg.norm(n))
        error = float(np.linalg.norm(off)) / max(norms, self.floor(name, len(moves)))
        at = int(np.argmax(off))
        move, expected, found = moves[at], float(a[at]), measured[at]
        if error > self.tolerance:
            if len(move.where) > 1:
                move = self.find(name, flat, move)
                expected = float(flat[move.where[0]])
                found = self.measure(name, move, expected)
            self.mention_doubt(name, float(off.max()), max(m.doubt for m in measured))
        worst = tuple(int(i) for i in np.unravel_index(move.where[0], shape)) if len(move.where) == 1 else None
        largest = max(float(off.max()), abs(expected - found.value))
        return TensorCheck(name, shape, self.tolerance, error, largest, worst, expected, found.value, compared)

    def moves(self, size: int) -> tuple[list[Move], str]:
        """Every entry of a small tensor; some entries and some directions of a large one. And the same in words."""
        if size <= self.entries:
            return [Move(np.array([i]), np.ones(1)) for i in range(size)], "every entry"
        places = np.sort(self.rng.choice(size, self.entries, replace=False))
        moves = [Move(np.array([i]), np.ones(1)) for i in places]
        for _ in range(self.directions):
            direction = self.rng.standard_normal(size)
            moves.append(Move(np.arange(size), direction / np.linalg.norm(direction)))
        return moves, f"{self.entries:,} of {size:,} entries and {self.directions} random directions"

    def mention_doubt(self, name: str, off: float, doubt: float) -> None:
        if doubt > 0.5 * off:
            self.checked.note(
                f"near this {name} the measured derivative is itself unsure by {doubt:.1e}: a kink, a jump or noise"
            )

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

    def measure(self, name: str, move: Move, expected: float) -> Difference:
        """The derivative along a direction; smaller steps are tried where the first does not confirm `expected`.

        Of several steps the one whose own two estimates agree best is believed, whatever `expected` is.
        """
        if self.method == "complex":
            return self.complex(name, move, expected)
        h = self.step * self.size_of(name)
        first = best = self.central(name, move, h)
        for factor in SMALLER:
            if self.confirms(best.value, expected):
                break
            if best.doubt <= 1e-3 * abs(best.value - expected):
                break  # the measurement is settled, the gradient is not
            best = min(best, self.central(name, move, h * factor), key=lambda found: found.doubt)
        return Difference(best.value, max(best.doubt, abs(first.value - best.value)))

    def confirms(self, measured: float, expected: float) -> bool:
        return abs(measured - expected) <= 0.1 * self.tolerance * (abs(measured) + abs(expected))

    def complex(self, name: str, move: Move, expected: float) -> Difference:
        """The complex step. Where it does not confirm `expected`, a central difference says whose fault that is."""
        found = Difference(self.checked.imaginary(name, *move, self.step) / self.step, 0.0)
        if self.confirms(found.value, expected):
            return found
        second = self.central(name, move, STEPS["central"] * self.size_of(name))
        apart = abs(second.value - found.value)
        if apart <= 1e-4 * (abs(second.value) + abs(found.value)) + 10.0 * second.doubt:
            return found
        self.checked.note(
            "a complex step and a central difference disagree, so the function is not analytic "
            "(abs, maximum and the like), and central differences were believed"
        )
        return second

    def central(self, name: str, move: Move, h: float) -> Difference:
        wide = self.checked.change(name, *move, h) / (2.0 * h)
        narrow = self.checked.change(name, *move, 0.5 * h) / h
        return Difference((4.0 * narrow - wide) / 3.0, abs(narrow - wide))

    def find(self, name: str, flat: np.ndarray, move: Move) -> Move:
        """The entry behind a direction that disagrees: halve the direction and follow the half that is further off."""
        while len(move.where) > 1:
            half = len(move.where) // 2
            halves = [Move(move.where[part], move.weights[part]) for part in (slice(0, half), slice(half, None))]
            expected = [float(flat[part.where] @ part.weights) for part in halves]
            off = [abs(self.measure(name, part, e).value - e) for part, e in zip(halves, expected, strict=True)]
            move = halves[int(np.argmax(off))]
        return Move(move.where, np.ones(1))
