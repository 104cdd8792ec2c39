"""Correlation: do two series of numbers rise and fall together?

    Pearson   r = Σ (x - x̄)(y - ȳ) / sqrt(Σ (x - x̄)² · Σ (y - ȳ)²)      along a straight line
    Spearman  Pearson of the ranks, equal values sharing the mean of theirs    along any rising curve
    Kendall   tau-b = (C - D) / sqrt((C + D + X)·(C + D + Y))                  by pairs

Of all pairs C are in the same order, D in opposite order, X tied in x alone and Y tied in y alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_numbers, as_weights, check_lengths, sums_by_group
from glassbert.metrics.regression import no_spread, weighted_spread
from glassbert.metrics.undefined import Value, ratio, where_possible


def pearson(x: Any, y: Any, weights: Any = None) -> Value:
    x, y, weights = _checked(x, y, weights)
    return _pearson(x - x.mean(), y - y.mean(), weights, np.abs(x).max(), np.abs(y).max())


def spearman(x: Any, y: Any, weights: Any = None) -> Value:
    x, y, weights = _checked(x, y, weights)
    ranks_x, ranks_y = ranks(x, weights), ranks(y, weights)
    return _pearson(ranks_x, ranks_y, weights, np.abs(ranks_x).max(-1), np.abs(ranks_y).max(-1))


def kendall(x: Any, y: Any, weights: Any = None) -> Value:
    """In N·log N; a weight of 2 stands for two equal examples."""
    x, y, weights = _checked(x, y, weights)
    order = np.lexsort((y, x))
    x, y, weights = x[order], y[order], weights[..., order]
    place_x, place_y = (np.unique(values, return_inverse=True)[1] for values in (x, y))
    both = np.unique(place_x * (place_y.max() + 1) + place_y, return_inverse=True)[1]
    discordant = _inversions(place_y, weights)
    total = _pairs(weights.sum(-1))
    tied_x, tied_y, tied = (
        _pairs(sums_by_group(weights, groups, int(groups.max()) + 1)).sum(-1) for groups in (place_x, place_y, both)
    )
    surplus = total - tied_x - tied_y + tied - 2 * discordant
    untied = np.maximum((total - tied_x) * (total - tied_y), 0.0)
    return ratio(surplus, np.sqrt(untied), "Kendall's tau: one of the two is constant")


def ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """1 for the smallest; equal values share the mean of their ranks. For weights [R, N] ranks [R, N]."""
    distinct, groups = np.unique(values, return_inverse=True)
    sizes = sums_by_group(weights, groups, len(distinct))
    return (np.cumsum(sizes, -1) - sizes + (sizes + 1) / 2)[..., groups]


def _pearson(x: np.ndarray, y: np.ndarray, weights: np.ndarray, largest_x: Any, largest_y: Any) -> Value:
    xx, yy, xy = (weighted_spread(a, b, weights) for a, b in ((x, x), (y, y), (x, y)))
    possible = (xx > no_spread(largest_x[..., None], weights)) & (yy > no_spread(largest_y[..., None], weights))
    correlation = xy / np.sqrt(np.where(possible, xx, 1.0)) / np.sqrt(np.where(possible, yy, 1.0))
    return where_possible(np.clip(correlation, -1.0, 1.0), possible, "correlation: one of the two is constant")


def _pairs(n: np.ndarray) -> np.ndarray:
    return n * (n - 1) / 2


def _inversions(places: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weight of pairs i < j with places[i] > places[j].

    Two numbers first differ in some bit. For each bit, examples are grouped by the bits above it, in their order; in
    each group every 0 meets the 1s that came before it.
    """
    found = np.zeros(weights.shape[:-1])
    for bit in range(int(places.max()).bit_length()):
        order = np.argsort(places >> (bit + 1), kind="stable")
        group, w = (places >> (bit + 1))[order], weights[..., order]
        ones = ((places >> bit) & 1)[order] == 1
        before = np.cumsum(w * ones, -1)
        starts = np.searchsorted(group, group)  # where the group of each begins
        earlier = np.concatenate([np.zeros((*before.shape[:-1], 1)), before], -1)[..., starts]
        found = found + (w * ~ones * (before - earlier)).sum(-1)
    return found


def _checked(x: Any, y: Any, weights: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = as_numbers(x, "x"), as_numbers(y, "y")
    if x.ndim != 1 or y.ndim != 1:
        raise InputError(f"two series of numbers are needed, got the shapes {list(x.shape)} and {list(y.shape)}")
    check_lengths(x=x, y=y)
    return x, y, as_weights(weights, len(x))
