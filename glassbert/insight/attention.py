"""Where do heads look? Attention maps as plain arrays, how widely they spread and how far they reach.

maps [layers, B, heads, T, T]        maps[l, b, h, i, j]: how much of token j token i takes in
entropy  H_i = -Σ_j a_ij log a_ij     log n where n tokens are looked at alike, 0 where it is one
distance D_i = Σ_j a_ij |i - j|       in tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.insight.inputs import Rows
from glassbert.layers.scope import Cache
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.ops import AttentionPattern
from glassbert.training.evaluate import quietly

Told = Callable[[], object]  # is called after every batch, for a progress bar


def attention_maps(model: Model, input_ids: Any, attention_mask: Any = None) -> np.ndarray:
    """The weights of every layer and head, [layers, B, heads, T, T] float32, with dropout off."""
    with quietly(model):
        _, cache = model.run_encoder(check_inputs(model.config, input_ids, attention_mask), Cache())
        names = [f"layers.{layer}.attention.weights" for layer in range(model.config.num_hidden_layers)]
        return np.stack([np.asarray(model.engine.to_numpy(cache[name]), np.float32) for name in names])


def visible_keys(model: Model, mask: np.ndarray) -> np.ndarray:
    """How many tokens every token may look at, [layers, B, T]: padding, windows and causality taken off."""
    length = mask.shape[1]
    everything = slice(0, len(mask)), slice(0, length), slice(0, length)
    found = []
    for layer in range(model.config.num_hidden_layers):
        pattern = AttentionPattern(mask, None, model.config.window_of(layer), model.config.causal)
        allowed: Any = pattern.allowed(np, *everything)
        found.append(np.broadcast_to(allowed, (len(mask), 1, length, length)).sum(-1)[:, 0])
    return np.stack(found)


def attention_entropy(maps: np.ndarray) -> np.ndarray:
    """In nats for every query: [..., T, T] -> [..., T]."""
    return -(maps * np.log(np.maximum(maps, 1e-30))).sum(-1)


def attention_distance(maps: np.ndarray) -> np.ndarray:
    """In tokens for every query: [..., T, T] -> [..., T]."""
    place = np.arange(maps.shape[-1])
    return (maps * np.abs(place[:, None] - place)).sum(-1)


@dataclass(frozen=True)
class HeadHabits:
    """What heads do with their attention on average over the words of some texts; every array is [layers, heads].

    previous, next, itself   the weight on the neighbours and on the token itself
    same_word                on other places of the same token, over tokens that occur again
    separators               on [CLS], [SEP] and whatever else the tokenizer added
    entropy                  over that of an even spread: 1 looks everywhere alike
    distance                 in tokens
    """

    previous: np.ndarray
    next: np.ndarray
    itself: np.ndarray
    same_word: np.ndarray
    separators: np.ndarray
    entropy: np.ndarray
    distance: np.ndarray
    words: int  # how many queries were averaged

    def as_dict(self) -> dict[str, np.ndarray]:
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


def head_habits(model: Model, batches: Iterable[Rows], told: Told = lambda: None) -> HeadHabits:
    """Averages over all words; special tokens and padding do not count as queries.

    A word counts for "previous" only if a word stands before it, and for "same word" only if its token occurs again.
    """
    totals: dict[str, Any] = {}
    counts: dict[str, int] = {}

    def note(name: str, values: np.ndarray, queries: np.ndarray) -> None:
        """values [layers, B, heads, T], averaged where queries [B, T]."""
        chosen = np.where(queries[None, :, None], values, 0.0).sum((1, 3), dtype=np.float64)
        totals[name] = totals.get(name, 0.0) + chosen
        counts[name] = counts.get(name, 0) + int(queries.sum())

    for rows in batches:
        maps = attention_maps(model, rows.ids, rows.mask)
        words = rows.words
        before, after = np.zeros_like(words), np.zeros_like(words)
        before[:, 1:] = words[:, 1:] & words[:, :-1]
        after[:, :-1] = words[:, :-1] & words[:, 1:]
        same = (rows.ids[:, :, None] == rows.ids[:, None]) & words[:, None] & ~np.eye(words.shape[1], dtype=bool)
        special = (rows.mask == 1) & ~words
        note("previous", _shifted(maps, -1), before)
        note("next", _shifted(maps, 1), after)
        note("itself", np.diagonal(maps, axis1=-2, axis2=-1), words)
        note("same_word", (maps * same[None, :, None]).sum(-1), words & same.any(-1))
        note("separators", (maps * special[None, :, None, None]).sum(-1), words)
        keys = visible_keys(model, rows.mask)[:, :, None]  # [layers, B, 1, T]
        even = np.log(np.maximum(keys, 2))
        note("entropy", np.where(keys > 1, attention_entropy(maps) / even, 0.0), words)
        note("distance", attention_distance(maps), words)
        told()
    return HeadHabits(**{name: totals[name] / max(counts[name], 1) for name in totals}, words=counts["itself"])


def _shifted(maps: np.ndarray, offset: int) -> np.ndarray:
    """The weight on the token `offset` places on: [..., T, T] -> [..., T], 0 where there is none."""
    found = np.zeros(maps.shape[:-1], maps.dtype)
    diagonal = np.diagonal(maps, offset, axis1=-2, axis2=-1)
    found[..., slice(-offset, None) if offset < 0 else slice(None, -offset)] = diagonal
    return found


# A head gets the name of the habit that takes this much of its attention; most of what uniform attention could give
# a single token is a few hundredths.
CLEAR = 0.3
BROAD = 0.8  # of the entropy of an even spread
NAMES = {
    "previous": "previous token",
    "next": "next token",
    "itself": "itself",
    "same_word": "same word elsewhere",
    "separators": "separators",
}


def head_kinds(habits: HeadHabits) -> list[list[str]]:
    """A name for every head, [layers][heads].

    That of its strongest habit where this takes at least 0.3 of its attention, else "broad" where its entropy is at
    least 0.8 of that of an even spread, else "mixed".
    """
    names = list(NAMES)
    strength = np.stack([getattr(habits, name) for name in names])  # [habits, layers, heads]
    best, top = strength.argmax(0), strength.max(0)
    layers, heads = top.shape
    return [
        [
            NAMES[names[best[layer, head]]]
            if top[layer, head] >= CLEAR
            else ("broad" if habits.entropy[layer, head] >= BROAD else "mixed")
            for head in range(heads)
        ]
        for layer in range(layers)
    ]
