"""Filling masks: the words that a language model predicts for [MASK]; a causal one reads only what is before it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassbert.checkpoints.formats import saved_head
from glassbert.checkpoints.locate import CONFIG, open_checkpoint
from glassbert.errors import InputError, NotFinite
from glassbert.models.heads import DiscriminatorHead, ReplacedTokenHead
from glassbert.models.heads.rtd import GENERATOR
from glassbert.models.inputs import output_rows
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
    if model.config.causal:
        raise InputError(
            "this model predicts the next word from the words before it, so it fills no mask; glassbert generate "
            "continues a text with it"
        )
    question, limit = ask(model, tokenizer, sentence), model.config.max_length
    length = question.ids.shape[1]
    if length > limit:
        raise InputError(f"the sentence has {length} tokens, but the model reads at most {limit}; shorten it")
    return answer(model, tokenizer, question, top)


class Question(NamedTuple):
    """A sentence as the model reads it: ids [1, T], and the positions whose scores are those of the missing words."""

    ids: np.ndarray
    positions: np.ndarray


def ask(model: Model, tokenizer: Any, sentence: str) -> Question:
    """The question for every [MASK] of a sentence, or for the first one if the model predicts the next token."""
    if model.config.causal:
        ids = encode_masked(tokenizer, sentence.partition(MASK)[0])[:, :-1]  # a text that has not ended
        return Question(ids, np.array([ids.shape[1] - 1]))
    ids = encode_masked(tokenizer, sentence)
    return Question(ids, np.flatnonzero(ids[0] == tokenizer.mask_id))


def encode_masked(tokenizer: Any, sentence: str) -> np.ndarray:
    """The ids [1, T] of a sentence in which each [MASK] is one token."""
    pieces = sentence.split(MASK)
    ids: list[int] = [tokenizer.cls_id]
    for i, piece in enumerate(pieces):
        ids += [tokenizer.mask_id] if i else []
        ids += list(tokenizer.encode(piece, special_tokens=False).ids) if piece.strip() else []
    return np.array([[*ids, tokenizer.sep_id]])


def answer(model: Model, tokenizer: Any, question: Question, top: int = 5) -> list[list[Answer]]:
    """The most probable words at every position of a question. Special tokens are never predicted."""
    missing = np.isin(np.arange(question.ids.shape[1]), question.positions)[None]
    checked = model.check_missing(question.ids, missing)
    with evaluation_mode(model):
        output = model.run(checked, inference=True).output()
        words = output["mlm"] if isinstance(output, Mapping) else output  # a pretraining head has two outputs
        logits = model.engine.to_numpy(words)[0].astype(np.float64)  # [T, V]
    if not np.isfinite(logits).all():
        raise NotFinite(
            "the model's scores are not finite, so it predicts no word: its weights diverged or are damaged"
        )
    found = []
    for position in output_rows(question.positions, checked):
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


def load_masked_model(path: str | Path, engine: str = "auto", kernels: str = "fast") -> tuple[Model, Any]:
    """A masked language model and its tokenizer: of a run (finished or not), or of any folder that holds both.

    Where the model is a discriminator, it is the generator that was saved with it.
    """
    from glassbert.text.loading import load_with_tokenizer

    checkpoint = open_checkpoint(path)
    folder = checkpoint.config_path.parent
    beside = folder / GENERATOR
    if (beside / CONFIG).exists():
        return load_with_tokenizer(beside, engine=engine, kernels=kernels, head="mlm")
    head = saved_head(checkpoint.fields, checkpoint.tensors)
    if head == ReplacedTokenHead.kind:  # a checkpoint of an unfinished run
        model, tokenizer = load_with_tokenizer(path, engine=engine, kernels=kernels)
        return word_model(model), tokenizer
    if head == DiscriminatorHead.kind:
        raise InputError(
            f"{path} is a discriminator: it says which tokens were replaced and predicts no words. Give the generator "
            f"that it was trained with, or another masked language model"
        )
    model, tokenizer = load_with_tokenizer(path, engine=engine, kernels=kernels)
    if model.head is None or not {"mlm", "causal"} & set(model.head.parts):
        what = "no head" if model.head is None else f"a head of type {model.head.kind}"
        raise InputError(f"{path} has {what}, so it predicts no words; fill-mask needs a masked language model")
    return model, tokenizer
