"""What lessons show: heat maps with readable numbers, bars, curves, source code. Plain HTML and SVG, light and dark."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

BLUE, ORANGE = "38, 110, 215", "224, 110, 20"  # positive and negative
LINES = ("#3d7fe0", "#e07a1f", "#2f9e5b", "#b04fc4", "#c9a227")
NUMBER = "text-align:right;font:12px ui-monospace,monospace;padding:2px 6px"
LABEL = "font:12px ui-monospace,monospace;padding:2px 6px;opacity:0.75;font-weight:normal"


class Html:
    """A piece of HTML that notebooks show as it is."""

    def __init__(self, text: str):
        self.text = text

    def _repr_html_(self) -> str:
        return self.text

    def __add__(self, other: Html) -> Html:
        return Html(self.text + other.text)


def side_by_side(*parts: Html) -> Html:
    """Several pieces in a row that wraps on a narrow screen."""
    inside = "".join(f"<div>{part.text}</div>" for part in parts)
    return Html(f'<div style="display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start">{inside}</div>')


def number(value: float, digits: int = 2) -> str:
    """A number with a fixed number of digits; tiny ones keep one digit."""
    value = float(value)
    if value != 0.0 and abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.0e}"
    return f"{value:,.{digits}f}"


def heat(
    values: Any,
    rows: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
    *,
    title: str = "",
    digits: int = 2,
    limit: float | None = None,
    name: str = "",
) -> Html:
    """A matrix as a heat map: blue above zero, orange below, every number readable. `limit` is the darkest value."""
    matrix = np.atleast_2d(np.asarray(values, np.float64))
    limit = limit or float(np.abs(matrix[np.isfinite(matrix)]).max(initial=1e-12))
    head = ""
    if columns is not None:
        cells = "".join(f'<th scope="col" style="{LABEL}">{escape(str(one))}</th>' for one in columns)
        head = f"<tr>{'<td></td>' if rows is not None else ''}{cells}</tr>"
    body = ""
    for index, row in enumerate(matrix):
        label = (
            f'<th scope="row" style="{LABEL};text-align:right">{escape(str(rows[index]))}</th>'
            if rows is not None
            else ""
        )
        cells = "".join(
            f'<td style="{NUMBER};background:rgba({BLUE if value >= 0 else ORANGE}, '
            f'{0.6 * min(1.0, abs(value) / limit) if np.isfinite(value) else 0:.3f})">{number(value, digits)}</td>'
            for value in row
        )
        body += f"<tr>{label}{cells}</tr>"
    caption = (
        f'<caption style="text-align:left;font-size:13px;padding:4px 0;white-space:nowrap">{escape(title)}</caption>'
        if title
        else ""
    )
    data = f' data-name="{escape(name)}"' if name else ""
    return Html(
        f'<div style="overflow-x:auto"><table class="glassbert-heat"{data} '
        f'style="border-collapse:collapse;width:auto;margin:4px 0">{caption}{head}{body}</table></div>'
    )


def bars(values: Mapping[str, float], *, title: str = "", digits: int = 2) -> Html:
    """Named numbers as bars."""
    largest = max((abs(value) for value in values.values()), default=1.0) or 1.0
    rows = "".join(
        f'<tr><th scope="row" style="{LABEL};text-align:right">{escape(name)}</th>'
        f'<td style="width:240px"><div style="height:12px;width:{100 * abs(value) / largest:.1f}%;'
        f'background:rgba({BLUE if value >= 0 else ORANGE}, 0.7)"></div></td>'
        f'<td style="{NUMBER}">{number(value, digits)}</td></tr>'
        for name, value in values.items()
    )
    caption = (
        f'<caption style="text-align:left;font-size:13px;padding:4px 0;white-space:nowrap">{escape(title)}</caption>'
        if title
        else ""
    )
    return Html(f'<div><table style="border-collapse:collapse;width:auto;margin:4px 0">{caption}{rows}</table></div>')


def curves(
    series: Mapping[str, tuple[Any, Any]],
    *,
    title: str = "",
    x: str = "",
    y: str = "",
    mark: float | None = None,
    width: int = 520,
    height: int = 240,
) -> Html:
    """Lines over a common axis as SVG. `mark` draws a vertical line there."""
    points = {name: (np.asarray(a, float), np.asarray(b, float)) for name, (a, b) in series.items()}
    every_x = np.concatenate([a for a, _ in points.values()])
    every_y = np.concatenate([b for _, b in points.values()])
    low, high = float(np.nanmin(every_y)), float(np.nanmax(every_y))
    left, right = float(every_x.min()), float(every_x.max())
    low, high = (low, high) if high > low else (low - 1.0, high + 1.0)
    right = right if right > left else left + 1.0
    pad, top = 54, 26

    def place(a: Any, b: Any) -> tuple[Any, Any]:
        return (
            pad + (a - left) / (right - left) * (width - pad - 12),
            top + (high - b) / (high - low) * (height - top - 38),
        )

    lines = legend = ""
    for index, (name, (a, b)) in enumerate(points.items()):
        colour = LINES[index % len(LINES)]
        keep = np.isfinite(b)
        drawn = " ".join(f"{p:.1f},{q:.1f}" for p, q in zip(*place(a[keep], b[keep]), strict=True))
        lines += f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
        legend += f'<span style="color:{colour};margin-right:14px">━ {escape(name)}</span>'
    frame = ""
    for value in np.linspace(low, high, 4):
        height_at = place(left, value)[1]
        frame += (
            f'<line x1="{pad}" x2="{width - 12}" y1="{height_at:.1f}" y2="{height_at:.1f}" stroke="currentColor" '
            f'opacity="0.15"/><text x="{pad - 6}" y="{height_at + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        )
    for value in np.linspace(left, right, 5):
        frame += f'<text x="{place(value, low)[0]:.1f}" y="{height - 20}" text-anchor="middle">{value:.4g}</text>'
    if mark is not None:
        at = place(mark, low)[0]
        frame += (
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{height - 38}" stroke="currentColor" opacity="0.5" '
            'stroke-dasharray="4 3"/>'
        )
    return Html(
        f'<figure style="margin:4px 0;max-width:{width}px">'
        f'<figcaption style="font-size:13px">{escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}" style="width:100%;color:inherit" '
        f'font-size="11" fill="currentColor">{frame}{lines}<text x="{pad}" y="14">{escape(y)}</text>'
        f'<text x="{width - 12}" y="{height - 4}" text-anchor="end">{escape(x)}</text></svg>'
        f'<div style="font-size:12px">{legend}</div></figure>'
    )


def where(function: Callable[..., Any]) -> str:
    """The file and line of a function of the package, read from the code that is installed."""
    function = inspect.unwrap(function)
    path = Path(inspect.getsourcefile(function) or "").resolve()
    package = Path(__file__).resolve().parents[1]
    return f"glassbert/{path.relative_to(package).as_posix()}, line {inspect.getsourcelines(function)[1]}"


def source(*functions: Callable[..., Any]) -> Html:
    """The code of functions of the package, with file and line."""
    parts = ""
    for function in functions:
        code = inspect.getsource(inspect.unwrap(function)).rstrip()
        parts += (
            f'<div style="font-size:13px;opacity:0.8">{escape(where(function))}</div><pre style="overflow-x:auto;'
            f'font-size:12px;padding:8px;border:1px solid rgba(128,128,128,0.3);margin:4px 0">{escape(code)}</pre>'
        )
    return Html(parts)


def became(*names: str) -> Html:
    """What the exercises of these names became in the package: file, line and code."""
    from glassbert.learn.exercise import get_exercise

    return source(*dict.fromkeys(get_exercise(name).library for name in names))


def task(name: str) -> Html:
    """The statement of an exercise; of a planted fault also its code, with line numbers."""
    from glassbert.learn.exercise import get_exercise

    exercise = get_exercise(name)
    text = f"<strong>Exercise {escape(name)}</strong><pre style='font-size:12px;white-space:pre-wrap'>"
    text += escape(exercise.statement) + "</pre>"
    if exercise.fault is not None:
        lines = exercise.faulty_source.rstrip().splitlines()
        numbered = "\n".join(f"{index:2}  {line}" for index, line in enumerate(lines, 1))
        text += f"<pre style='overflow-x:auto;font-size:12px'>{escape(numbered)}</pre>"
    return Html(f'<div style="border:1px solid rgba(128,128,128,0.35);padding:8px 12px;margin:6px 0">{text}</div>')


def answer(choice: Any, right: str, explanation: str) -> Html:
    """The answer to a prediction; folded away until something was chosen."""
    value = getattr(choice, "value", choice)
    if value is None:
        return Html(
            '<details class="glassbert-answer"><summary style="opacity:0.7">Choose first. Or open the answer.</summary>'
            f"<strong>{escape(right)}.</strong> {explanation}</details>"
        )
    word = "Yes." if value == right else f"No: {right}."
    return Html(f'<div class="glassbert-answer"><strong>{escape(word)}</strong> {explanation}</div>')
