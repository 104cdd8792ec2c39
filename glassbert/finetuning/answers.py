"""From a head's outputs to answers: probabilities, choices as numbers, and what a person would say.

outputs (what `score_examples` gives)       probabilities       choices             answers
binary       [N] logit of the second label  [N]                 [N] of 0 and 1      label names
multiclass   [N, L] logits                  [N, L]              [N]                 label names
ordinal      [N, L - 1] logits of steps     [N, L]              [N] median rank     label names
multilabel   [N, L] logits                  [N, L]              [N, L] of 0 and 1   lists of label names
regression   [N] values in their own units  none                [N]                 numbers
token        for each sentence [words, L]   the same            [words]             lists of tags
span         for each question its answers  none                the best one        texts
embedding    [N, 2, H] vectors of pairs     none                [N] cosines         numbers
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.finetuning.card import TaskCard
from glassbert.models.heads.decoding import DECODERS
from glassbert.models.heads.losses import LossOptions
from glassbert.ops.losses import sigmoid

DECODED_AS = {"multiclass": "cross_entropy", "token": "cross_entropy", "ordinal": "ordinal"}


def probabilities(outputs: Any, card: TaskCard) -> Any:
    """As honest as `card.temperature` makes them; None for heads that give no probabilities."""
    if card.head in ("binary", "multilabel"):
        return sigmoid(np.asarray(outputs, np.float64) / (card.temperature or 1.0))
    if card.head == "token":
        return [_decoded(scores, card) for scores in outputs]
    return _decoded(outputs, card) if card.head in DECODED_AS else None


def choices(outputs: Any, card: TaskCard) -> Any:
    """The answers as numbers, as metrics compare them with the truth."""
    if card.head == "binary":
        return (probabilities(outputs, card) >= (card.thresholds or (0.5,))[0]).astype(np.int64)
    if card.head == "multilabel":
        return (probabilities(outputs, card) >= np.array(card.thresholds or 0.5)).astype(np.int64)
    if card.head == "multiclass":
        return np.asarray(outputs).argmax(-1)
    if card.head == "ordinal":  # the median: half of the probability lies at or below this rank
        # Of ranks a temperature could move the median; it is to make probabilities honest, not to change answers.
        below = np.cumsum(probabilities(outputs, card.replace(temperature=None)), -1)[:, :-1]
        return (below < 0.5).sum(-1)
    if card.head == "token":
        return [np.asarray(scores).argmax(-1) for scores in outputs]
    if card.head == "span":
        return [found[0].text for found in outputs]
    if card.embeds_pairs:
        return cosines(outputs)
    return np.asarray(outputs)


def answers(outputs: Any, card: TaskCard) -> list[Any]:
    """What a person would say: names of labels, lists of them, numbers, tags, texts."""
    chosen, names = choices(outputs, card), card.label_names
    if card.head in ("binary", "multiclass", "ordinal"):
        return [names[label] for label in chosen]
    if card.head == "multilabel":
        return [[names[label] for label in np.flatnonzero(row)] for row in chosen]
    if card.head == "token":
        return [[names[tag] for tag in tags] for tags in chosen]
    return list(chosen) if card.head == "span" else np.asarray(chosen, np.float64).tolist()


def true_names(truth: Any, card: TaskCard) -> list[Any]:
    """The truth in the words of `answers`."""
    names = card.label_names
    if card.head in ("binary", "multiclass", "ordinal"):
        return [names[int(label)] for label in truth]
    if card.head == "multilabel":
        return [[names[label] for label in np.flatnonzero(row)] for row in truth]
    if card.head == "token":
        return [[names[int(tag)] for tag in tags] for tags in truth]
    return list(truth) if card.head == "span" else np.asarray(truth, np.float64).tolist()


def cosines(outputs: Any) -> np.ndarray:
    """The cosine of the two vectors of every pair, [N] from [N, 2, H]; a vector of zeros is like nothing."""
    first, second = np.moveaxis(np.asarray(outputs, np.float64), 1, 0)
    sizes = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return (first * second).sum(-1) / np.maximum(sizes, 1e-12)


def _decoded(outputs: Any, card: TaskCard) -> np.ndarray:
    scaled = np.asarray(outputs, np.float64) / (card.temperature or 1.0)
    return DECODERS[DECODED_AS[card.head]](scaled, LossOptions())
