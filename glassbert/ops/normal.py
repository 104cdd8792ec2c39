"""Φ, the distribution function of the normal distribution, from exp and a polynomial alone.

float64, to the last digits: for a = |x| the tail is a smooth function times the density's exponential,

    1 - Φ(a) = exp(-a²/2) · Q(u)          u = (a - 5.5) / (a + 5.5) in [-1, 1)

and Q is a Chebyshev series, summed by Clenshaw's rule.

float32, to 2e-7 with half the work: the log-odds of Φ are an odd function, so

    Φ(x) = 1 / (1 + exp(-x · P(x²)))          P of degree 6, x² limited to 36

with P fitted for the smallest error of x · Φ(x). Beyond |x| = 6 the error is below 1e-8.
"""

from __future__ import annotations

import math

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace

CHEBYSHEV = (
    0.15056356907027161585,
    -0.21580469433245925599,
    0.089301175493950981662,
    -0.031635379724717235105,
    0.0095973282143920931812,
    -0.0024704996967203740107,
    0.00052760186828296734438,
    -0.000089021770694343163408,
    0.000010450699419601428626,
    -4.3155008656249968449e-7,
    -1.2445591246021168278e-7,
    2.7603473224207533299e-8,
    -9.6873125616074490553e-10,
    -5.3540943516500321458e-10,
    8.1030080348928784427e-11,
    6.617228209348629101e-12,
    -2.7855030641067190643e-12,
    6.1559105100886869913e-16,
    8.440009938982233147e-14,
    -4.0657878251013899172e-15,
    -2.6042219921365834242e-15,
    2.1199365702927808639e-16,
    8.6811065496734937752e-17,
    -8.577841456753104016e-18,
    -3.1938854907897201886e-18,
)
LOG_ODDS = (
    1.595768432,
    0.07266856706,
    -6.626001325e-05,
    -1.104803093e-04,
    7.938217888e-06,
    -2.668927558e-07,
    3.611231431e-09,
)
LIMIT = 36.0


def normal_cdf(x: Array) -> Array:
    """Derivation: docs/derivations/03-activations.md (3.5)."""
    if not is_numpy(x):
        return 0.5 * (1.0 + namespace(x).erf(x * math.sqrt(0.5)))
    return _cdf_float32(x) if x.dtype == np.float32 else _cdf_float64(x)


def _cdf_float64(x: np.ndarray) -> np.ndarray:
    a = np.abs(x)
    u = (a - 5.5) / (a + 5.5)
    below, current = np.zeros_like(u), np.zeros_like(u)
    for coefficient in CHEBYSHEV[:0:-1]:
        below, current = current, 2.0 * u * current - below + coefficient
    tail = np.exp(-0.5 * a * a) * (u * current - below + CHEBYSHEV[0])
    return np.where(x > 0, 1.0 - tail, tail)


def _cdf_float32(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # infinite squares are clipped; infinite odds give 0, the correct value
        return _cdf_from_log_odds(x)


def _cdf_from_log_odds(x: np.ndarray) -> np.ndarray:
    odds = odds_against(x, np.empty_like(x), np.empty_like(x))
    return np.reciprocal(odds, out=odds)


def odds_against(x: np.ndarray, square: np.ndarray, odds: np.ndarray) -> np.ndarray:
    """1 / Φ(x) in float32, computed in the given scratch arrays."""
    np.multiply(x, x, out=square)
    np.minimum(square, np.float32(LIMIT), out=square)
    np.multiply(square, np.float32(-LOG_ODDS[-1]), out=odds)
    for coefficient in LOG_ODDS[-2:0:-1]:
        odds -= np.float32(coefficient)
        odds *= square
    odds -= np.float32(LOG_ODDS[0])
    odds *= x
    np.exp(odds, out=odds)
    odds += np.float32(1.0)
    return odds
