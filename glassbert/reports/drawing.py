"""Style of pages and figures: colours, matplotlib settings, helpers for axes, export to SVG and PNG.

Figures are drawn with the LIGHT colours. In the SVG each colour is replaced by the page's CSS variable of that name, so
the figure follows the page into dark mode. Text stays text, in the font of the page.

The six series colours differ in hue and lightness, for readers with colour blindness. Text has a contrast of at least
4.5 on paper and cards, lines of at least 3.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import GlassBertError, needs
from glassbert.files import atomic_write
from glassbert.reports.numbers import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIGHT = {
    "paper": "#ffffff",
    "card": "#f6f5f1",
    "ink": "#1d1f24",
    "muted": "#5b606a",
    "grid": "#e4e1da",
    "line": "#d5d1c7",
    "series-1": "#0b5fa5",
    "series-2": "#d9580d",
    "series-3": "#0f8a66",
    "series-4": "#b0478f",
    "series-5": "#a37a00",
    "series-6": "#45349b",
    "problem": "#b3261e",
    "warning": "#8a5300",
    "note": "#0b5fa6",
    "good": "#0a7354",
}
DARK = {
    "paper": "#15171b",
    "card": "#1e2126",
    "ink": "#e9e7e2",
    "muted": "#a4a8b0",
    "grid": "#31353c",
    "line": "#3a3e46",
    "series-1": "#5fb2ee",
    "series-2": "#ff9457",
    "series-3": "#35b38c",
    "series-4": "#ea86c3",
    "series-5": "#e3bb4a",
    "series-6": "#a9a6ff",
    "problem": "#ff8a80",
    "warning": "#f2b24c",
    "note": "#5fb2ef",
    "good": "#3cc79d",
}
SERIES = [name for name in LIGHT if name.startswith("series-")]
MISSING = f"{needs('a figure', 'matplotlib')}. Then write the report again: glassbert report RUN."
MAX_LABEL = 28  # characters of a name in a figure
REM_PER_INCH = 7.86  # of a figure on a page: one of 7 inches has the width of the page
FONT = "DejaVu Sans"  # part of matplotlib, so the layout is the same on every machine
SETTINGS: dict[Any, Any] = {
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": LIGHT["muted"],
    "axes.labelcolor": LIGHT["muted"],
    "axes.titlecolor": LIGHT["ink"],
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 10,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "axes.formatter.use_mathtext": False,
    "grid.color": LIGHT["grid"],
    "grid.linewidth": 0.8,
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "text.color": LIGHT["ink"],
    "font.family": [FONT],
    "font.size": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "glassbert",
}


def css_variables() -> str:
    """The colours as CSS variables: LIGHT for screen and print, DARK for screens in dark mode."""
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in theme.items()) for theme in (LIGHT, DARK))
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


# ---- figures ---------------------------------------------------------------------------------------------------------


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


@contextmanager
def plot_style() -> Iterator[None]:
    """Context manager: matplotlib with the settings of this module; afterwards the user's settings are restored."""
    if not available():
        raise GlassBertError(f"no figures: {MISSING}")
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcParams.update(matplotlib.rcParamsDefault)
        matplotlib.rcParams.update(SETTINGS)
        yield


def new(width: float = 7, height: float = 3.2) -> tuple[Figure, Axes]:
    """An empty figure of this style, with sizes in inches, and its axes."""
    figure, axes = grid(1, 1, width, height)
    return figure, axes[0][0]


def grid(rows: int, columns: int, width: float = 7, height: float = 3.2, **sharing: Any) -> tuple[Figure, Any]:
    """A figure with rows x columns axes; `sharing` goes to `Figure.subplots`, such as `sharex=True`."""
    with plot_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **sharing)


# ---- axes ------------------------------------------------------------------------------------------------------------


def colour(index: int) -> str:
    """The colour of series `index`; they repeat after six."""
    return LIGHT[SERIES[index % len(SERIES)]]


def shorten(text: str, limit: int = MAX_LABEL) -> str:
    """At most `limit` characters: a long label keeps its beginning and its end."""
    end = limit // 3
    return text if len(text) <= limit else f"{text[: limit - end - 1].rstrip()}…{text[-end:].lstrip()}"


def label(text: str, limit: int = MAX_LABEL) -> str:
    """The name of a line, a bar, a row or a group in a figure: shortened, and never read as mathematics."""
    return escape_math(shorten(text, limit))


def escape_math(text: str) -> str:
    """Escape dollar signs, which matplotlib would read as mathematics."""
    return text.replace("$", r"\$")


def figure_and_axes(axes: Axes | None, width: float, height: float) -> tuple[Figure, Axes]:
    """The given axes with their figure, or a new figure."""
    if axes is None:
        return new(width, height)
    return axes.get_figure(root=True), axes  # type: ignore[return-value]


def set_labels(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Title and axis labels. The y label is written horizontally above the axis."""
    axes.set_xlabel(escape_math(xlabel))
    above = escape_math(ylabel)
    if title:
        axes.set_title(escape_math(title) + ("\n" if above else ""))
    if above:
        axes.annotate(above, (0, 1), xytext=(0, 5), xycoords="axes fraction", textcoords="offset points",
                      fontsize=8.5, color=LIGHT["muted"])  # fmt: skip


def set_scales(axes: Axes, log_x: bool, log_y: bool) -> None:
    """Linear or logarithmic axes, with tick labels as numbers (10 k) instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis, logarithmic in ((axes.xaxis, log_x), (axes.yaxis, log_y)):
        if logarithmic:
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(round(value, 10))))


def fill_log_ticks(axes: Axes) -> None:
    """More ticks on logarithmic axes that show less than two powers of ten."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() != "log":
            continue
        low, high = sorted(axis.get_view_interval())
        for locator in (LogLocator(subs=(1.0, 2.0, 5.0)), MaxNLocator(4)):
            if sum(low <= tick <= high for tick in axis.get_majorticklocs()) < 2:
                axis.set_major_locator(locator)


def is_dates(values: Any) -> bool:
    """Whether positions on an axis are dates (`datetime64`)."""
    return np.asarray(values).dtype.kind == "M"


def axis_numbers(values: Any) -> np.ndarray:
    """Positions as numbers; dates as days since 1970, as matplotlib counts them."""
    if not is_dates(values):
        return np.asarray(values, float)
    return np.asarray(values).astype("datetime64[s]").astype(float) / 86_400


def set_date_axis(axes: Axes) -> None:
    """Tick labels of dates: the year, or year and month, at every change, and short names between."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=4, maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def rotate_ticks(axes: Axes, degrees: float) -> None:
    """Slanted names on the x axis, which end at their tick."""
    for text in axes.get_xticklabels():
        text.set(rotation=degrees, horizontalalignment="right", rotation_mode="anchor")


def draw_marks(axes: Axes, marks: Mapping[str, float] | None) -> None:
    """Vertical lines with their names at the top of the axes."""
    if not marks:
        return
    if axes.get_yscale() == "linear":
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom, top + 0.12 * (top - bottom))
    for name, x in marks.items():
        axes.axvline(x, color=LIGHT["ink"], linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(label(name), (x, 1), xycoords=("data", "axes fraction"), xytext=(4, -1),
                      textcoords="offset points", va="top", fontsize=8.5)  # fmt: skip


def label_ends(figure: Figure, axes: Axes, ends: list[tuple[float, float, str, str]], apart: float = 12) -> None:
    """Names to the right of the axes at the end of each line, moved apart where they would overlap."""
    figure.draw_without_rendering()
    point = figure.dpi / 72
    heights = [(axes.transData.transform((x, y))[1], name, ink) for x, y, name, ink in ends]
    floor = -np.inf
    box = axes.get_window_extent()
    for height, name, ink in sorted(heights):
        at = max(height, floor)
        floor = at + apart * point
        beside = (1, (at - box.y0) / box.height)
        axes.annotate(label(name), beside, xycoords="axes fraction", xytext=(6, 0), textcoords="offset points",
                      va="center", fontsize=9, color=ink, annotation_clip=False)  # fmt: skip


def legend_above(axes: Axes, columns: int = 3, **options: Any) -> None:
    """A legend above the axes, where it covers no data; two lines higher if it would meet the y label."""
    handles, names = axes.get_legend_handles_labels()
    columns = min(columns, len(names))
    wide = sum(map(len, names[:columns])) > 24 or len(names) > columns
    axes.legend(
        handles, names, loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, columnspacing=1.2, handlelength=1.4,
        borderaxespad=2.2 if wide else 0.2, **options,
    )  # fmt: skip


# ---- export ----------------------------------------------------------------------------------------------------------


def to_svg(figure: Figure, alt: str = "", prefix: str = "") -> str:
    """The figure as an SVG element for a page; `prefix` makes its ids unique within the page."""
    buffer = io.StringIO()
    with plot_style():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = _edit_tags(svg, prefix)
    size = re.search(r'viewBox="[^"]*"', svg)
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {size.group()}'  # type: ignore[union-attr]
    width = figure.get_figwidth()
    # Small figures keep their size on a wide screen; on a narrow one they scroll and stay legible.
    style = f"max-width: {REM_PER_INCH * width:.4g}rem; min-width: {4 * width:.4g}rem"
    return opening + f' style="{style}" role="img" aria-label="{escape(alt)}"' + svg[svg.index(">") :]


def to_png(figure: Figure, path: str | Path, dark: bool = False, dpi: int = 160) -> Path:
    """Write the figure as a PNG file with a background, for documents that cannot contain SVG."""
    path = Path(path)
    theme = DARK if dark else LIGHT
    with plot_style(), _recoloured(figure, theme), atomic_write(path, "wb") as file:
        figure.savefig(file, format="png", dpi=dpi, facecolor=theme["paper"], metadata={"Software": None})
    return path


def _edit_tags(svg: str, prefix: str) -> str:
    """Edit the tags of an SVG and leave its texts as they are.

    Colours and font become CSS variables; ids without a reference are removed, the others get the prefix.
    """
    parts = re.split(r"(<[^>]*>)", svg)  # texts at even indices, tags at odd ones
    used = {name for tag in parts[1::2] for name in re.findall(r'(?:url\(#|href="#)([^")]+)', tag)}
    variables = {f"'{FONT}'": "var(--sans, sans-serif)"}
    variables |= {LIGHT[name]: f"var(--{name}, {LIGHT[name]})" for name in ("paper", "ink", "muted", "grid", *SERIES)}
    known = re.compile("|".join(map(re.escape, variables)))
    for index in range(1, len(parts), 2):
        tag = known.sub(lambda found: variables[found[0]], parts[index])
        tag = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", tag)
        parts[index] = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", tag)
    return "".join(parts)


@contextmanager
def _recoloured(figure: Figure, theme: dict[str, str]) -> Iterator[None]:
    """Context manager: replace the LIGHT colours of the figure by those of `theme`."""
    mapping = {LIGHT[name]: theme[name] for name in LIGHT}
    _swap_colours(figure, mapping)
    try:
        yield
    finally:
        _swap_colours(figure, {new: old for old, new in mapping.items()})


def _swap_colours(figure: Figure, table: dict[str, str]) -> None:
    from matplotlib.colors import to_hex, to_rgba

    def swap(colour: Any) -> Any:
        known = table.get(to_hex(colour))
        return colour if known is None else to_rgba(known, to_rgba(colour)[3])

    for artist in figure.findobj():
        for kind in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            getter, setter = getattr(artist, f"get_{kind}", None), getattr(artist, f"set_{kind}", None)
            if getter is None or setter is None or (kind == "color" and hasattr(artist, "get_facecolor")):
                continue
            colour = getter()
            several = getattr(colour, "ndim", 1) == 2
            if several and len(colour):
                setter([swap(one) for one in colour])
            elif not several and not (isinstance(colour, str) and colour in ("none", "auto")):
                setter(swap(colour))
