"""Bayesian fit of a power law of the loss in the model size, with uncertainty.

    L(N)    = E + A · (N/N₀)^-α                       if all points saw the same number of tokens
    L(N, D) = E + A · (N/N₀)^-α + B · (D/D₀)^-β       otherwise

For a given floor E and given powers the problem is linear in A and B. So the posterior is computed on a grid over
floors and powers, with A, B and the noise integrated out (flat priors on E, the powers, A and B; X has the k columns
(N/N₀)^-α, (D/D₀)^-β):

    weight ∝ |XᵀX|^-½ · (ν₀ s₀² + RSS)^(-(ν₀ + n - k) / 2)

Four points cannot separate a high floor with a steep fall from a low floor with a slow one, so no single law is chosen:
laws are drawn from the posterior. A prediction is the distribution of the drawn laws at another size, with the noise of
one run added.

The noise needs a prior. Four points and three unknowns leave one residual, which says little about the distance of the
next run from the law. So s₀ is the expected distance, with the weight of ν₀ residuals: the spread between seeds, and a
share of the loss for differences in shape and learning rate that seeds do not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from glassbert.metrics import Undefined
from glassbert.training.planning.expectation import Range

SHAPE_NOISE = 0.003  # of the loss: distance from the law because of shape and learning rate
SEED_NOISE = 0.003  # of the loss, if no size was trained with two seeds
PRIOR_WEIGHT = 3.0  # ν₀: residuals that the expected distance counts for
LEVEL = 0.9
DRAWS = 4_000
FLOORS = {1: 200, 2: 60}  # grid sizes, by the number of powers
POWERS = {1: 200, 2: 40}
POWER_RANGE = (0.05, 1.5)
MAX_FLOOR = 0.995  # of the lowest loss
MIN_SIZES = 3
MAX_DISTANCE = 4.0  # times the expected distance: more is no noise, but another kind of curve
MAX_DOUBT = 0.05  # allowed probability that the loss does not fall
MAX_POWER_RATIO = 5.0  # upper over lower end of a power's interval: above it the power counts as unknown


class BestFit(NamedTuple):
    """The least-squares curve."""

    floor: float
    powers: np.ndarray  # [k]
    scales: np.ndarray  # [k]


@dataclass(frozen=True)
class Law:
    """Laws drawn from the posterior, [R] or [R, k], and the least-squares curve."""

    names: tuple[str, ...]  # ("parameters",) or ("parameters", "tokens")
    reference: np.ndarray  # [k]: N₀ and D₀
    floor: np.ndarray
    powers: np.ndarray
    scales: np.ndarray
    noise: np.ndarray
    best: BestFit
    residuals: np.ndarray  # of the best curve, one per point
    expected: float  # s₀
    level: float

    def at(self, points: np.ndarray) -> np.ndarray:
        """The best curve at [m, 2] points (parameters, tokens)."""
        floor, powers, scales = self.best
        return floor + ((self._columns(points) / self.reference) ** -powers) @ scales

    def draws(self, points: np.ndarray, noisy: bool = True) -> np.ndarray:
        """[R, m]: the loss of each drawn law at each point; with `noisy` the noise of one run is added."""
        columns = (self._columns(points) / self.reference) ** -self.powers[:, None, :]  # [R, m, k]
        losses = self.floor[:, None] + (columns * self.scales[:, None, :]).sum(-1)
        if noisy:
            losses += self.noise[:, None] * np.random.default_rng(1).standard_normal(losses.shape)
        return losses

    def predict(self, parameters: float, tokens: float) -> Range:
        """The loss of a run with this number of parameters and tokens."""
        return Range(*(float(bound[0]) for bound in self.band(np.array([[parameters, tokens]]))))

    def band(self, points: np.ndarray, noisy: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Median, lower and upper bound at every point."""
        return tuple(np.quantile(self.draws(points, noisy), self._quantiles(), axis=0))  # type: ignore[return-value]

    def range_of(self, draws: np.ndarray) -> Range:
        return Range(*map(float, np.quantile(draws, self._quantiles())))

    def knows_power(self, index: int) -> bool:
        """Whether the interval of a power is narrow enough to report it."""
        found = self.range_of(self.powers[:, index])
        return found.high < MAX_POWER_RATIO * found.low

    def _columns(self, points: np.ndarray) -> np.ndarray:
        """The columns that the law uses: a law of the size alone ignores the tokens."""
        return np.asarray(points, np.float64)[:, : len(self.names)]

    def _quantiles(self) -> list[float]:
        return [0.5, (1 - self.level) / 2, (1 + self.level) / 2]


def expected_distance(losses: Sequence[Sequence[float]]) -> float:
    """s₀: the expected distance of a point from the law, in nats. `losses` are by point and seed."""
    groups = [np.asarray(one, np.float64) for one in losses]
    typical = float(np.mean([group.mean() for group in groups]))
    freedom = sum(len(group) - 1 for group in groups)
    variance = (SEED_NOISE * typical) ** 2
    if freedom:
        variance = sum(((group - group.mean()) ** 2).sum() for group in groups) / freedom
    return float(np.sqrt((SHAPE_NOISE * typical) ** 2 + variance / min(map(len, groups))))


def fit_law(
    parameters: Sequence[float],
    tokens: Sequence[float],
    losses: Sequence[Sequence[float]],
    *,
    level: float = LEVEL,
    seed: int = 0,
) -> Law:
    """Fit a law to points, each with its losses by seed. Raises `Undefined` with the reason if there is none."""
    loss = np.array([np.mean(one) for one in losses])
    columns = {"parameters": np.asarray(parameters, np.float64), "tokens": np.asarray(tokens, np.float64)}
    names = tuple(columns) if len(set(tokens)) > 1 else ("parameters",)
    points = np.stack([columns[name] for name in names], 1)  # [n, k]
    if not (np.isfinite(loss).all() and (loss > 0).all() and (points > 0).all()):
        raise Undefined("no law: a loss or a count is not a positive number")
    if len(set(parameters)) < MIN_SIZES:
        raise Undefined(f"no law: a curve needs at least {MIN_SIZES} sizes, and there are {len(set(parameters))}")
    expected = expected_distance(losses)
    _refuse_rising(points, loss, expected, names)
    reference = np.exp(np.log(points).mean(0))
    count, terms = points.shape

    powers = np.array(list(product(np.linspace(*POWER_RANGE, POWERS[terms]), repeat=terms)))  # [G, k]
    x = (points / reference) ** -powers[:, None, :]  # [G, n, k]
    floors = np.linspace(0, MAX_FLOOR, FLOORS[terms]) * loss.min()
    rest = loss - floors[:, None]  # [F, n]
    gram = np.einsum("gnk,gnj->gkj", x, x)
    inverse = np.linalg.inv(gram)
    against = np.einsum("fn,gnk->fgk", rest, x)
    scales = np.einsum("fgk,gkj->fgj", against, inverse)
    squares = np.maximum((rest * rest).sum(1)[:, None] - (scales * against).sum(-1), 0.0)  # [F, G]
    total = PRIOR_WEIGHT * expected**2 + squares
    freedom = PRIOR_WEIGHT + count - terms
    weight = -0.5 * np.linalg.slogdet(gram)[1] - freedom / 2 * np.log(total)

    best, residuals = _least_squares(powers, x, loss)
    _refuse_other_curves(residuals, expected, terms)

    generator = np.random.default_rng(seed)
    chances = np.exp(weight - weight.max()).ravel()
    drawn = generator.choice(chances.size, DRAWS, p=chances / chances.sum())
    f, g = np.unravel_index(drawn, weight.shape)
    noise = np.sqrt(total[f, g] / generator.chisquare(freedom, DRAWS))
    spread = np.einsum("rkj,rj->rk", np.linalg.cholesky(inverse)[g], generator.standard_normal((DRAWS, terms)))
    sampled = scales[f, g] + noise[:, None] * spread
    falls = (sampled > 0).all(1)
    kept = (floors[f][falls], powers[g][falls], sampled[falls], noise[falls])
    return Law(names, reference, *kept, best, residuals, expected, level)


def _least_squares(powers: np.ndarray, x: np.ndarray, loss: np.ndarray) -> tuple[BestFit, np.ndarray]:
    """The least-squares curve and its residuals; here the floor is one more linear unknown."""
    with_floor = np.concatenate([np.ones((*x.shape[:2], 1)), x], -1)
    floors = np.clip(np.linalg.pinv(with_floor)[:, 0] @ loss, 0, MAX_FLOOR * loss.min())  # [G]
    rest = loss - floors[:, None]
    scales = (np.linalg.pinv(x) @ rest[..., None])[..., 0]  # [G, k]
    residuals = rest - (x @ scales[..., None])[..., 0]  # [G, n]
    first = int(np.argmin((residuals**2).sum(1)))
    return BestFit(float(floors[first]), powers[first], scales[first]), residuals[first]


def _refuse_other_curves(residuals: np.ndarray, expected: float, terms: int) -> None:
    """Raise `Undefined` if the residuals are much larger than the expected distance."""
    freedom = max(1, len(residuals) - 2 * terms - 1)
    if np.sqrt((residuals @ residuals) / freedom) > MAX_DISTANCE * expected:
        raise Undefined(
            f"no law: the points are up to {abs(residuals).max():.2f} nats from the best curve, and noise explains "
            f"about {expected:.2f}. They follow no power law: the sizes may be at different stages of learning (use "
            f"more tokens), or the learning rate fits only some of them"
        )


def _refuse_rising(points: np.ndarray, loss: np.ndarray, expected: float, names: tuple[str, ...]) -> None:
    """Raise `Undefined` if the loss does not fall, tested by a linear fit in the logarithms.

    The grid contains falling curves only, so it cannot test this.
    """
    x = np.log(points / points.min(0))
    x = np.concatenate([np.ones((len(x), 1)), x], 1)
    inverse = np.linalg.pinv(x.T @ x)
    slopes = inverse @ x.T @ loss
    rest = loss - x @ slopes
    freedom = PRIOR_WEIGHT + len(x) - x.shape[1]
    spread = np.sqrt((PRIOR_WEIGHT * expected**2 + rest @ rest) / freedom * np.diag(inverse))
    chance = np.random.default_rng(2).standard_t(freedom, DRAWS)
    descriptions = {"parameters": "size", "tokens": "number of tokens"}
    for index, name in enumerate(names, 1):
        doubt = float(np.mean(slopes[index] + spread[index] * chance >= 0))
        if doubt > MAX_DOUBT:
            order = np.argsort(points[:, index - 1], kind="stable")
            raise Undefined(
                f"no law: the loss does not fall with the {descriptions[name]} by more than chance "
                f"({loss[order[0]]:.3f} at the smallest, {loss[order[-1]]:.3f} at the largest, with a noise of about "
                f"{expected:.3f}). Train longer, or choose sizes that are farther apart"
            )
