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
