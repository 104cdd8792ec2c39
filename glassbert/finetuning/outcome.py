"""`Outcome`: the outputs of a model on a set of examples, decoded to probabilities, choices and answers.

outputs (from `score_examples`)             probabilities       choices             answers
binary       [N] logit of the second label  [N]                 [N] of 0 and 1      label names
multiclass   [N, L] logits                  [N, L]              [N]                 label names
ordinal      [N, L - 1] logits of steps     [N, L]              [N] ranks           label names
multilabel   [N, L] logits                  [N, L]              [N, L] of 0 and 1   lists of label names
regression   [N] values in their own units  none                [N]                 numbers
token        for each sentence [words, L]   the same            [words]             lists of tags
span         for each question its answers  none                the best one        texts
embedding    [N, 2, H] vectors of pairs     none                [N] cosines         numbers
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.ranks import median_ranks, ranks_by_cuts
from glassbert.finetuning.tags import chosen_tags
from glassbert.metrics import Score, Scores
from glassbert.models.heads.losses import DECODERS, LossOptions
from glassbert.ops.losses import sigmoid
from glassbert.tasks import TaskData

DECODED_AS = {"multiclass": "cross_entropy", "token": "cross_entropy", "ordinal": "ordinal"}


def probabilities(outputs: Any, card: TaskCard) -> Any:
    """Probabilities, calibrated with `card.temperature` and `card.bias`; None for heads without probabilities."""
    if card.head in ("binary", "multilabel"):
        return sigmoid(_scaled(outputs, card))
    if card.head == "token":
        return [_decoded(scores, card) for scores in outputs]
    return _decoded(outputs, card) if card.head in DECODED_AS else None


def choices(outputs: Any, card: TaskCard) -> Any:
    """Predictions as numbers, in the form that metrics compare with the truth."""
    if card.head == "binary":
        return (probabilities(outputs, card) >= (card.thresholds or (0.5,))[0]).astype(np.int64)
    if card.head == "multilabel":
        return (probabilities(outputs, card) >= np.array(card.thresholds or 0.5)).astype(np.int64)
    if card.head == "multiclass":
        return _scaled(outputs, card).argmax(-1)
    if card.head == "ordinal":
        probs = probabilities(outputs, card)
        return median_ranks(probs) if card.cuts is None else ranks_by_cuts(probs, card.cuts)
    if card.head == "token":
        return chosen_tags(outputs, card)
    if card.head == "span":
        return [found[0].text for found in outputs]
    if card.embeds_pairs:
        return cosines(outputs)
    return np.asarray(outputs)


def answers(outputs: Any, card: TaskCard) -> list[Any]:
    """Readable predictions: label names, lists of them, numbers, tags or texts."""
    chosen, names = choices(outputs, card), card.label_names
    if card.head in ("binary", "multiclass", "ordinal"):
        return [names[label] for label in chosen]
    if card.head == "multilabel":
        return [[names[label] for label in np.flatnonzero(row)] for row in chosen]
    if card.head == "token":
        return [[names[tag] for tag in tags] for tags in chosen]
    return list(chosen) if card.head == "span" else np.asarray(chosen, np.float64).tolist()


def true_names(truth: Any, card: TaskCard) -> list[Any]:
    """The truth in the same form as `answers`."""
    names = card.label_names
    if card.head in ("binary", "multiclass", "ordinal"):
        return [names[int(label)] for label in truth]
    if card.head == "multilabel":
        return [[names[label] for label in np.flatnonzero(row)] for row in truth]
    if card.head == "token":
        return [[names[int(tag)] for tag in tags] for tags in truth]
    return list(truth) if card.head == "span" else np.asarray(truth, np.float64).tolist()


def cosines(outputs: Any) -> np.ndarray:
    """The cosine of the two vectors of every pair, [N] from [N, 2, H]; 0 for a zero vector."""
    first, second = np.moveaxis(np.asarray(outputs, np.float64), 1, 0)
    sizes = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return (first * second).sum(-1) / np.maximum(sizes, 1e-12)


def _decoded(outputs: Any, card: TaskCard) -> np.ndarray:
    return DECODERS[DECODED_AS[card.head]](_scaled(outputs, card), LossOptions())


def _scaled(outputs: Any, card: TaskCard) -> np.ndarray:
    """logits / temperature + bias"""
    scaled = np.asarray(outputs, np.float64) / (card.temperature or 1.0)
    if card.bias is None:
        return scaled
    return scaled + (card.bias[0] if card.head == "binary" else np.array(card.bias))


@dataclass(frozen=True)
class Outcome:
    """Data, truth (`truth_of`), outputs (`score_examples`) and scores; row i belongs to example i of `data`."""

    card: TaskCard
    data: TaskData
    truth: Any
    outputs: Any
    scores: Scores

    def __len__(self) -> int:
        return len(self.data)

    @property
    def main(self) -> Score:
        """The score of the main metric, `card.metric`."""
        return self.scores[self.card.metric]

    @cached_property
    def _answers(self) -> list[Any]:
        return answers(self.outputs, self.card)

    def answers(self) -> list[Any]:
        """Label names, lists of them, numbers, tags or texts, one for each example."""
        return self._answers

    def true_answers(self) -> list[Any]:
        """The truth in the same form as `answers`."""
        if self.truth is None:
            raise InputError(f"{self.data.source} has no true answers")
        return true_names(self.truth, self.card)

    def choices(self) -> Any:
        """Predictions as numbers; see the table at the top of the module."""
        return choices(self.outputs, self.card)

    def probabilities(self) -> Any:
        """[N] (binary), [N, L], a list of [words, L] (token), or None where the head gives none."""
        return probabilities(self.outputs, self.card)

    def rows(self) -> list[dict[str, Any]]:
        """One dict per example, as written to predictions.jsonl."""
        probs, names = self.probabilities(), self.card.label_names
        truth = self.true_answers() if self.truth is not None else None
        found = []
        for i, answer in enumerate(self.answers()):
            row: dict[str, Any] = {"text": self.data.texts[i]}
            if self.data.pairs is not None:
                row["pair"] = self.data.pairs[i]
            if self.data.words is not None:
                row = {"words": self.data.words[i]}
            row["answer"] = answer
            if truth is not None:
                row["truth"] = truth[i]
            if probs is not None and self.card.head != "token":
                row["probabilities"] = _by_label(probs[i], names)
            found.append(row)
        return found


def _by_label(probs: Any, names: tuple[str, ...]) -> dict[str, float]:
    values = [1.0 - probs, probs] if np.ndim(probs) == 0 else list(probs)
    return {name: round(float(value), 6) for name, value in zip(names, values, strict=True)}
