"""Filling masks: the words that a masked language model predicts for [MASK]."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.models.model import Model
from glassbert.training.evaluate import evaluation_mode

MASK = "[MASK]"


class Answer(NamedTuple):
    """A predicted word and its probability."""

    word: str
    chance: float


def fill_mask(model: Model, tokenizer: Any, sentence: str, top: int = 5) -> list[list[Answer]]:
    """For every [MASK] of the sentence, the `top` most probable words with their probabilities."""
    if MASK not in sentence:
        raise InputError(f"the sentence must contain {MASK}, as in 'Paris is the {MASK} of France.'")
    ids = encode_masked(tokenizer, sentence)
    limit = model.config.max_length
    if ids.shape[1] > limit:
        raise InputError(f"the sentence has {ids.shape[1]} tokens, but the model reads at most {limit}; shorten it")
    return fill_ids(model, tokenizer, ids, top)


def encode_masked(tokenizer: Any, sentence: str) -> np.ndarray:
    """The ids [1, T] of a sentence in which each [MASK] is one token."""
    pieces = sentence.split(MASK)
    ids: list[int] = [tokenizer.cls_id]
    for i, piece in enumerate(pieces):
        ids += [tokenizer.mask_id] * (i > 0)
        ids += list(tokenizer.encode(piece, special_tokens=False).ids) if piece.strip() else []
    return np.array([[*ids, tokenizer.sep_id]])


def fill_ids(model: Model, tokenizer: Any, ids: np.ndarray, top: int = 5) -> list[list[Answer]]:
    """`fill_mask` for the ids [1, T] of a sentence. Special tokens are never predicted."""
    with evaluation_mode(model):
        output = model.predict(ids)
        mlm_output = output["mlm"] if isinstance(output, Mapping) else output  # a pretraining head has two outputs
        logits = model.engine.to_numpy(mlm_output)[0].astype(np.float64)  # [T, V]
    found = []
    for position in np.flatnonzero(ids[0] == tokenizer.mask_id):
        scores = logits[position]
        scores[list(tokenizer.special_ids)] = -np.inf
        chances = np.exp(scores - scores.max())
        chances /= chances.sum()
        best = np.argsort(-chances)[:top]
        found.append([Answer(readable(tokenizer.id_to_token(int(i))), float(chances[i])) for i in best])
    return found


def readable(token: str | None) -> str:
    """A token without the markers that stand for a space."""
    return "?" if token is None else token.replace("Ġ", "").replace("▁", "")


def load_masked_model(path: str | Path, engine: str = "auto") -> tuple[Model, Any]:
    """A masked language model and its tokenizer: of a run (finished or not), or of any folder that holds both."""
    from glassbert.text.loading import load_with_tokenizer

    return load_with_tokenizer(path, engine=engine, head="mlm")
