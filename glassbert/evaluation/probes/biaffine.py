"""The structural probe: finds the syntactic head of every word.

    s_ij = x̂_iᵀ A x̂_j + u · x̂_j + [i = j] (w · x̂_i + c)        P(head of i is j) = softmax_j(s_ij)

The root is its own head. The loss, mean over words of -log P(head), is convex in (A, u, w, c):

    ds = P - one_hot(head)      dA = Σ x̂_i ds_ij x̂_jᵀ      du = Σ ds_ij x̂_j      dw = Σ ds_ii x̂_i      dc = Σ ds_ii

Sentences of equal length are processed together, so nothing is padded. The predicted head is the best word for each
word (UAS is its accuracy). The undirected tree is the maximum spanning tree over edges in either direction (UUAS is the
share of true edges in it).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from glassbert.evaluation.probes.features import Features
from glassbert.evaluation.probes.minimise import Minimum, minimise
from glassbert.evaluation.probes.questions import Questions
from glassbert.evaluation.probes.softmax_regression import TOLERANCE

L2 = 0.3  # with less, the D² parameters memorise the training sentences
NO_HEAD = -1  # not annotated
VARIANCE = 0.1  # typical P (1 - P), for the preconditioner


@dataclass(frozen=True)
class Group:
    """Sentences of one length: their indices [B], word indices [B, n], and heads [B, n] (NO_HEAD if not annotated)."""

    sentences: np.ndarray
    words: np.ndarray
    heads: np.ndarray


def groups_of(questions: Questions) -> list[Group]:
    """The annotated sentences, grouped by length."""
    heads = np.full(int(questions.starts[-1]), NO_HEAD)
    heads[questions.words] = questions.labels
    annotated = np.unique(questions.sentences)
    sizes = np.diff(questions.starts)[annotated]
    found = []
    for size in np.unique(sizes):
        sentences = annotated[sizes == size]
        words = questions.starts[sentences][:, None] + np.arange(size)
        found.append(Group(sentences, words, heads[words]))
    return found


@dataclass(frozen=True)
class BiaffineProbe:
    parameters: np.ndarray
    mean: np.ndarray
    factor: np.ndarray
    minimum: Minimum

    def log_probabilities(self, features: Features, questions: Questions) -> Iterator[tuple[Group, np.ndarray]]:
        """Groups of sentences with log P [B, n, n]."""
        for group in groups_of(questions):
            x = (features.blocks[0][group.words] - self.mean) * self.factor
            s = scores(x, self.parameters.astype(x.dtype))
            s -= s.max(-1, keepdims=True)
            yield group, s - np.log(np.exp(s).sum(-1, keepdims=True))


def fit_biaffine(
    features: Features, questions: Questions, l2: float = L2, tolerance: float = TOLERANCE
) -> BiaffineProbe:
    """Fit on `features` of one layer and all words; labels are positions of heads within their sentences."""
    problem = BiaffineProblem(features, questions, l2)
    minimum = minimise(problem.function, np.zeros(problem.size), problem.precondition, tolerance=tolerance)
    return BiaffineProbe(minimum.x, problem.mean, problem.factor, minimum)


def unflatten(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split D² + 2 D + 1 numbers into A [D, D], u [D], w [D], c [1]."""
    size = round(len(parameters) ** 0.5) - 1
    a, u, w, c = np.split(parameters, np.cumsum([size * size, size, size]))
    return a.reshape(size, size), u, w, c


def scores(x: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """x [B, n, D] -> s [B, n, n]"""
    a, u, w, c = unflatten(parameters)
    s = (x @ a) @ x.transpose(0, 2, 1)
    s += (x @ u)[:, None, :]
    diagonal = np.arange(x.shape[1])
    s[:, diagonal, diagonal] += x @ w + c
    return s


class BiaffineProblem:
    """The loss as a function of the flat vector (A, u, w, c)."""

    def __init__(self, features: Features, questions: Questions, l2: float):
        self.dtype = features.dtype
        self.l2, self.count = l2, len(questions)
        self.mean = features.scaling.mean.astype(self.dtype)
        self.factor = (1 / features.scaling.deviation).astype(self.dtype)
        self.groups = groups_of(questions)
        self.vectors = [(features.blocks[0][g.words] - self.mean) * self.factor for g in self.groups]
        self.size = (features.width + 1) ** 2
        self.variances, self.axes = features.principal_axes

    def function(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        given = parameters.astype(self.dtype)
        a, u, w, c = (np.zeros(part.shape) for part in unflatten(parameters))
        loss = 0.0
        for group, x in zip(self.groups, self.vectors, strict=True):
            s = scores(x, given)
            loss += softmax_heads_in_place(s, group.heads)
            right = s @ x  # Σ_j ds_ij x_j
            flat = x.reshape(-1, x.shape[-1])
            a += flat.T @ right.reshape(flat.shape)
            u += right.sum((0, 1))
            diagonal = np.diagonal(s, axis1=1, axis2=2).reshape(-1)
            w += diagonal @ flat
            c += diagonal.sum()
        gradient = np.concatenate([a.ravel(), u, w, c]) / self.count + self.l2 * parameters
        return loss / self.count + self.l2 / 2 * float(parameters @ parameters), gradient

    def precondition(self, gradient: np.ndarray) -> np.ndarray:
        a, u, w, c = unflatten(gradient)
        v, axes = self.variances, self.axes
        a = axes @ ((axes.T @ a @ axes) / (VARIANCE * np.outer(v, v) + self.l2)) @ axes.T
        u, w = (axes @ ((axes.T @ part) / (VARIANCE * v + self.l2)) for part in (u, w))
        return np.concatenate([a.ravel(), u, w, c / (VARIANCE + self.l2)])


def softmax_heads_in_place(s: np.ndarray, heads: np.ndarray) -> float:
    """Replace scores [B, n, n] by their gradient, 0 for words without annotation; returns the summed loss."""
    known = heads != NO_HEAD
    sentence, word = np.nonzero(known)
    s -= s.max(-1, keepdims=True)
    right = s[sentence, word, heads[known]]
    np.exp(s, out=s)
    total = s.sum(-1, keepdims=True)
    s /= total
    s[sentence, word, heads[known]] -= 1
    s[~known] = 0
    return float((np.log(total[..., 0][known]) - right).sum(dtype=np.float64))


def spanning_edges(weights: np.ndarray) -> np.ndarray:
    """Edges [n - 1, 2] of the maximum spanning tree of symmetric weights [n, n], by Prim's algorithm."""
    count = len(weights)
    inside = np.zeros(count, bool)
    inside[0] = True
    best, parent = weights[0].copy(), np.zeros(count, np.int64)
    edges = np.empty((count - 1, 2), np.int64)
    for step in range(count - 1):
        new = int(np.where(inside, -np.inf, best).argmax())
        edges[step] = parent[new], new
        inside[new] = True
        better = weights[new] > best
        best[better], parent[better] = weights[new][better], new
    return edges


def heads_and_trees(found: Iterable[tuple[Group, np.ndarray]], questions: Questions) -> tuple[np.ndarray, np.ndarray]:
    """Predicted head positions [rows]; and [2, sentences]: true edges in the predicted tree, and true edges."""
    heads = np.full(int(questions.starts[-1]), NO_HEAD)
    trees = np.zeros((2, len(questions.starts) - 1))
    for group, log_probability in found:
        heads[group.words] = log_probability.argmax(-1)
        either_way = np.maximum(log_probability, log_probability.transpose(0, 2, 1))
        for sentence, weights, true in zip(group.sentences, either_way, group.heads, strict=True):
            trees[:, sentence] = edges_in_common(spanning_edges(weights), true)
    return heads[questions.words], trees


def edges_in_common(edges: np.ndarray, heads: np.ndarray) -> tuple[int, int]:
    """The number of true edges that are in the tree, and the number of true edges; the root has none."""
    real = {frozenset((word, head)) for word, head in enumerate(heads.tolist()) if head != word and head != NO_HEAD}
    return len(real & {frozenset(edge) for edge in edges.tolist()}), len(real)
