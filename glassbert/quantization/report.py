"""The report of a quantisation: a page, and the rows that the terminal shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glassbert.quantization.choice import FLOAT
from glassbert.quantization.task import Compared
from glassbert.reports import figures
from glassbert.reports.page import Page

if TYPE_CHECKING:
    from glassbert.quantization.folder import Quantized

SERIES = {8: 0, 4: 1, FLOAT: 2}  # the colour of a bar by the bits that were chosen


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def with_interval(value: float, interval: tuple[float, float] | None) -> str:
    return f"{value:.4f}" if interval is None else f"{value:.4f} [{interval[0]:.4f}, {interval[1]:.4f}]"


def score_rows(compared: list[Compared]) -> list[list[str]]:
    """Metric, before, after and loss of every score."""
    return [
        [
            one.name,
            with_interval(one.before, one.before_interval),
            with_interval(one.after, one.after_interval),
            with_interval(one.loss, one.loss_interval),
        ]
        for one in compared
    ]


def cost_rows(found: Quantized) -> list[list[Any]]:
    """Matrix, shape, bits and costs, the most expensive first."""
    bits = found.bits
    fewest = found.settings.bits
    rows = []
    for one in sorted(found.costs, key=lambda one: -one.cost[fewest]):
        chosen = "float" if bits[one.name] == FLOAT else str(bits[one.name])
        costs = [f"{one.cost[number]:.2%}" for number in sorted(one.cost)]
        rows.append([one.name, " x ".join(map(str, one.shape)), chosen, *costs])
    return rows


def cost_headers(found: Quantized) -> list[str]:
    counted = sorted(found.costs[0].cost) if found.costs else []
    return ["matrix", "shape", "bits", *(f"change in {number} bits" for number in counted)]


def costs_figure(found: Quantized) -> Any:
    fewest, bits = found.settings.bits, found.bits
    return figures.bars(
        [one.name for one in found.costs],
        [one.cost[fewest] for one in found.costs],
        xlabel=f"change of the output when it alone has {fewest} bits",
        write=lambda value: f"{value:.1%}",
        series=[SERIES[bits[one.name]] for one in found.costs],
    )


def page_of(found: Quantized) -> Page:
    page = Page(f"Quantised: {found.source}", f"{found.settings.bits} bits, activations {found.settings.method}")
    page.facts(
        [
            ("smaller", f"{found.smaller:.2f}x", "parameters in memory"),
            ("before", megabytes(found.bytes_before), "float32"),
            ("after", megabytes(found.bytes_after), f"{len(found.model.quantized)} matrices quantised"),
        ]
    )
    for note in found.notes:
        page.warning(note)
    page.heading("On its own task")
    page.text(f"Measured on {found.task}. The interval is that of 95 %; the loss is measured on the same examples.")
    page.table(["score", "float", "quantised", "loss"], score_rows(found.compared))
    if found.costs:
        page.heading("What each matrix costs")
        page.text(
            "Each matrix is quantised alone. The change is that of the outputs, relative to how much they differ "
            "between examples. Colours show the bits that were chosen."
        )
        page.figure(lambda: costs_figure(found), "The change of the output by matrix, in the order of the model.")
        page.table(cost_headers(found), cost_rows(found))
    return page
