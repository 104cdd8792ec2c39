"""The law: a loss that falls as a power of the size, and how sure that is.

    L(N)    = E + A · (N/N₀)^-α                       where all points saw the same number of tokens
    L(N, D) = E + A · (N/N₀)^-α + B · (D/D₀)^-β       where they did not

Once the floor E and the powers are given, what is left is linear: A and B are a small least-squares problem. So the fit
is a table over floors and powers, and nothing has to be searched. Nor does one entry win: of four points nobody can
tell a high floor with a steep fall from a low floor with a slow one. Every entry keeps the weight it deserves, A, B and
the noise being integrated out (flat priors on E, the powers, A and B; X holds the k columns (N/N₀)^-α, (D/D₀)^-β):

    weight ∝ |XᵀX|^-½ · (ν₀ s₀² + RSS)^(-(ν₀ + n - k) / 2)

Draws from the table are laws that the points allow. A prediction is what they say of another place, each with noise
added, since a run is not the law.

The trap is the noise. Four points and three unknowns leave one residual, and one residual says nothing about how
far the next run will lie from the law. So s₀ is what we expect before we look, worth ν₀ residuals: the spread between
seeds, and a share of the loss for what no seed shows, since sizes differ in shape as well and no rate suits all alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from glassbert.metrics import Undefined

DEPARTURE = 0.003  # of the loss: how far a size lies from the law for its shape and its learning rate
SEED_NOISE = 0.003  # of the loss, where no size was trained with two seeds
WORTH = 3.0  # residuals that these expectations count for
LEVEL = 0.9
DRAWS = 4_000
FLOORS = {1: 200, 2: 60}  # entries of the table, by the number of powers
POWERS = {1: 200, 2: 40}
POWER_RANGE = (0.05, 1.5)
HIGHEST_FLOOR = 0.995  # of the lowest loss seen
FEWEST_SIZES = 3
TOO_FAR = 4.0  # times the expected distance: no noise, but another kind of curve
DOUBT = 0.05  # how likely it may be that the points do not fall at all
UNKNOWN = 5.0  # times the lower end of a power's interval: a higher upper end, and the points do not say


class Range(NamedTuple):
    """The middle of what is possible, and the bounds between which it lies with the law's level of confidence."""

    middle: float
    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high


class Best(NamedTuple):
    """The curve of the least squares."""

    floor: float
    powers: np.ndarray  # [k]
    scales: np.ndarray  # [k]


@dataclass(frozen=True)
class Law:
    """Draws of laws that the points allow, [R] or [R, k]; and the one with the least squares."""

    names: tuple[str, ...]  # ("parameters",) or ("parameters", "tokens")
    reference: np.ndarray  # [k]: N₀ and D₀
    floor: np.ndarray
    powers: np.ndarray
    scales: np.ndarray
    noise: np.ndarray
    best: Best
    residuals: np.ndarray  # of the best curve, a point each
    expected: float  # s₀
    level: float

    def at(self, places: np.ndarray) -> np.ndarray:
        """The best curve at [m, k] places."""
        floor, powers, scales = self.best
        return floor + ((self._places(places) / self.reference) ** -powers) @ scales

    def draws(self, places: np.ndarray, noisy: bool = True) -> np.ndarray:
        """[R, m]: what each drawn law says of each place; `noisy` for a run there instead of the law itself."""
        columns = (self._places(places) / self.reference) ** -self.powers[:, None, :]  # [R, m, k]
        losses = self.floor[:, None] + (columns * self.scales[:, None, :]).sum(-1)
        if noisy:
            losses += self.noise[:, None] * np.random.default_rng(1).standard_normal(losses.shape)
        return losses

    def predict(self, parameters: float, tokens: float) -> Range:
        """The loss of a run with so many parameters and tokens."""
        return Range(*(float(bound[0]) for bound in self.band(np.array([[parameters, tokens]]))))

    def band(self, places: np.ndarray, noisy: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Middle, low and high at every place."""
        return tuple(np.quantile(self.draws(places, noisy), self._quantiles(), axis=0))  # type: ignore[return-value]

    def range_of(self, draws: np.ndarray) -> Range:
        return Range(*map(float, np.quantile(draws, self._quantiles())))

    def knows_power(self, index: int) -> bool:
        """Whether the points say anything worth telling about a power."""
        found = self.range_of(self.powers[:, index])
        return found.high < UNKNOWN * found.low

    def _places(self, places: np.ndarray) -> np.ndarray:
        """A law of the size alone takes no notice of the tokens."""
        return np.asarray(places, np.float64)[:, : len(self.names)]

    def _quantiles(self) -> list[float]:
        return [0.5, (1 - self.level) / 2, (1 + self.level) / 2]


def expected_distance(losses: Sequence[Sequence[float]]) -> float:
    """How far a point is expected to lie from the law, in nats. `losses` are by point and seed."""
    groups = [np.asarray(one, np.float64) for one in losses]
    typical = float(np.mean([group.mean() for group in groups]))
    freedom = sum(len(group) - 1 for group in groups)
    variance = (SEED_NOISE * typical) ** 2
    if freedom:
        variance = sum(((group - group.mean()) ** 2).sum() for group in groups) / freedom
    return float(np.sqrt((DEPARTURE * typical) ** 2 + variance / min(map(len, groups))))


def fit_law(
    parameters: Sequence[float],
    tokens: Sequence[float],
    losses: Sequence[Sequence[float]],
    *,
    level: float = LEVEL,
    seed: int = 0,
) -> Law:
    """The law of points, each with its losses by seed. `Undefined` with the reason where they show none."""
    loss = np.array([np.mean(one) for one in losses])
    columns = {"parameters": np.asarray(parameters, np.float64), "tokens": np.asarray(tokens, np.float64)}
    names = tuple(columns) if len(set(tokens)) > 1 else ("parameters",)
    places = np.stack([columns[name] for name in names], 1)  # [n, k]
    if not (np.isfinite(loss).all() and (loss > 0).all() and (places > 0).all()):
        raise Undefined("no law: a loss or a count is not a positive number")
    if len(set(parameters)) < FEWEST_SIZES:
        raise Undefined(f"no law: a curve needs at least {FEWEST_SIZES} sizes, and there are {len(set(parameters))}")
    expected = expected_distance(losses)
    _refuse_rising(places, loss, expected, names)
    reference = np.exp(np.log(places).mean(0))
    count, terms = places.shape

    powers = np.array(list(product(np.linspace(*POWER_RANGE, POWERS[terms]), repeat=terms)))  # [G, k]
    x = (places / reference) ** -powers[:, None, :]  # [G, n, k]
    floors = np.linspace(0, HIGHEST_FLOOR, FLOORS[terms]) * loss.min()
    rest = loss - floors[:, None]  # [F, n]
    gram = np.einsum("gnk,gnj->gkj", x, x)
    inverse = np.linalg.inv(gram)
    against = np.einsum("fn,gnk->fgk", rest, x)
    scales = np.einsum("fgk,gkj->fgj", against, inverse)
    squares = np.maximum((rest * rest).sum(1)[:, None] - (scales * against).sum(-1), 0.0)  # [F, G]
    total = WORTH * expected**2 + squares
    freedom = WORTH + count - terms
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


def _least_squares(powers: np.ndarray, x: np.ndarray, loss: np.ndarray) -> tuple[Best, np.ndarray]:
    """The best curve and its residuals: where only one law is wanted, the floor is one more linear unknown."""
    with_floor = np.concatenate([np.ones((*x.shape[:2], 1)), x], -1)
    floors = np.clip(np.linalg.pinv(with_floor)[:, 0] @ loss, 0, HIGHEST_FLOOR * loss.min())  # [G]
    rest = loss - floors[:, None]
    scales = (np.linalg.pinv(x) @ rest[..., None])[..., 0]  # [G, k]
    residuals = rest - (x @ scales[..., None])[..., 0]  # [G, n]
    first = int(np.argmin((residuals**2).sum(1)))
    return Best(float(floors[first]), powers[first], scales[first]), residuals[first]


def _refuse_other_curves(residuals: np.ndarray, expected: float, terms: int) -> None:
    """Points that lie much farther from the best curve than chance puts them follow no law of this kind."""
    freedom = max(1, len(residuals) - 2 * terms - 1)
    if np.sqrt((residuals @ residuals) / freedom) > TOO_FAR * expected:
        raise Undefined(
            f"no law: the points lie up to {abs(residuals).max():.2f} nats from the best curve, and chance explains "
            f"about {expected:.2f}. They follow no power law: perhaps the sizes are at different stages of learning, "
            f"which more tokens mend, or the learning rate suits some of them and not others"
        )


def _refuse_rising(places: np.ndarray, loss: np.ndarray, expected: float, names: tuple[str, ...]) -> None:
    """Every entry of the table falls, so a straight line in the logarithms is asked whether the points do."""
    x = np.log(places / places.min(0))
    x = np.concatenate([np.ones((len(x), 1)), x], 1)
    inverse = np.linalg.pinv(x.T @ x)
    slopes = inverse @ x.T @ loss
    rest = loss - x @ slopes
    freedom = WORTH + len(x) - x.shape[1]
    spread = np.sqrt((WORTH * expected**2 + rest @ rest) / freedom * np.diag(inverse))
    chance = np.random.default_rng(2).standard_t(freedom, DRAWS)
    words = {"parameters": "size", "tokens": "number of tokens"}
    for index, name in enumerate(names, 1):
        doubt = float(np.mean(slopes[index] + spread[index] * chance >= 0))
        if doubt > DOUBT:
            order = np.argsort(places[:, index - 1], kind="stable")
            raise Undefined(
                f"no law: the loss does not fall with the {words[name]} by more than chance ({loss[order[0]]:.3f} at "
                f"the smallest, {loss[order[-1]]:.3f} at the largest, and chance moves a point by about "
                f"{expected:.3f}). Train longer, or choose sizes that lie farther apart"
            )
