"""A page is one self-contained file with escaped text."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from glassbert.errors import GlassBertError, InputError
from glassbert.reports import Html, Page, figures, number, share, short
from glassbert.reports.drawing import DARK, LIGHT, SERIES

EVIL = '<script>alert("x")</script> & <img src=http://evil.example/x.png>'
VOID = {"meta", "br", "hr", "img", "link", "input", "use", "path", "image"}


class Outline(HTMLParser):
    """Collects tags, ids and links; fails on tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.links = [], [], [], []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.ids += [value for name, value in attributes if name == "id"]
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def full_page(text="words"):
    page = Page(text, text, footer=text)
    page.heading(text)
    page.text(text)
    page.facts([(text, text, text), ("loss", 4.31)])
    page.table([text, "number"], [[text, 1234567], ["b", 2.5]], caption=text)
    page.warning(text, text, text, [text])
    page.message("problem", text)
    page.good(text)
    page.code(text)
    with page.details(text) as part:
        part.text(text)
    with page.columns() as (left, right):
        left.text(text)
        right.text(text)
    return page


def test_all_elements_escape_text():
    rendered = full_page(EVIL).render()
    tags = Outline(rendered).tags
    assert "script" not in tags and "img" not in tags
    assert rendered.count("&lt;script&gt;") >= 15


def test_only_html_strings_are_markup():
    page = Page("t")
    page.table(["a"], [[Html("<b>bold</b>")], ["<b>not bold</b>"]])
    assert "<b>bold</b>" in page.body() and "&lt;b&gt;not bold" in page.body()


def test_backticks_are_code():
    page = Page("t")
    page.text("run `pip <x>` now")
    assert "run <code>pip &lt;x&gt;</code> now" in page.body()


def test_file_is_self_contained(tmp_path):
    pytest.importorskip("matplotlib")
    page = full_page()
    for _ in range(2):
        page.figure(lambda: figures.lines({"a": ([1, 2], [1, 2]), "b": ([1, 2], [2, 1])}), "caption", "what it shows")
    path = page.write(tmp_path / "deep" / "page.html")
    text = path.read_text(encoding="utf-8")
    outline = Outline(text)
    assert text.startswith("<!doctype html>") and outline.tags.count("svg") == 2
    assert all(link.startswith("#") for link in outline.links), "only links inside the page"
    assert not re.search(r"url\((?!#)|@import|<script", text)
    assert len(outline.ids) == len(set(outline.ids)), "ids must be unique"
    assert 'aria-label="what it shows"' in text
    assert [entry.name for entry in path.parent.iterdir()] == ["page.html"]


def test_number_columns_are_right_aligned():
    page = Page("t")
    page.table(["name", "count", "share", "words"], [["a", 1, "12.3 %", "1 of 2"], ["b", None, "–", "x"]])
    assert re.findall(r'<th scope="col"( class="number")?>', page.body()) == [
        "",
        ' class="number"',
        ' class="number"',
        "",
    ]


def test_row_of_another_length_is_an_error():
    with pytest.raises(InputError, match="2 headers got a row of 1"):
        Page("t").table(["a", "b"], [["only one"]])


def test_table_of_contents():
    page = Page("t")
    for name in "abcd":
        page.heading(f"Part {name}")
    anchors = re.findall(r'<a href="#(.*?)">', page.render())
    assert len(anchors) == 4 and all(f'id="{anchor}"' in page.render() for anchor in anchors)


def test_note_without_matplotlib(monkeypatch):
    monkeypatch.setattr(figures, "available", lambda: False)
    page = Page("t")
    for _ in range(2):
        page.figure(lambda: pytest.fail("drawn without matplotlib"), "caption")
    page.text("the numbers")
    assert page.body().count("pip install matplotlib") == 1 and "the numbers" in page.body()


def test_write_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(GlassBertError, match="cannot write"):
        Page("t").write(tmp_path / "file" / "page.html")


@pytest.mark.parametrize(
    ("value", "written"),
    [(1234567, "1,234,567"), (np.int64(5), "5"), (0.123456, "0.1235"), (1e-9, "1.00e-09"), (True, "yes"), (None, "–"),
     (float("nan"), "not a number"), (-0.5, "−0.5"), (123456.7, "123,457")],
)  # fmt: skip
def test_numbers(value, written):
    assert number(value) == written


def test_shares_and_sizes():
    assert [share(x) for x in (0, 1e-9, 0.0005, 0.012, 0.5, None)] == [
        "0 %",
        "< 0.001 %",
        "0.050 %",
        "1.2 %",
        "50.0 %",
        "–",
    ]
    assert [short(x) for x in (999, 1000, 53_164_000, 999_999, 1.5e9)] == ["999", "1 k", "53.2 M", "1 M", "1.5 G"]


def contrast(one, other):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colour_contrast(theme):
    for name in ("ink", "muted", "problem", "warning", "note", "good"):
        assert contrast(theme[name], theme["paper"]) >= 4.5 and contrast(theme[name], theme["card"]) >= 4.5, name
    for name in SERIES:
        assert contrast(theme[name], theme["paper"]) >= 3, name
    assert len(set(theme.values())) == len(theme), "the SVG export needs distinct colours"


def test_tokens():
    page = Page("Tokens")
    page.tokens(["<a>", "##b", "c"], [2.0, -1.0, 0.0], write=lambda x: f"{x:+.0f}", marked=2)
    html = page.body()
    assert html.count('<span class="token') == 3 and "&lt;a&gt;" in html and ">b</b>" in html
    assert 'class="token joined"' in html and 'class="token marked"' in html
    assert "rgba(36, 120, 196, 0.700)" in html and "rgba(217, 102, 26, 0.350)" in html
    assert "<small>+2</small>" in html and "<small>-1</small>" in html


def test_tokens_with_zero_values_and_with_a_given_scale():
    page = Page("Tokens")
    page.tokens(["a"], [0.0])
    page.tokens(["a"], [0.25], largest=0.5)
    assert "rgba(36, 120, 196, 0.000)" in page.body() and "rgba(36, 120, 196, 0.350)" in page.body()


def test_page_has_a_policy():
    """No script may run and nothing may be fetched, also if markup got into a page."""
    text = full_page().render()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    assert (
        "default-src 'none'" in policy
        and "script-src" not in policy
        and text.index("Content-Security") < text.index("<title")
    )


def test_percent_signs_stay_beside_their_number():
    page = Page("a")
    page.text("12.3 % of 4 k")
    page.table(["a", "b"], [["x", "45 %"]])
    assert "12.3\u00a0% of 4 k" in page.render() and "45\u00a0%" in page.render()
