"""The page of a clustering: a picture of the texts, a table of the groups, and their most central texts."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glassbert.files import atomic_write
from glassbert.reports import figures
from glassbert.reports.drawing import LIGHT, plot_style, set_labels
from glassbert.reports.page import Page
from glassbert.search.clusters import NONE, Clustering

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE, TABLE = "report.html", "clusters.csv"
MARKERS = "osD^vP"  # the six colours repeat with another marker
CENTRAL, LONGEST = 8, 240  # texts of a group on the page, and characters of a text


def write_clustering(folder: str | Path, found: Clustering, source: str, model: str, method: str) -> Path:
    """Write report.html and clusters.csv into a folder; returns the page."""
    folder = Path(folder)
    with atomic_write(folder / TABLE) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["text", "cluster", "closeness"])
        for text, number, closeness in zip(found.texts, found.numbers, found.closeness, strict=True):
            table.writerow([text, "" if number == NONE else int(number), "" if number == NONE else f"{closeness:.4f}"])
    return make_page(found, source, model, method).write(folder / PAGE)


def make_page(found: Clustering, source: str, model: str, method: str) -> Page:
    page = Page(f"Groups of texts in {source}", f"{method} on vectors of {model}")
    left = int((found.numbers == NONE).sum())
    page.facts(
        [
            ("texts", f"{len(found.texts):,}"),
            ("groups", str(len(found.clusters)), "chosen by the silhouette" if found.tried else ""),
            ("silhouette", f"{found.silhouette:.3f}", "1: far apart, 0: touching"),
            *([("in no group", f"{left:,}", f"{left / len(found.texts):.0%} of the texts")] if left else []),
        ]
    )
    if found.silhouette < 0.1:
        page.message(
            "note",
            "The groups touch each other: the silhouette is below 0.1. Other borders would be about as good.",
            remedy="A model that was trained for embeddings, such as one fine-tuned with `--head embedding`, separates "
            "subjects better than one that was trained to predict words.",
        )
    sampled = (
        f" {len(found.shown):,} of {len(found.texts):,} texts are drawn." if len(found.shown) < len(found.texts) else ""
    )
    page.figure(
        lambda: draw(found),
        f"Every point is a text, projected by {found.picture}. A number stands in the middle of its group. Groups that "
        f"overlap here may be apart in the dimensions that are not drawn.{sampled}",
        alt=f"Scatter plot of {len(found.shown):,} texts in {len(found.clusters)} groups",
    )
    page.heading("Groups")
    page.table(
        ["group", "characteristic words", "texts", "share", "silhouette", "most central text"],
        [
            [
                f"{one.number}", one.name, f"{len(one.rows):,}", f"{len(one.rows) / len(found.texts):.0%}",
                f"{one.silhouette:.3f}", shorten(found.texts[one.rows[0]], 90),
            ]
            for one in found.clusters
        ],
    )  # fmt: skip
    if found.tried:
        page.heading("How many groups")
        page.figure(
            lambda: figures.lines(
                {"silhouette": (list(found.tried), list(found.tried.values()))},
                xlabel="number of groups",
                ylabel="silhouette",
            ),
            "The silhouette of every number of groups that was tried; the best one was taken.",
        )
    page.heading("Texts")
    for one in found.clusters:
        with page.details(f"{one.number} · {one.name} ({len(one.rows):,} texts)") as part:
            part.table(
                ["closeness", "text"],
                [[f"{found.closeness[row]:.3f}", shorten(found.texts[row], LONGEST)] for row in one.rows[:CENTRAL]],
            )
    return page


def shorten(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def draw(found: Clustering) -> Figure:
    """The points of the texts in the colours of their groups, with the number of each group in its middle."""
    figure, axes = figures.new(7, 4.8)
    numbers = found.numbers[found.shown]
    with plot_style():
        none = found.points[numbers == NONE]
        if len(none):
            axes.scatter(none[:, 0], none[:, 1], s=8, color=LIGHT["line"], linewidths=0)
        for index, one in enumerate(found.clusters):
            points = found.points[numbers == one.number]
            if not len(points):
                continue
            marker = MARKERS[(index // 6) % len(MARKERS)]
            axes.scatter(
                points[:, 0], points[:, 1], s=12, marker=marker, color=figures.colour(index), alpha=0.6, linewidths=0
            )
        for one in found.clusters:
            points = found.points[numbers == one.number]
            if len(points):
                box = {
                    "boxstyle": "circle,pad=0.25",
                    "facecolor": LIGHT["paper"],
                    "edgecolor": LIGHT["muted"],
                    "lw": 0.8,
                }
                middle = np.median(points, axis=0)
                axes.annotate(str(one.number), middle, ha="center", va="center", fontsize=9, weight="bold", bbox=box)
        axes.set_xticks([])
        axes.set_yticks([])
        set_labels(axes, "", "", "")
    return figure
