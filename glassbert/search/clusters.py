"""Groups of similar texts: k-means or HDBSCAN on their vectors, with words that characterise each group.

vectors       x ← (x - mean) / |x - mean|: what all texts share says nothing about groups
k-means       every text is in one of k groups; without k, the k with the best silhouette is taken
HDBSCAN       groups are dense regions; texts between them are in none (number -1)
silhouette    (b - a) / max(a, b) with a: mean distance to the own group, b: to the nearest other one; from -1 to 1
words         those that are more frequent in a group than elsewhere: (n - e) / √e with n: texts of the group that have
              the word, e: as many as the group would have if its texts were taken at random
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.insight.geometry import principal_components, umap_available, umap_points
from glassbert.ops import unit_length
from glassbert.search.vectors import TextVectors

METHODS = ("kmeans", "hdbscan")
PICTURES = ("auto", "pca", "umap")
NONE = -1  # the number of texts that are in no group
FEWEST, MOST = 4, 16  # groups that are tried where no number is given
SAMPLE = 2_000  # texts that the silhouette and the picture are computed from
DENSE_AXES = 10  # principal components for HDBSCAN: distances in many dimensions are all alike
WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class Cluster:
    """A group: its words, how well it holds together, and its rows, the most central ones first."""

    number: int
    words: list[str]
    silhouette: float
    rows: list[int]

    @property
    def name(self) -> str:
        return ", ".join(self.words) or "no common words"


@dataclass(frozen=True)
class Clustering:
    """The groups of texts, the largest first."""

    texts: list[str]
    numbers: np.ndarray  # [N] of each text, from 1; -1: in no group
    closeness: np.ndarray  # [N] cosine with the centre of the group; 0 in no group
    clusters: list[Cluster]
    silhouette: float
    tried: dict[int, float]  # number of groups -> silhouette, where several were tried
    points: np.ndarray  # [n, 2] of the rows in `shown`
    shown: np.ndarray
    picture: str  # how the points were projected


def cluster_texts(
    found: TextVectors, *, method: str = "kmeans", clusters: int | None = None, picture: str = "auto", seed: int = 0
) -> Clustering:
    """Group texts by their vectors. `clusters` is the number of groups of k-means; without it several are tried."""
    if method not in METHODS:
        raise InputError(f"there is no method {method!r}; choose one of {', '.join(METHODS)}")
    if picture not in PICTURES:
        raise InputError(f"there is no picture {picture!r}; choose one of {', '.join(PICTURES)}")
    if method == "hdbscan" and clusters is not None:
        raise InputError("HDBSCAN finds the number of groups itself; remove --clusters, or use --method kmeans")
    distinct = len(set(found.texts))
    if distinct < 2 * (clusters or 2):
        raise InputError(f"{found.source} has {distinct} different texts, too few for {clusters or 2} groups")
    x = np.asarray(found.vectors, np.float64)
    different = len(np.unique(x.round(6), axis=0))
    if different < (clusters or 2):
        raise InputError(
            f"the texts of {found.source} have {different} different vectors, too few for {clusters or 2} groups; "
            "another --model may tell them apart"
        )
    x = unit_length(x - x.mean(0))[0]
    sample = np.sort(np.random.default_rng(seed).permutation(len(x))[:SAMPLE])
    labels, tried = (_dense(x), {}) if method == "hdbscan" else _best_means(x, sample, clusters, seed)
    labels = _largest_first(labels)
    shares, whole = _silhouettes(x, labels, sample)
    closeness, groups = np.zeros(len(x)), []
    words = characteristic_words(found.texts, labels)
    for number in range(1, labels.max(initial=0) + 1):
        rows = np.flatnonzero(labels == number)
        closeness[rows] = x[rows] @ unit_length(x[rows].mean(0, keepdims=True))[0][0]
        ordered = rows[np.argsort(-closeness[rows], kind="stable")]
        groups.append(Cluster(number, words[number], shares.get(number, 0.0), ordered.tolist()))
    if not groups:
        raise InputError(f"HDBSCAN finds no dense region among the texts of {found.source}; use --method kmeans")
    use_umap = picture == "umap" or (picture == "auto" and umap_available())
    points, name = (umap_points(x[sample], seed), "UMAP") if use_umap else _project(x, labels, sample)
    return Clustering(list(found.texts), labels, closeness, groups, whole, tried, points, sample, name)


def _project(x: np.ndarray, labels: np.ndarray, sample: np.ndarray) -> tuple[np.ndarray, str]:
    """[n, 2]: the directions in which the middles of the groups differ most; of two groups, in which the texts do."""
    names = np.unique(labels[labels != NONE])
    if len(names) < 3:
        return principal_components(x, 2).points[sample], "principal components"
    middles = np.stack([x[labels == name].mean(0) for name in names])
    return x[sample] @ principal_components(middles, 2).axes.T, "the principal components of the groups' middles"


def _best_means(
    x: np.ndarray, sample: np.ndarray, clusters: int | None, seed: int
) -> tuple[np.ndarray, dict[int, float]]:
    from sklearn.cluster import KMeans

    def fit(count: int) -> np.ndarray:
        return KMeans(count, n_init=4, random_state=seed).fit_predict(x)

    if clusters is not None:
        return fit(clusters), {}
    most = min(MOST, len(np.unique(x.round(6), axis=0)) // 4)
    counts = range(min(FEWEST, max(2, most)), max(2, most) + 1)
    fits = {count: fit(count) for count in counts}
    tried = {count: _silhouettes(x, labels, sample)[1] for count, labels in fits.items()}
    return fits[max(tried, key=lambda count: tried[count])], tried


def _dense(x: np.ndarray) -> np.ndarray:
    """Groups of HDBSCAN; where one of them would have most of the texts, the smallest dense regions instead."""
    from sklearn.cluster import HDBSCAN

    axes, smallest = principal_components(x, DENSE_AXES).points, max(5, len(x) // 100)
    for selection in ("eom", "leaf"):
        labels = HDBSCAN(smallest, min_samples=3, cluster_selection_method=selection, copy=True).fit_predict(axes)
        sizes = np.bincount(labels[labels != NONE], minlength=1)
        if 0 < sizes.max() <= len(x) / 2:
            break
    return labels


def _largest_first(labels: np.ndarray) -> np.ndarray:
    """Numbers from 1, the largest group first; -1 stays."""
    names, counts = np.unique(labels[labels != NONE], return_counts=True)
    order = {int(name): number for number, name in enumerate(names[np.argsort(-counts, kind="stable")], 1)}
    return np.array([order.get(int(label), NONE) for label in labels])


def _silhouettes(x: np.ndarray, labels: np.ndarray, sample: np.ndarray) -> tuple[dict[int, float], float]:
    """The mean silhouette of each group, and of all texts in a group, from a sample; 0 where there is one group."""
    from sklearn.metrics import silhouette_samples

    rows = sample[labels[sample] != NONE]
    names = np.unique(labels[rows])
    if not 2 <= len(names) < len(rows):
        return {}, 0.0
    values = silhouette_samples(x[rows], labels[rows])
    return {int(name): float(values[labels[rows] == name].mean()) for name in names}, float(values.mean())


def characteristic_words(texts: Sequence[str], labels: Any, count: int = 5) -> dict[int, list[str]]:
    """The words of each group with the largest (n - e) / √e. A word must be in three texts of the group."""
    total: Counter[str] = Counter()
    by_group: dict[int, Counter[str]] = {}
    for text, label in zip(texts, labels, strict=True):
        words = set(WORD.findall(text.lower()))
        total.update(words)
        by_group.setdefault(int(label), Counter()).update(words)
    sizes = Counter(int(label) for label in labels)
    found = {}
    for group, counts in by_group.items():
        expected = {word: total[word] * sizes[group] / len(texts) for word in counts}
        scores = {word: (n - expected[word]) / math.sqrt(expected[word]) for word, n in counts.items() if n > 2}
        best = sorted((word for word in scores if scores[word] > 0), key=lambda word: (-scores[word], word))
        found[group] = best[:count]
    return found
