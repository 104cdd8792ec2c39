"""The documentation builds without warnings, asks for nothing outside, and can be searched."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.docs.blocks import ROOT

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def site(tmp_path_factory):
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
