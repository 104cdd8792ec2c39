"""From the probabilities of heads to answers: the best head of every word, and the undirected tree of a sentence."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from glassbert.evaluation.probes.biaffine import NOT_ASKED, Group, spanning_edges
from glassbert.evaluation.probes.questions import Questions


def heads_and_trees(found: Iterable[tuple[Group, np.ndarray]], questions: Questions) -> tuple[np.ndarray, np.ndarray]:
    """The head of every question [rows], as a place; and [2, sentences]: true edges in the tree, and true edges."""
    heads = np.full(int(questions.starts[-1]), NOT_ASKED)
    trees = np.zeros((2, len(questions.starts) - 1))
    for group, log_probability in found:
        heads[group.words] = log_probability.argmax(-1)
        either_way = np.maximum(log_probability, log_probability.transpose(0, 2, 1))
        for sentence, weights, true in zip(group.sentences, either_way, group.heads, strict=True):
            trees[:, sentence] = edges_in_common(spanning_edges(weights), true)
    return heads[questions.words], trees


def edges_in_common(edges: np.ndarray, heads: np.ndarray) -> tuple[int, int]:
    """How many true edges of a sentence are in the tree, and how many there are; the root has none."""
    real = {frozenset((word, head)) for word, head in enumerate(heads.tolist()) if head != word and head != NOT_ASKED}
    return len(real & {frozenset(edge) for edge in edges.tolist()}), len(real)
