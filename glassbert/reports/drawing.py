"""How the house draws: matplotlib's settings, new figures, and their way into a page or a file.

A figure is drawn in the light palette. In its SVG each of those colours is replaced by the page's variable of that
name, so the same picture turns dark with the page around it; the text stays text, in the page's own font.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassbert.errors import GlassBertError
from glassbert.files import replacing
from glassbert.reports.palette import DARK, LIGHT, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MISSING = 'they need matplotlib. Run `pip install "glassbert[plots]"` and write the report again.'
FONT = "DejaVu Sans"  # comes with matplotlib, so that a picture is laid out alike on every machine
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


def available() -> bool:
    return find_spec("matplotlib") is not None


@contextmanager
def house_style() -> Iterator[None]:
    """Inside, matplotlib draws as we do; outside, the user's own settings stay as they were."""
    if not available():
        raise GlassBertError(f"no pictures: {MISSING}")
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcParams.update(matplotlib.rcParamsDefault)
        matplotlib.rcParams.update(SETTINGS)
        yield


def new(width: float = 7, height: float = 3.2) -> tuple[Figure, Axes]:
    """An empty figure in the house style, in inches, and its one pair of axes."""
    figure, axes = grid(1, 1, width, height)
    return figure, axes[0][0]


def grid(rows: int, columns: int, width: float = 7, height: float = 3.2, **sharing: Any) -> tuple[Figure, Any]:
    """A figure of rows x columns pictures; `sharex=True` and the like as matplotlib has them."""
    with house_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **sharing)


def to_svg(figure: Figure, alt: str = "", prefix: str = "") -> str:
    """The figure as an SVG element to put into a page; `prefix` keeps its ids apart from those of other figures."""
    buffer = io.StringIO()
    with house_style():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace(f"'{FONT}'", "var(--sans, sans-serif)")
    for name in ("paper", "ink", "muted", "grid", *SERIES):
        svg = svg.replace(LIGHT[name], f"var(--{name}, {LIGHT[name]})")
    svg = _keep_used_ids(svg, prefix)
    size = re.search(r'viewBox="[^"]*"', svg)
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {size.group()}'  # type: ignore[union-attr]
    least = (
        f"min-width: {5 * figure.get_figwidth():g}rem"  # on a narrow screen it scrolls instead of becoming illegible
    )
    return opening + f' style="{least}" role="img" aria-label="{escape(alt)}"' + svg[svg.index(">") :]


def to_png(figure: Figure, path: str | Path, dark: bool = False, dpi: int = 160) -> Path:
    """The figure as a PNG file on its own paper, for documents that cannot hold an SVG."""
    path = Path(path)
    theme = DARK if dark else LIGHT
    with house_style(), _recoloured(figure, theme), replacing(path, "wb") as file:
        figure.savefig(file, format="png", dpi=dpi, facecolor=theme["paper"], metadata={"Software": None})
    return path


def _keep_used_ids(svg: str, prefix: str) -> str:
    """Only ids that something refers to stay, made unique by the prefix: a page holds many figures."""
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", svg)


@contextmanager
def _recoloured(figure: Figure, theme: dict[str, str]) -> Iterator[None]:
    """For a while, everything drawn in the light palette is drawn in another."""
    there = {LIGHT[name]: theme[name] for name in LIGHT}
    _swap_colours(figure, there)
    try:
        yield
    finally:
        _swap_colours(figure, {new: old for old, new in there.items()})


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
