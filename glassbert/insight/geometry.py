"""Geometry of a set of representations, [N, width]: principal components, intrinsic dimension, isotropy.

PCA              X - mean = U S Vᵀ; points U S in the axes V; share of variance s² / Σ s²
TwoNN            d from μ = r₂ / r₁ of every point: -log(1 - F(μ)) = d log μ    (Facco et al. 2017)
anisotropy       the mean cosine of two different points: 0 if directions are uniform, 1 if they are all equal
isotropy         ((Σλ)² / Σλ² - 1) / (width - 1) of the variances λ along the axes (IsoScore); 1 is a ball
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from glassbert.errors import InputError, needs
from glassbert.metrics import Undefined

DISCARDED = 0.1  # of the points, those with the largest r₂ / r₁: the relation is not linear there
CHUNK = 512  # rows of the distance table at a time


@dataclass(frozen=True)
class Components:
    """Points on the axes of largest variance: points [N, k], axes [k, width], shares [k] of the total variance."""

    points: np.ndarray
    axes: np.ndarray
    shares: np.ndarray


def principal_components(cloud: Any, count: int = 2) -> Components:
    """PCA by singular value decomposition. The largest entry of each axis is positive, so results are repeatable."""
    x = _cloud(cloud)
    count = min(count, *x.shape)
    _, sizes, axes = np.linalg.svd(x - x.mean(0), full_matrices=False)
    variance = sizes**2
    if not variance.sum() > 0:
        raise Undefined("no principal components: all points are the same")
    axes = axes[:count]
    axes *= np.sign(axes[np.arange(count), np.abs(axes).argmax(1)])[:, None]
    return Components((x - x.mean(0)) @ axes.T, axes, variance[:count] / variance.sum())


def umap_available() -> bool:
    return find_spec("umap") is not None


def umap_points(cloud: Any, seed: int = 0) -> np.ndarray:
    """[N, 2] by UMAP, which keeps neighbours together and distorts distances; needs `umap-learn`."""
    if not umap_available():
        raise InputError(needs("UMAP", "umap-learn") + "; principal components need no extra package")
    umap = import_module("umap")
    return np.asarray(umap.UMAP(n_components=2, random_state=seed, n_jobs=1).fit_transform(_cloud(cloud)), np.float64)


def intrinsic_dimension(cloud: Any) -> float:
    """TwoNN estimate from the distances to the two nearest neighbours. Copies of a point count once."""
    x = np.unique(_cloud(cloud), axis=0)
    if len(x) < 20:
        raise Undefined(f"no intrinsic dimension: {len(x)} different points are too few, at least 20 are needed")
    nearest = _two_nearest(x)
    steps = np.sort(np.log(nearest[:, 1] / nearest[:, 0]))
    count = len(steps)
    steps = steps[: int(count * (1 - DISCARDED))]
    above = -np.log1p(-np.arange(1, len(steps) + 1) / count)
    if not steps.any():
        raise Undefined("no intrinsic dimension: every point has its two nearest neighbours at the same distance")
    return float((steps @ above) / (steps @ steps))  # slope of the line through the origin


def anisotropy(cloud: Any) -> float:
    """The mean cosine over all pairs of different points: ((Σu)² - N) / (N² - N) of the directions u."""
    x = _cloud(cloud)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    directions = (x / np.where(lengths > 0, lengths, 1.0))[lengths[:, 0] > 0]
    count = len(directions)
    if count < 2:
        raise Undefined("no anisotropy: fewer than two points differ from zero")
    return float((np.square(directions.sum(0)).sum() - count) / (count * (count - 1)))


def isotropy(cloud: Any) -> float:
    """1 if the variance is the same in every direction, 0 if it is all in one; independent of the mean."""
    x = _cloud(cloud)
    width = x.shape[1]
    variances = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    if not variances.sum() > 0 or width < 2:
        raise Undefined("no isotropy: all points are the same, or there is one direction only")
    return float((variances.sum() ** 2 / np.square(variances).sum() - 1) / (width - 1))


def _two_nearest(x: np.ndarray) -> np.ndarray:
    """[N, 2] distances to the two nearest other points."""
    squares = np.square(x).sum(1)
    found = np.empty((len(x), 2))
    for begin in range(0, len(x), CHUNK):
        part = x[begin : begin + CHUNK]
        distances = squares[begin : begin + CHUNK, None] + squares - 2 * part @ x.T
        distances[np.arange(len(part)), begin + np.arange(len(part))] = np.inf
        two = np.argpartition(distances, 1, axis=1)[:, :2]
        # The product above is inexact for close points: compute these two distances again.
        exact = np.linalg.norm(x[two] - part[:, None], axis=2)
        found[begin : begin + CHUNK] = np.sort(exact, axis=1)
    return found


def _cloud(given: Any) -> np.ndarray:
    x = np.asarray(given, np.float64)
    if x.ndim != 2 or len(x) < 2:
        raise InputError(f"points must be an array [N, width] with at least two points, got the shape {list(x.shape)}")
    if not np.isfinite(x).all():
        raise InputError("some points have values that are not finite")
    return x
