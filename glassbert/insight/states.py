"""Hidden states by layer as plain arrays, and how alike two sets of layers are.

`embeddings` is what the first block receives, `layers.i` what block i gives; the last one is the encoder's output, its
final norm included where it has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.engines.threads import using_threads
from glassbert.insight.aims import Aim, Scorer
from glassbert.insight.inputs import ROWS, Opened, Rows, rows_of
from glassbert.layers.basics import norm
from glassbert.layers.scope import Cache, Scope
from glassbert.metrics import linear_cka
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.tasks.alignment import align_words
from glassbert.training.evaluate import quietly


def hidden_states(
    model: Model, input_ids: Any, attention_mask: Any = None, *, normed: bool = False
) -> dict[str, np.ndarray]:
    """[B, T, H] by name. With `normed` the encoder's final norm, where it has one, is put on every layer."""
    config, engine = model.config, model.engine
    with quietly(model):
        _, cache = model.run_encoder(check_inputs(config, input_ids, attention_mask), Cache(trace=True))
    last = config.num_hidden_layers - 1
    states = {"embeddings": cache["embeddings.output"]}
    states.update({f"layers.{layer}": cache[f"layers.{layer}.output"] for layer in range(last)})
    if normed and config.final_norm:
        at = Scope(cache.parameters, Cache())
        states = {name: norm(state, at, "final_norm", config.layer_norm_eps) for name, state in states.items()}
    states[f"layers.{last}"] = cache["output"]
    return {name: engine.to_numpy(state) for name, state in states.items()}


def word_states(
    model: Model, batches: Iterable[Rows], most: int = 4_000, *, once: bool = False
) -> dict[str, np.ndarray]:
    """The states of words, [N, H] by layer; special tokens and padding left out, evenly thinned down to `most`.

    With `once` every token of the vocabulary is taken where it first occurs: a cloud of different words.
    """
    parts: dict[str, list[np.ndarray]] = {}
    ids = []
    for rows in batches:
        ids.append(rows.ids[rows.words])
        for name, state in hidden_states(model, rows.ids, rows.mask).items():
            parts.setdefault(name, []).append(np.asarray(state, np.float32)[rows.words])
    joined = {name: np.concatenate(states) for name, states in parts.items()}
    every = np.concatenate(ids)
    candidates = np.sort(np.unique(every, return_index=True)[1]) if once else np.arange(len(every))
    kept = candidates[_evenly(len(candidates), most)]
    return {name: states[kept] for name, states in joined.items()}


def tagged_states(
    opened: Opened, annotated: Any, column: str, most: int = 4_000
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The states of annotated words (of their first pieces), [N, H] by layer, and their tags [N].

    `annotated` is a table with "words" and tags in `column`; sentences longer than the model reads are cut off.
    """
    sentences, tags = annotated.column("words"), annotated.column(column)
    aligned = align_words(opened.tokenizer, sentences, length=opened.longest)
    parts: dict[str, list[np.ndarray]] = {}
    names: list[str] = []
    firsts = np.flatnonzero(aligned.windows.starts == 0)
    for begin in range(0, len(firsts), ROWS):
        windows = firsts[begin : begin + ROWS]
        rows = rows_of(opened.tokenizer, [aligned.windows.encodings[window] for window in windows])
        places = [(row, *pair) for row, window in enumerate(windows) for pair in aligned.firsts[window]]
        at = np.array(places, np.int64).reshape(-1, 3)
        names += [tags[aligned.windows.owners[windows[row]]][word] for row, word, _ in places]
        for name, state in hidden_states(opened.model, rows.ids, rows.mask).items():
            parts.setdefault(name, []).append(np.asarray(state, np.float32)[at[:, 0], at[:, 2]])
    kept = _evenly(len(names), most)
    return {name: np.concatenate(states)[kept] for name, states in parts.items()}, np.array(names)[kept]


def layer_similarity(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> np.ndarray:
    """Linear CKA of every layer of one model with every layer of another, over the same words: [first, second]."""
    return np.array([[linear_cka(x, y) for y in second.values()] for x in first.values()])


def _evenly(count: int, most: int) -> np.ndarray:
    """At most so many numbers below `count`, spread evenly."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(int))


@dataclass(frozen=True)
class Lens:
    """By layer, the embeddings first: log-probabilities [layers + 1, vocabulary] of the words at one place."""

    names: list[str]
    log_probabilities: np.ndarray

    def best(self, layer: int, count: int, among: np.ndarray) -> list[int]:
        """The likeliest words of a layer among those marked in `among` [vocabulary]."""
        chances = np.where(among, self.log_probabilities[layer], -np.inf)
        return [int(i) for i in np.argsort(-chances)[:count]]

    def rank(self, word: int, among: np.ndarray) -> list[int]:
        """For every layer, the how-manieth best answer the word is, from 1."""
        own = self.log_probabilities[:, [word]]
        return [int(count) + 1 for count in ((self.log_probabilities > own) & among).sum(1)]


def logit_lens(model: Model, input_ids: Any, place: int) -> Lens:
    """What a masked language model would answer at `place` of one text [1, T] after every layer."""
    states = hidden_states(model, input_ids, normed=True)
    found = []
    with using_threads(model.engine.threads):
        for state in states.values():
            logits = Scorer(model, Aim(0, place)).outputs(model.engine.array(state))[0]
            shifted = logits - logits.max()
            found.append(shifted - np.log(np.exp(shifted).sum()))
    return Lens(list(states), np.stack(found))
