"""Hidden states of every layer as NumPy arrays, similarity of layers, and the logit lens.

The states are named `embeddings` (the input of the first block) and `layers.i` (the output of block i). The last one is
the output of the encoder, after the final norm if there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.engines.threads import using_threads
from glassbert.insight.aims import Aim, Scorer
from glassbert.insight.inputs import BATCH_ROWS, LoadedModel, TextBatch, pad_rows
from glassbert.layers.scope import NullCache, Scope
from glassbert.metrics import linear_cka
from glassbert.models.model import Model
from glassbert.tasks.alignment import align_words
from glassbert.training.evaluate import evaluation_mode


def hidden_states(
    model: Model, input_ids: Any, attention_mask: Any = None, *, normed: bool = False
) -> dict[str, np.ndarray]:
    """[B, T, H] by name. With `normed`, the final norm of the encoder (if any) is applied to every layer."""
    config, engine = model.config, model.engine
    with evaluation_mode(model):
        cache = model.run(model.check(input_ids, attention_mask), trace=True, kernels=engine.kernels)
        cache.encode()
    last = config.num_hidden_layers - 1
    states = {"embeddings": cache["embeddings.output"]}
    states.update({f"layers.{layer}": cache[f"layers.{layer}.output"] for layer in range(last)})
    if normed and config.final_norm:
        scope = Scope(engine.ops, cache.parameters, NullCache())
        states = {name: scope.norm(state, "final_norm", config.layer_norm_eps) for name, state in states.items()}
    states[f"layers.{last}"] = cache["output"]
    return {name: engine.to_numpy(state) for name, state in states.items()}


def word_states(
    model: Model, batches: Iterable[TextBatch], limit: int = 4_000, *, unique: bool = False
) -> dict[str, np.ndarray]:
    """States of text tokens, [N, H] by layer, without special tokens and padding; at most `limit`, evenly spaced.

    With `unique`, only the first occurrence of each token of the vocabulary is used.
    """
    parts: dict[str, list[np.ndarray]] = {}
    ids = []
    for batch in batches:
        ids.append(batch.ids[batch.words])
        for name, state in hidden_states(model, batch.ids, batch.mask).items():
            parts.setdefault(name, []).append(np.asarray(state, np.float32)[batch.words])
    joined = {name: np.concatenate(states) for name, states in parts.items()}
    every = np.concatenate(ids)
    candidates = np.sort(np.unique(every, return_index=True)[1]) if unique else np.arange(len(every))
    kept = candidates[_evenly_spaced(len(candidates), limit)]
    return {name: states[kept] for name, states in joined.items()}


def tagged_states(
    loaded: LoadedModel, annotated: Any, column: str, limit: int = 4_000
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """States of annotated words (the first piece of each), [N, H] by layer, and their tags [N].

    `annotated` is a table with the columns "words" and `column`. Sentences longer than the model's input are truncated.
    """
    sentences, tags = annotated.column("words"), annotated.column(column)
    aligned = align_words(loaded.tokenizer, sentences, length=loaded.max_length)
    parts: dict[str, list[np.ndarray]] = {}
    names: list[str] = []
    first_windows = np.flatnonzero(aligned.windows.starts == 0)
    for begin in range(0, len(first_windows), BATCH_ROWS):
        windows = first_windows[begin : begin + BATCH_ROWS]
        batch = pad_rows(loaded.tokenizer, [aligned.windows.encodings[window] for window in windows])
        found = [(row, *pair) for row, window in enumerate(windows) for pair in aligned.firsts[window]]
        index = np.array(found, np.int64).reshape(-1, 3)  # row, word, first piece
        names += [tags[aligned.windows.owners[windows[row]]][word] for row, word, _ in found]
        for name, state in hidden_states(loaded.model, batch.ids, batch.mask).items():
            parts.setdefault(name, []).append(np.asarray(state, np.float32)[index[:, 0], index[:, 2]])
    kept = _evenly_spaced(len(names), limit)
    return {name: np.concatenate(states)[kept] for name, states in parts.items()}, np.array(names)[kept]


def layer_similarity(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> np.ndarray:
    """Linear CKA of every layer of one model with every layer of another, over the same words: [first, second]."""
    return np.array([[linear_cka(x, y) for y in second.values()] for x in first.values()])


def _evenly_spaced(count: int, limit: int) -> np.ndarray:
    """At most `limit` evenly spaced indices below `count`."""
    return np.unique(np.linspace(0, count - 1, min(limit, count)).astype(int))


# ---- logit lens ----


@dataclass(frozen=True)
class Lens:
    """Log-probabilities [layers + 1, vocabulary] of the words at one position, by layer; embeddings first."""

    names: list[str]
    log_probabilities: np.ndarray

    def best(self, layer: int, count: int, allowed: np.ndarray) -> list[int]:
        """The ids of the `count` most probable words of a layer among those marked in `allowed` [vocabulary]."""
        scores = np.where(allowed, self.log_probabilities[layer], -np.inf)
        return [int(i) for i in np.argsort(-scores)[:count]]

    def rank(self, word: int, allowed: np.ndarray) -> list[int]:
        """The rank of a word at every layer, counted from 1."""
        own = self.log_probabilities[:, [word]]
        return [int(count) + 1 for count in ((self.log_probabilities > own) & allowed).sum(1)]


def logit_lens(model: Model, input_ids: Any, position: int) -> Lens:
    """Apply the MLM head to every layer at one position of one text [1, T].

    The head was trained on the last layer only, so the output for early layers is approximate.
    """
    states = hidden_states(model, input_ids, normed=True)
    found = []
    with using_threads(model.engine.threads):
        for state in states.values():
            logits = Scorer(model, Aim(0, position)).outputs(model.engine.array(state))[0]
            shifted = logits - logits.max()
            found.append(shifted - np.log(np.exp(shifted).sum()))
    return Lens(list(states), np.stack(found))
