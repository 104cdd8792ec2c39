"""The documentation builds without warnings, asks for nothing outside, and can be searched."""

import json
import os
import posixpath
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from glassbert.learn.course import LESSONS
from tests.docs.blocks import ROOT

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site that `make docs` has just built, or else a new one."""
    if "GLASSBERT_SITE" in os.environ:
        return Path(os.environ["GLASSBERT_SITE"])
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr[-4000:]
    return place


def html(site):
    return {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}


def test_no_page_asks_for_anything_outside(site):
    loads = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|@import|<link\b[^>]*\bhref=[\"']?https?://"
    )
    found = {name: match[0] for name, page in html(site).items() if (match := loads.search(page))}
    assert not found
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not any(re.search(r"url\([\"']?(?:https?:)?//", style) for style in styles)


def test_the_search_knows_the_pages(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    locations = {entry["location"] for entry in index["docs"]}
    for wanted in (
        "reference/commands.html#glassbert-pretrain",
        "troubleshooting.html",
        "derivations/04-layer-norm.html",
    ):
        assert wanted in locations
    assert (site / "search" / "search_index.js").exists()  # for pages that are opened from the disk
    assert not any(location.startswith("source/") for location in locations)


def test_formulas_are_drawn_and_numbered(site):
    page = html(site)["derivations/04-layer-norm.html"]
    assert page.count("<math") > 40 and 'id="f-4-7"' in page
    prose = re.sub(r"<pre.*?</pre>|<code.*?</code>|<script.*?</script>", "", page, flags=re.S)
    assert "$" not in prose


def test_every_lesson_is_a_page_with_the_results_of_a_run(site):
    pages = html(site)
    for lesson in LESSONS:
        page = pages[f"learn/lesson-{lesson.number:02}.html"]
        assert "<marimo-" not in page and "Traceback" not in page and f"glassbert learn {lesson.number}" in page
        assert page.count('class="lesson-output"') >= 8, lesson.title
        assert page.count('class="glassbert-heat"') + page.count("<svg viewBox") >= 1, lesson.title
        assert ('class="glassbert-verdict"' in page) == bool(lesson.exercises)
        if lesson.exercises:
            assert "<legend>Predict." in page and '<input type="range"' in page


def test_references_are_made(site):
    pages = html(site)
    assert "--learning-rate" in pages["reference/commands.html"]
    assert "learning_rate" in pages["reference/settings.html"]
    assert pages["reference/operations.html"].count("_backward") > 30
    assert 'id="L-273"' in pages["source/glassbert/models/model.html"]


def test_links_of_the_line_by_line_page_lead_to_pages(site):
    page = html(site)["minibert.html"]
    for target in re.findall(r'href="([^"#]+)', page):
        assert (site / target).exists(), target


def test_every_link_leads_to_a_page_and_a_place_in_it(site):
    pages = html(site)
    places = {name: set(re.findall(r'\bid="([^"]+)"', page)) for name, page in pages.items()}
    wrong = set()
    for name, page in pages.items():
        for target in re.findall(r'<a\b[^>]*\bhref="([^"]+)"', page):
            if re.match(r"[a-z]+:", target) or name == "404.html":
                continue
            path, _, place = target.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            path = f"{path}/index.html" if path in (".", "derivations") else path
            if not (site / path).exists() or (place and path in places and unquote(place) not in places[path]):
                wrong.add(f"{name} links to {target}")
    assert not wrong, "\n".join(sorted(wrong)[:30])
