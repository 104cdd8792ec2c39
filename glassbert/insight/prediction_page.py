"""The explanation of a prediction as an HTML page: answers, attributions, layers, and the most important heads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from glassbert.insight.answers import Answer
from glassbert.insight.prediction import HeadEffect, Prediction
from glassbert.reports import Html, Page, figures, number, share
from glassbert.reports.drawing import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_MAP_TOKENS = 40  # longer texts have no attention map on the page


def prediction_page(found: Prediction) -> Page:
    page = Page(f"Why “{found.answer.name}”?", f"{found.model}: {found.text}")
    _answers(page, found)
    _saliency(page, found)
    if found.layers:
        _layers(page, found)
    _attention(page, found)
    return page


def _answers(page: Page, found: Prediction) -> None:
    whole = found.integrated
    chance = [] if found.answer.chance is None else [("Probability", share(found.answer.chance), _rank(found))]
    page.facts(
        [
            ("Explained", found.answer.name, found.score),
            *chance,
            ("With every word masked", _with_all_masked(found), "the same text with [MASK] for every word"),
            (
                "Effect of the words",
                signed(whole.difference),
                "nats" if found.answer.chance is not None else "in total",
            ),
        ]
    )
    page.heading("Answers")
    if found.answer.chance is None:
        page.text(f"The model predicts the number {found.answer.name}.")
    else:
        page.table(["answer", "probability", ""], [(a.name, share(a.chance), bar(a)) for a in found.answers])
    for position, answers in found.other_masks.items():
        words = ", ".join(f"{a.name} ({share(a.chance)})" for a in answers[:4])
        page.text(f"For the other mask, token {position + 1}: {words}.")


def _rank(found: Prediction) -> str:
    names = [one.number for one in found.answers]
    if found.answer.number not in names:
        return f"not among the {len(names)} most probable answers"
    rank = names.index(found.answer.number) + 1
    return "the most probable answer" if rank == 1 else f"answer {rank} of the list"


def _with_all_masked(found: Prediction) -> str:
    score = found.integrated.baseline_score
    return number(score) if found.answer.chance is None else share(math.exp(score))


def bar(answer: Answer) -> Html:
    """A bar whose length is the probability."""
    width = 14 * (answer.chance or 0.0)
    return Html(
        f'<span style="display: inline-block; height: .7rem; border-radius: .2rem; background: var(--series-1); '
        f'width: {width:.2f}rem; min-width: 1px"></span>'
    )


def _saliency(page: Page, found: Prediction) -> None:
    whole = found.integrated
    page.heading("Attributions of the words")
    page.tokens(found.tokens, whole.attributions.tolist(), write=_brief, marked=found.position)
    page.text(
        f"Blue words raise the score of “{found.answer.name}”, orange words lower it. The numbers are integrated "
        f"gradients: they divide the difference between {found.score} for this text ({whole.score:.3f}) and for the "
        f"text with every word masked ({whole.baseline_score:.3f}). Their sum is {whole.attributions.sum():.3f}, the "
        f"difference is {whole.difference:.3f}; the error is {abs(whole.error):.1g} with {whole.points} gradient "
        "evaluations."
    )
    with page.details("Gradient x input, for comparison") as inside:
        inside.tokens(found.tokens, found.gradient_x_input.tolist(), write=_brief, marked=found.position)
        inside.text(
            "The effect of a small change of every embedding. It is cheaper to compute, its sum has no meaning, and it "
            "misses words whose effect is saturated."
        )


def _layers(page: Page, found: Prediction) -> None:
    page.heading("Answers by layer")
    rows = [
        (
            layer.name.replace("layers.", "after layer "),
            ", ".join(answer.name for answer in layer.answers),
            layer.rank,
            share(layer.chance),
        )
        for layer in found.layers
    ]
    page.table(
        ["read", "best answers", f"rank of “{found.answer.name}”", "its probability"],
        rows,
        caption="The head is applied to the residual stream at this position after every layer. It was trained on the "
        "last layer only, so the answers of early layers are approximate.",
    )


def _attention(page: Page, found: Prediction) -> None:
    page.heading("Attention heads with the largest effect")
    page.text(
        f"Each of the {found.change_without_head.size} heads was removed once. The list shows the heads without which "
        f"{found.score} changes most, as layer.head, with their strongest links (weight times gradient). The shades "
        f"are the attention weights of {found.tokens[found.position or 0]}."
    )
    position = found.position if found.position is not None else 0
    for head in found.heads:
        links = ", ".join(f"{found.tokens[x.query]} → {found.tokens[x.key]} {x.weight:.2f}" for x in head.links)
        page.text(f"Head {head.layer}.{head.head}: {signed(head.change)} without it. {links}.")
        page.tokens(found.tokens, head.weights[position].tolist(), marked=position, largest=0.5)
    page.figure(
        lambda: removal_figure(found.change_without_head),
        "The change of the score when one head is removed. Orange: the score falls without it.",
    )
    if len(found.tokens) <= MAX_MAP_TOKENS:
        page.figure(
            lambda: maps_figure(found.heads, found.tokens),
            "Attention maps of these heads: a row is the query, a column the key.",
        )


def removal_figure(change: np.ndarray) -> Figure:
    """The change of the score without each head, [layers, heads]."""
    layers, heads = change.shape
    figure = figures.heatmap(
        change,
        rows=[f"layer {layer}" for layer in range(layers)],
        columns=[str(head) for head in range(heads)],
        xlabel="head",
        width=7.5,
        height=0.9 + 0.3 * layers,
    )
    if change.size <= 48:
        for layer, head in np.ndindex(*change.shape):
            text = signed(float(change[layer, head]))
            figure.axes[0].annotate(text, (head, layer), ha="center", va="center", fontsize=8, color=LIGHT["ink"])
    return figure


def maps_figure(heads: list[HeadEffect], tokens: list[str]) -> Figure:
    """Attention maps of several heads side by side."""
    columns = min(3, len(heads))
    rows = -(-len(heads) // columns)
    figure, axes = figures.grid(rows, columns, 9, 0.4 + rows * (2.2 + 0.075 * len(tokens)))
    for index in range(rows * columns):
        here = axes[index // columns][index % columns]
        if index >= len(heads):
            here.set_visible(False)
            continue
        head = heads[index]
        figures.heatmap(
            head.weights, rows=tokens if index % columns == 0 else [""] * len(tokens), columns=tokens, low=0, high=1,
            scale=False, title=f"{head.layer}.{head.head}", axes=here,
        )  # fmt: skip
        here.tick_params(axis="x", labelrotation=90)
    return figure


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _brief(value: float) -> str:
    """The number below a token; empty if it would round to 0."""
    return "" if abs(value) < 0.005 else signed(value)
