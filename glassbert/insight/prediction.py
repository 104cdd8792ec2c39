"""One prediction, looked into: answers, the tokens that brought them about, the layers, the attention that mattered.

    found = explain(open_model("runs/mini"), "Paris is the [MASK] of France.")
    found.answers, found.integrated.attributions, found.layers, found.heads

Every head is silenced once (`without_heads`) to see what becomes of the score; those without which it changes most are
shown. The gradient alone would be quicker and wrong: norms and sharp attention make the score anything but linear in
what a head says. Within a head, the links that count are those with the largest weight times gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from glassbert.insight.aims import Aim, answering_head
from glassbert.insight.answers import Answer, LayerSeen, MaskedText, WholeText
from glassbert.insight.inputs import Opened
from glassbert.insight.pruning import without_heads
from glassbert.insight.saliency import (
    Integrated,
    Looked,
    baseline_ids,
    embedding_sums,
    integrated_gradients,
    look,
    scores,
)
from glassbert.training.fill_mask import readable

ANSWERS, HEADS, LINKS = 8, 6, 3
FAINT = 0.1  # links below this share of a head's strongest are not worth a mention


class Link(NamedTuple):
    """Token `query` takes `weight` of its attention from token `key`, and the score leans on it by `effect`."""

    query: int
    key: int
    weight: float
    effect: float


@dataclass(frozen=True)
class HeadSeen:
    """A head in this prediction: by how much the score changes if it is silenced, and where it looks."""

    layer: int
    head: int
    change: float
    weights: np.ndarray  # [T, T]
    links: list[Link]  # the strongest, by weight times gradient


@dataclass(frozen=True)
class Prediction:
    """Everything about one answer. Arrays over tokens are [T]; `without` is [layers, heads]."""

    model: str
    text: str
    tokens: list[str]
    place: int | None  # of the mask that is explained; None for an answer about the whole text
    answers: list[Answer]
    answer: Answer  # the one that is explained
    score: str  # what the score is, in words
    other_masks: dict[int, list[Answer]]
    integrated: Integrated
    gradient_x_input: np.ndarray
    without: np.ndarray  # the change of the score if this head is silenced
    heads: list[HeadSeen]
    layers: list[LayerSeen]

    def as_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for JSON."""
        return {
            "model": self.model,
            "text": self.text,
            "tokens": self.tokens,
            "place": self.place,
            "answers": [one._asdict() for one in self.answers],
            "explained": self.answer._asdict(),
            "score": self.score,
            "other_masks": {str(at): [one._asdict() for one in found] for at, found in self.other_masks.items()},
            "integrated_gradients": {
                "attributions": self.integrated.attributions.tolist(),
                "score": self.integrated.score,
                "score_with_every_word_hidden": self.integrated.baseline_score,
                "error": self.integrated.error,
                "points": self.integrated.points,
            },
            "gradient_x_input": self.gradient_x_input.tolist(),
            "change_without_head": self.without.tolist(),
            "heads": [
                {**dataclasses.asdict(one), "weights": one.weights.tolist(), "links": [x._asdict() for x in one.links]}
                for one in self.heads
            ],
            "layers": [{**one._asdict(), "answers": [x._asdict() for x in one.answers]} for one in self.layers],
        }


def explain(
    opened: Opened,
    text: str,
    *,
    answer: str | None = None,
    mask: int = 1,
    top: int = ANSWERS,
    heads: int = HEADS,
    told: Callable[[], object] = lambda: None,
) -> Prediction:
    """Look into the prediction for the [MASK] of number `mask`, or into a classifier's answer about the text.

    `answer` names another word or label than the likeliest: what speaks for it?
    """
    part = answering_head(opened.model)
    asked = MaskedText(opened, text, mask) if part.head.kind == "mlm" else WholeText(opened, text)
    answers = asked.answers(asked.place)
    chosen = answers[0] if answer is None else asked.named(answer)
    aim = asked.aim(chosen)
    model, ids, tokenizer = opened.model, asked.ids, opened.tokenizer
    sums = embedding_sums(model, ids)
    looked = look(model, sums, aim)
    without, seen = _heads(opened, sums, aim, looked, heads, told)
    baseline = baseline_ids(ids, tokenizer.mask_id, tokenizer.special_ids)
    return Prediction(
        model=opened.name,
        text=text,
        tokens=[readable(tokenizer.id_to_token(int(i))) for i in ids[0]],
        place=asked.place,
        answers=answers[:top],
        answer=chosen,
        score=asked.score_in_words(chosen),
        other_masks={at: asked.answers(at)[:top] for at in asked.others},
        integrated=integrated_gradients(model, ids, baseline, aim, told),
        gradient_x_input=(sums * looked.gradient)[0].sum(-1),
        without=without,
        heads=seen,
        layers=asked.layers(chosen),
    )


def _heads(
    opened: Opened, sums: np.ndarray, aim: Aim, looked: Looked, count: int, told: Callable[[], object]
) -> tuple[np.ndarray, list[HeadSeen]]:
    """The change of the score without each head, [layers, heads], and a closer look at those that matter most."""
    model = opened.model

    def value(layer: int, head: int, name: str) -> np.ndarray:
        return np.asarray(model.engine.to_numpy(looked.cache[f"layers.{layer}.attention.{name}"]), np.float64)[0, head]

    change = np.zeros((model.config.num_hidden_layers, model.config.num_attention_heads))
    for layer, head in np.ndindex(*change.shape):
        change[layer, head] = scores(without_heads(model, [(layer, head)]), sums, aim)[0] - looked.scores[0]
        told()
    seen = []
    for place in np.argsort(-np.abs(change), axis=None, kind="stable")[:count]:
        layer, head = (int(i) for i in np.unravel_index(place, change.shape))
        weights = value(layer, head, "weights")
        effects = weights * value(layer, head, "d_weights")
        strongest = np.argsort(-np.abs(effects), axis=None, kind="stable")[:LINKS]
        links = [
            Link(int(i), int(j), float(weights[i, j]), float(effects[i, j]))
            for i, j in zip(*np.unravel_index(strongest, effects.shape), strict=True)
        ]
        links = [link for link in links if abs(link.effect) >= FAINT * abs(links[0].effect)]
        seen.append(HeadSeen(layer, head, float(change[layer, head]), weights, links))
    return change, seen
