"""A prediction as one HTML page: answers, shaded tokens, the way through the layers, and the heads that mattered."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from glassbert.insight.asking import Answer
from glassbert.insight.prediction import HeadSeen, Prediction
from glassbert.reports import Html, Page, figures, number, share
from glassbert.reports.drawing import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAPPED = 40  # tokens that still have room for their names beside a map


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
    chance = [] if found.answer.chance is None else [("Its chance", share(found.answer.chance), _rank(found))]
    page.facts(
        [
            ("Explained", found.answer.name, found.score),
            *chance,
            ("With every word hidden", _hidden(found), "the same text of nothing but masks"),
            ("What the words add", signed(whole.difference), "nats" if found.answer.chance is not None else "in all"),
        ]
    )
    page.heading("What the model says")
    if found.answer.chance is None:
        page.text(f"The model gives the number {found.answer.name}.")
    else:
        page.table(["answer", "chance", ""], [(a.name, share(a.chance), bar(a)) for a in found.answers])
    for place, answers in found.other_masks.items():
        words = ", ".join(f"{a.name} ({share(a.chance)})" for a in answers[:4])
        page.text(f"For the other mask, token {place + 1}: {words}.")


def _rank(found: Prediction) -> str:
    names = [one.number for one in found.answers]
    if found.answer.number not in names:
        return f"not among the {len(names)} likeliest answers"
    place = names.index(found.answer.number) + 1
    return "the likeliest answer" if place == 1 else f"answer {place} of the list"


def _hidden(found: Prediction) -> str:
    score = found.integrated.baseline_score
    return number(score) if found.answer.chance is None else share(math.exp(score))


def bar(answer: Answer) -> Html:
    """A chance as a bar of its length."""
    width = 14 * (answer.chance or 0.0)
    return Html(
        f'<span style="display: inline-block; height: .7rem; border-radius: .2rem; background: var(--series-1); '
        f'width: {width:.2f}rem; min-width: 1px"></span>'
    )


def _saliency(page: Page, found: Prediction) -> None:
    whole = found.integrated
    page.heading("Which words made it say so")
    page.tokens(found.tokens, whole.attributions.tolist(), write=_brief, marked=found.place)
    page.text(
        f"Blue words speak for “{found.answer.name}”, orange ones against it. The numbers are integrated gradients: "
        f"they share out the difference between {found.score} here ({whole.score:.3f}) and with every word hidden "
        f"({whole.baseline_score:.3f}). Their sum is {whole.attributions.sum():.3f} and the difference "
        f"{whole.difference:.3f}, so {abs(whole.error):.1g} is left over after {whole.points} points on the way."
    )
    with page.details("Gradient x input, for comparison") as inside:
        inside.tokens(found.tokens, found.gradient_x_input.tolist(), write=_brief, marked=found.place)
        inside.text(
            "What a small change of every embedding would do. It is cheaper, sums to nothing in particular, and misses "
            "words whose effect is already complete."
        )


def _layers(page: Page, found: Prediction) -> None:
    page.heading("How the answer forms")
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
        ["read", "it would say", f"rank of “{found.answer.name}”", "its chance"],
        rows,
        caption="The head reads the residual stream at this place after every layer. It was trained to read the last "
        "one, so early readings are rough.",
    )


def _attention(page: Page, found: Prediction) -> None:
    page.heading("The attention that mattered")
    page.text(
        f"Each of the {found.without.size} heads was silenced once. These are the ones without which {found.score} "
        f"changes most, as layer.head, with the links that count (weight times gradient); the shades show where "
        f"{found.tokens[found.place or 0]} looks."
    )
    place = found.place if found.place is not None else 0
    for head in found.heads:
        links = ", ".join(f"{found.tokens[x.query]} → {found.tokens[x.key]} {x.weight:.2f}" for x in head.links)
        page.text(f"Head {head.layer}.{head.head}: {signed(head.change)} without it. {links}.")
        page.tokens(found.tokens, head.weights[place].tolist(), marked=place, largest=0.5)
    page.figure(
        lambda: removal_figure(found.without),
        "Every head of the model: the change of the score if it alone is silenced. Orange: the answer needs it.",
    )
    if len(found.tokens) <= MAPPED:
        page.figure(
            lambda: maps_figure(found.heads, found.tokens),
            "The whole maps of these heads: a row is the token that looks, a column the token that is looked at.",
        )


def removal_figure(change: np.ndarray) -> Figure:
    """What becomes of a score without each head, [layers, heads]."""
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


def maps_figure(heads: list[HeadSeen], tokens: list[str]) -> Figure:
    """Attention maps of some heads side by side."""
    columns = min(3, len(heads))
    rows = -(-len(heads) // columns)
    figure, axes = figures.grid(rows, columns, 9, 0.4 + rows * (2.2 + 0.075 * len(tokens)))
    for place in range(rows * columns):
        here = axes[place // columns][place % columns]
        if place >= len(heads):
            here.set_visible(False)
            continue
        head = heads[place]
        figures.heatmap(
            head.weights, rows=tokens if place % columns == 0 else [""] * len(tokens), columns=tokens, low=0, high=1,
            scale=False, title=f"{head.layer}.{head.head}", axes=here,
        )  # fmt: skip
        here.tick_params(axis="x", labelrotation=90)
    return figure


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _brief(value: float) -> str:
    """A number under a token; nothing under those that play no part."""
    return "" if abs(value) < 0.005 else signed(value)
