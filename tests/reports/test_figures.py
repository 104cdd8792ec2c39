"""Figures: reproducible output, colours of the page, errors for bad input."""

import itertools
import re

import numpy as np
import pytest

from glassbert.errors import GlassBertError, InputError
from glassbert.reports import drawing, figures
from glassbert.reports.drawing import DARK, LIGHT

pytest.importorskip("matplotlib")

STEPS = np.arange(1, 30)
DRAWINGS = {
    "lines": lambda: figures.lines(
        {"a": figures.Series(STEPS, 1 / STEPS, 0.9 / STEPS, 1.1 / STEPS), "b": (STEPS, STEPS), "_raw": (STEPS, STEPS)},
        xlabel="step", ylabel="loss", title="Loss", log_x=True, log_y=True, marks={"here": 5},
    ),
    "histogram": lambda: figures.histogram([1, 5, 2], [0, 1, 2, 3], xlabel="tokens", marks={"median": 1.5}),
    "bars": lambda: figures.bars(["a", "$b$", "<c>"], [1, 2, 3], low=[0.5, 1, 2], high=[1.5, 3, 4]),
    "heatmap": lambda: figures.heatmap(np.eye(4) - 0.2, rows=list("abcd"), columns=["one", "two", "three", "four"]),
    "scatter": lambda: figures.scatter({"x": ([1, 2], [3, 4]), "y": ([1], [1])}, labels={"king": (1, 3)}),
}  # fmt: skip


@pytest.fixture(params=DRAWINGS)
def draw(request):
    return DRAWINGS[request.param]


def test_svg_is_reproducible(draw):
    assert figures.to_svg(draw()) == figures.to_svg(draw())


def test_svg_uses_colours_and_font_of_the_page(draw):
    svg = figures.to_svg(draw(), 'an "alternative" text', prefix="figure-7-")
    assert svg.startswith("<svg") and 'aria-label="an &quot;alternative&quot; text"' in svg
    assert "var(--muted, #5b606a)" in svg and "var(--sans" in svg and "DejaVu" not in svg
    bare = re.sub(r"var\(--[a-z0-9-]+, #[0-9a-f]{6}\)", "", svg)
    bare = re.sub(r'"data:image[^"]*"', "", bare)
    left = set(re.findall(r"#[0-9a-f]{6}\b", bare)) - {"#000000"}
    assert not left, "colours that are not CSS variables"
    assert all(found.startswith("figure-7-") for found in re.findall(r' id="([^"]*)"', svg))
    assert all(found.startswith("figure-7-") for found in re.findall(r"url\(#([^)]*)\)", svg))
    assert not re.search(r"\d{4}-\d\d-\d\dT", svg), "no date"


def test_png_in_light_and_dark(draw, tmp_path):
    from matplotlib import image

    figure = draw()
    colours = re.findall(r"var\([^)]*\)", figures.to_svg(figure))
    corners = {}
    for dark in (False, True):
        pixels = image.imread(figures.to_png(figure, tmp_path / f"{dark}.png", dark=dark, dpi=50))
        corners[dark] = "#" + "".join(f"{round(255 * part):02x}" for part in pixels[0, 0, :3])
    assert corners == {False: LIGHT["paper"], True: DARK["paper"]}
    assert re.findall(r"var\([^)]*\)", figures.to_svg(figure)) == colours, "the colours of the figure are restored"


def test_dark_png_has_light_text(tmp_path):
    from matplotlib import image

    path = figures.to_png(figures.lines({"a": ([1, 2], [1, 2])}, xlabel="x"), tmp_path / "a.png", dark=True, dpi=50)
    brightness = image.imread(path)[..., :3].mean(-1)
    assert brightness.max() > 0.6 and brightness.min() < 0.12


def test_user_settings_are_restored(tmp_path):
    import matplotlib

    with matplotlib.rc_context({"lines.linewidth": 7.0}):
        figures.to_svg(DRAWINGS["lines"]())
        assert matplotlib.rcParams["lines.linewidth"] == 7.0


def test_labels_at_line_ends_do_not_overlap():
    figure = figures.lines({f"line {i}": ([0, 1], [0, 1 + i / 1000]) for i in range(4)})
    figure.draw_without_rendering()
    texts = [text for text in figure.axes[0].texts if text.get_text().startswith("line")]
    boxes = sorted((box.y0, box.y1) for box in (text.get_window_extent() for text in texts))
    assert len(boxes) == 4
    assert all(below[1] <= above[0] + 1 for below, above in itertools.pairwise(boxes))


def test_draw_into_given_axes():
    figure, axes = figures.grid(1, 2)
    figures.lines({"a": ([1, 2], [1, 2])}, axes=axes[0][0])
    assert figures.bars(["a"], [1], axes=axes[0][1]) is figure


def test_bad_input():
    with pytest.raises(InputError, match="3 counts need 4 edges"):
        figures.histogram([1, 2, 3], [0, 1, 2])
    with pytest.raises(InputError, match="2 names for 1 bars"):
        figures.bars(["a", "b"], [1])
    with pytest.raises(InputError, match="'a' has 2 positions and 3 values"):
        figures.lines({"a": ([1, 2], [1, 2, 3])})


def test_error_without_matplotlib(monkeypatch):
    monkeypatch.setattr(drawing, "available", lambda: False)
    with pytest.raises(GlassBertError, match=r"pip install matplotlib"):
        figures.new()


def texts_of(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_texts_of_a_figure_are_not_edited():
    """Colours, fonts and ids are replaced in tags only, never in what the figure says."""
    evil = ['#0b5fa5 is a "blue"', "'DejaVu Sans'", "url(#clip) <!-- no --> id=", "href=x > y & z"]
    svg = figures.to_svg(figures.bars(evil, [1, 2, 3, 4]), prefix="figure-1-")
    found = [text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip() for text in texts_of(svg)]
    assert [text for text in found if text in evil] == evil
    assert "fill: #0b5fa5" not in svg


def test_long_labels_are_shortened_in_every_chart():
    long, other = (
        "a very long name of a label that goes on and on: one",
        "a very long name of a label that goes on and on: two",
    )
    assert len(drawing.shorten(long)) <= drawing.MAX_LABEL and drawing.shorten("short") == "short"
    assert drawing.shorten(long) != drawing.shorten(other)  # the end is kept
    drawn = {
        "lines": figures.lines({long: ([1, 2], [1, 2]), other: ([1, 2], [2, 1])}, marks={long: 1}),
        "bars": figures.bars([long, other], [1, 2]),
        "heatmap": figures.heatmap(np.eye(2), rows=[long, other], columns=[long, other]),
        "scatter": figures.scatter({long: ([1], [1]), other: ([2], [2])}, labels={long: (1, 1)}),
    }
    for name, figure in drawn.items():
        shown = texts_of(figures.to_svg(figure))
        assert all(len(text) <= drawing.MAX_LABEL for text in shown), name
        assert any("…" in text for text in shown), name


def test_legends_are_outside_the_axes():
    figure = figures.scatter({"first": ([0, 1], [0, 1]), "second": ([0, 1], [1, 0])}, ylabel="height")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    legend, box = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert legend.y0 >= box.y1 - 1 and legend.y1 <= figure.bbox.y1 + 1


def test_dates_on_an_axis():
    months = np.array([f"{1950 + i // 12}-{i % 12 + 1:02d}-01" for i in range(48)], "datetime64[s]")
    figure = figures.lines({"a": (months, np.arange(48.0))}, marks={"now": months[30]})
    shown = texts_of(figures.to_svg(figure))
    assert {"1950", "1951", "1952", "1953"} <= {text.strip() for text in shown} and "now" in shown
    hours = np.datetime64("2020-01-01T00:00:00") + np.arange(48).astype("timedelta64[h]")
    assert any("Jan" in text for text in texts_of(figures.to_svg(figures.lines({"a": (hours, np.arange(48.0))}))))


def test_logarithmic_axes_have_ticks_within_a_decade():
    for low, high in ((114, 155), (20, 80), (1, 5000)):
        figure = figures.histogram([1, 2], [low, (low + high) / 2, high], log_x=True)
        figure.draw_without_rendering()
        axis = figure.axes[0].xaxis
        left, right = axis.get_view_interval()
        shown = [text.get_text() for text, tick in zip(axis.get_ticklabels(), axis.get_majorticklocs(), strict=True)
                 if left <= tick <= right and text.get_text()]  # fmt: skip
        assert len(shown) >= 2, (low, high)


def test_size_on_the_page():
    """A figure is never larger than it was drawn, and one of 7 inches fills the page."""
    svg = figures.to_svg(figures.lines({"a": ([1, 2], [1, 2])}, width=3.5))
    assert "max-width: 27.51rem" in svg and "min-width: 14rem" in svg
