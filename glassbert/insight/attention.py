"""Attention maps as arrays, with their entropy and distance, and statistics of every head.

maps [layers, B, heads, T, T]        maps[l, b, h, i, j]: the weight of key j for query i
entropy  H_i = -Σ_j a_ij log a_ij     log n for n equal weights, 0 for a single one
distance D_i = Σ_j a_ij |i - j|       in tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.insight.inputs import TextBatch
from glassbert.models.model import Model
from glassbert.ops import AttentionPattern
from glassbert.training.evaluate import evaluation_mode

OnProgress = Callable[[], object]  # called after every batch


def attention_maps(model: Model, input_ids: Any, attention_mask: Any = None) -> np.ndarray:
    """Attention weights of every layer and head, [layers, B, heads, T, T] float32, without dropout."""
    with evaluation_mode(model):
        cache = model.run(model.check(input_ids, attention_mask))
        cache.encode()
        names = [f"layers.{layer}.attention.weights" for layer in range(model.config.num_hidden_layers)]
        return np.stack([np.asarray(model.engine.to_numpy(cache[name]), np.float32) for name in names])


def visible_keys(model: Model, mask: np.ndarray) -> np.ndarray:
    """The number of keys that every query may attend to, [layers, B, T], after padding, window and causal mask."""
    length = mask.shape[1]
    full = slice(0, len(mask)), slice(0, length), slice(0, length)
    found = []
    for layer in range(model.config.num_hidden_layers):
        pattern = AttentionPattern(mask, None, model.config.window_of(layer), model.config.causal)
        allowed: Any = pattern.allowed(np, *full)
        found.append(np.broadcast_to(allowed, (len(mask), 1, length, length)).sum(-1)[:, 0])
    return np.stack(found)


def attention_entropy(maps: np.ndarray) -> np.ndarray:
    """Entropy in nats of every query: [..., T, T] -> [..., T]."""
    return -(maps * np.log(np.maximum(maps, 1e-30))).sum(-1)


def attention_distance(maps: np.ndarray) -> np.ndarray:
    """Mean distance in tokens of every query: [..., T, T] -> [..., T]."""
    position = np.arange(maps.shape[-1])
    return (maps * np.abs(position[:, None] - position)).sum(-1)


@dataclass(frozen=True)
class HeadStatistics:
    """Attention statistics, averaged over the words of some texts; every array is [layers, heads].

    previous, next, itself   weight on the neighbours and on the token itself
    same_word                weight on other occurrences of the same token, over tokens that occur again
    separators               weight on [CLS], [SEP] and other added tokens
    entropy                  over that of uniform attention: 1 is uniform
    distance                 in tokens
    """

    previous: np.ndarray
    next: np.ndarray
    itself: np.ndarray
    same_word: np.ndarray
    separators: np.ndarray
    entropy: np.ndarray
    distance: np.ndarray
    words: int  # number of queries

    def as_dict(self) -> dict[str, np.ndarray]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


def head_statistics(
    model: Model, batches: Iterable[TextBatch], on_progress: OnProgress = lambda: None
) -> HeadStatistics:
    """Averages over all words as queries; special tokens and padding are no queries.

    "previous" is averaged over words that follow a word, "same_word" over words whose token occurs again.
    """
    totals: dict[str, Any] = {}
    counts: dict[str, int] = {}

    def add(name: str, values: np.ndarray, queries: np.ndarray) -> None:
        """Add values [layers, B, heads, T] at the queries [B, T]."""
        chosen = np.where(queries[None, :, None], values, 0.0).sum((1, 3), dtype=np.float64)
        totals[name] = totals.get(name, 0.0) + chosen
        counts[name] = counts.get(name, 0) + int(queries.sum())

    for batch in batches:
        maps = attention_maps(model, batch.ids, batch.mask)
        words = batch.words
        before, after = np.zeros_like(words), np.zeros_like(words)
        before[:, 1:] = words[:, 1:] & words[:, :-1]
        after[:, :-1] = words[:, :-1] & words[:, 1:]
        same = (batch.ids[:, :, None] == batch.ids[:, None]) & words[:, None] & ~np.eye(words.shape[1], dtype=bool)
        special = (batch.mask == 1) & ~words
        add("previous", _shifted(maps, -1), before)
        add("next", _shifted(maps, 1), after)
        add("itself", np.diagonal(maps, axis1=-2, axis2=-1), words)
        add("same_word", (maps * same[None, :, None]).sum(-1), words & same.any(-1))
        add("separators", (maps * special[None, :, None, None]).sum(-1), words)
        keys = visible_keys(model, batch.mask)[:, :, None]  # [layers, B, 1, T]
        uniform = np.log(np.maximum(keys, 2))
        add("entropy", np.where(keys > 1, attention_entropy(maps) / uniform, 0.0), words)
        add("distance", attention_distance(maps), words)
        on_progress()
    return HeadStatistics(**{name: totals[name] / max(counts[name], 1) for name in totals}, words=counts["itself"])


def _shifted(maps: np.ndarray, offset: int) -> np.ndarray:
    """The weight on the token `offset` positions later: [..., T, T] -> [..., T], 0 if there is none."""
    found = np.zeros(maps.shape[:-1], maps.dtype)
    diagonal = np.diagonal(maps, offset, axis1=-2, axis2=-1)
    found[..., slice(-offset, None) if offset < 0 else slice(None, -offset)] = diagonal
    return found


# A head is named after the statistic with at least this share of its attention. Uniform attention gives a single token
# a few hundredths.
MIN_SHARE = 0.3
BROAD_ENTROPY = 0.8  # of the entropy of uniform attention
NAMES = {
    "previous": "previous token",
    "next": "next token",
    "itself": "itself",
    "same_word": "same word elsewhere",
    "separators": "separators",
}


def head_kinds(statistics: HeadStatistics) -> list[list[str]]:
    """A name for every head, [layers][heads].

    The largest share, if it is at least 0.3 of the attention; else "broad" if the entropy is at least 0.8 of that of
    uniform attention; else "mixed".
    """
    names = list(NAMES)
    shares = np.stack([getattr(statistics, name) for name in names])  # [names, layers, heads]
    best, top = shares.argmax(0), shares.max(0)
    layers, heads = top.shape
    return [
        [
            NAMES[names[best[layer, head]]]
            if top[layer, head] >= MIN_SHARE
            else ("broad" if statistics.entropy[layer, head] >= BROAD_ENTROPY else "mixed")
            for head in range(heads)
        ]
        for layer in range(layers)
    ]
