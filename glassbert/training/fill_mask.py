"""Filling masks: the words that a masked language model predicts for [MASK]."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassbert.checkpoints.formats import format_of_file
from glassbert.checkpoints.locate import CONFIG, open_checkpoint
from glassbert.errors import InputError
from glassbert.models.heads import DiscriminatorHead, ReplacedTokenHead
from glassbert.models.heads.rtd import GENERATOR
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


def word_model(model: Model) -> Model:
    """The masked language model in a model that is trained: itself, or its generator."""
    kept = model.head.finished(model).values() if model.head is not None else ()
    return next((one for one in kept if one.head is not None and "mlm" in one.head.parts), model)


def readable(token: str | None) -> str:
    """A token without the markers that stand for a space."""
    return "?" if token is None else token.replace("Ġ", "").replace("▁", "")


def load_masked_model(path: str | Path, engine: str = "auto") -> tuple[Model, Any]:
    """A masked language model and its tokenizer: of a run (finished or not), or of any folder that holds both.

    Where the model is a discriminator, it is the generator that was saved with it.
    """
    from glassbert.text.loading import load_with_tokenizer

    checkpoint = open_checkpoint(path)
    folder = checkpoint.config_path.parent
    beside = folder / GENERATOR
    if (beside / CONFIG).exists():
        return load_with_tokenizer(beside, engine=engine, head="mlm")
    head = format_of_file(checkpoint.fields).saved_head(checkpoint.fields, checkpoint.tensors, None)
    if head == ReplacedTokenHead.kind:  # a checkpoint of an unfinished run
        model, tokenizer = load_with_tokenizer(path, engine=engine)
        return word_model(model), tokenizer
    if head == DiscriminatorHead.kind:
        raise InputError(
            f"{path} is a discriminator: it says which tokens were replaced and predicts no words. Give the generator "
            f"that it was trained with, or another masked language model"
        )
    return load_with_tokenizer(path, engine=engine, head="mlm")
