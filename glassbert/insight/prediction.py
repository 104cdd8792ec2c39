"""Explain one prediction: its answers, the tokens, layers and attention heads that contribute to it.

    found = explain(open_model("runs/mini"), "Paris is the [MASK] of France.")
    found.answers, found.integrated.attributions, found.layers, found.heads

The effect of a head is measured: the head is removed (`without_heads`) and the score is computed again. A gradient
estimate would be faster but wrong, because the score is not linear in the output of a head. Within a head, the
attention weights with the largest |weight x gradient| are reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from glassbert.insight.aims import Aim, explained_head
from glassbert.insight.answers import Answer, LayerAnswers, MaskedText, NextWord, WholeText
from glassbert.insight.inputs import LoadedModel
from glassbert.insight.pruning import without_heads
from glassbert.insight.saliency import (
    ForwardBackward,
    Integrated,
    baseline_ids,
    embedding_sums,
    forward_backward,
    integrated_gradients,
    scores,
)
from glassbert.training.fill_mask import readable

ANSWERS, HEADS, LINKS = 8, 6, 3
MIN_LINK = 0.1  # of a head's strongest link; weaker links are not reported


class Link(NamedTuple):
    """One attention weight: `query` attends to `key` with `weight`; `effect` is weight x gradient of the score."""

    query: int
    key: int
    weight: float
    effect: float


@dataclass(frozen=True)
class HeadEffect:
    """One attention head: the change of the score without it, and its attention weights."""

    layer: int
    head: int
    change: float
    weights: np.ndarray  # [T, T]
    links: list[Link]  # the strongest, by |weight x gradient|


@dataclass(frozen=True)
class Prediction:
    """The explanation of one answer. Arrays over tokens are [T]."""

    model: str
    text: str
    tokens: list[str]
    position: int | None  # of the explained mask; None for an answer about the whole text
    answers: list[Answer]
    answer: Answer  # the explained one
    score: str  # description of the score
    other_masks: dict[int, list[Answer]]
    integrated: Integrated
    gradient_x_input: np.ndarray
    change_without_head: np.ndarray  # [layers, heads]: score without this head minus score
    heads: list[HeadEffect]
    layers: list[LayerAnswers]

    def as_dict(self) -> dict[str, Any]:
        """Lists and numbers, for JSON."""
        return {
            "model": self.model,
            "text": self.text,
            "tokens": self.tokens,
            "place": self.position,
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
            "change_without_head": self.change_without_head.tolist(),
            "heads": [
                {**dataclasses.asdict(one), "weights": one.weights.tolist(), "links": [x._asdict() for x in one.links]}
                for one in self.heads
            ],
            "layers": [{**one._asdict(), "answers": [x._asdict() for x in one.answers]} for one in self.layers],
        }


def explain(
    loaded: LoadedModel,
    text: str,
    *,
    answer: str | None = None,
    mask: int = 1,
    top: int = ANSWERS,
    heads: int = HEADS,
    on_progress: Callable[[], object] = lambda: None,
) -> Prediction:
    """Explain the prediction for [MASK] number `mask`, or a classifier's answer about the text.

    answer        the word or label to explain; without it the most probable one
    top, heads    how many answers and how many attention heads to report
    on_progress   called after every forward or backward pass
    """
    part = explained_head(loaded.model)
    queries: dict[str, Any] = {"mlm": partial(MaskedText, mask=mask), "causal": NextWord}
    query = queries.get(part.head.kind, WholeText)(loaded, text)
    answers = query.answers(query.position)
    chosen = answers[0] if answer is None else query.find_answer(answer)
    aim = query.aim(chosen)
    model, ids, tokenizer = loaded.model, query.ids, loaded.tokenizer
    sums = embedding_sums(model, ids)
    reference = forward_backward(model, sums, aim)
    change, effects = _head_effects(loaded, sums, aim, reference, heads, on_progress)
    baseline = baseline_ids(ids, tokenizer.neutral_id, tokenizer.special_ids)
    return Prediction(
        model=loaded.name,
        text=text,
        tokens=[readable(tokenizer.id_to_token(int(i))) for i in ids[0]],
        position=query.position,
        answers=answers[:top],
        answer=chosen,
        score=query.score_description(chosen),
        other_masks={position: query.answers(position)[:top] for position in query.other_positions},
        integrated=integrated_gradients(model, ids, baseline, aim, on_progress),
        gradient_x_input=(sums * reference.gradient)[0].sum(-1),
        change_without_head=change,
        heads=effects,
        layers=query.layers(chosen),
    )


def _head_effects(
    loaded: LoadedModel,
    sums: np.ndarray,
    aim: Aim,
    reference: ForwardBackward,
    count: int,
    on_progress: Callable[[], object],
) -> tuple[np.ndarray, list[HeadEffect]]:
    """The change of the score without each head, [layers, heads], and details of the `count` largest changes."""
    model = loaded.model

    def value(layer: int, head: int, name: str) -> np.ndarray:
        return np.asarray(model.engine.to_numpy(reference.cache[f"layers.{layer}.attention.{name}"]), np.float64)[
            0, head
        ]

    change = np.zeros((model.config.num_hidden_layers, model.config.num_attention_heads))
    for layer, head in np.ndindex(*change.shape):
        change[layer, head] = scores(without_heads(model, [(layer, head)]), sums, aim)[0] - reference.scores[0]
        on_progress()
    effects = []
    for index in np.argsort(-np.abs(change), axis=None, kind="stable")[:count]:
        layer, head = (int(i) for i in np.unravel_index(index, change.shape))
        weights = value(layer, head, "weights")
        products = weights * value(layer, head, "d_weights")
        strongest = np.argsort(-np.abs(products), axis=None, kind="stable")[:LINKS]
        links = [
            Link(int(i), int(j), float(weights[i, j]), float(products[i, j]))
            for i, j in zip(*np.unravel_index(strongest, products.shape), strict=True)
        ]
        links = [link for link in links if abs(link.effect) >= MIN_LINK * abs(links[0].effect)]
        effects.append(HeadEffect(layer, head, float(change[layer, head]), weights, links))
    return change, effects
