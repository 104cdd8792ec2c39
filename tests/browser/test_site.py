"""The documentation in a browser, opened from the disk: search works, formulas have a size, nothing goes outside."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("index", "install", "derivations/05-attention", "reference/commands", "reference/settings", "reference/models")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    return place.as_uri()


@pytest.mark.parametrize("width", [500, 1200, 1600])
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_their_width_and_ask_for_nothing(site, open_page, width, dark):
    page = open_page(width=width, dark=dark)
    for name in PAGES:
        page.goto(f"{site}/{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
    scheme = page.evaluate("document.body.dataset.mdColorScheme")
    assert scheme == ("slate" if dark else "default")
    assert page.errors == [] and page.outside == []


def test_the_search_finds_pages_without_a_server(site, open_page):
    page = open_page()
    page.goto(f"{site}/index.html")
    page.locator("input.md-search__input").press_sequentially("temperature thresholds")
    result = page.locator(".md-search-result__item a").first
    result.wait_for()
    assert page.locator(".md-search-result__item").count() > 0
    result.click()
    page.wait_for_url(lambda address: "/index.html" not in address)
    assert page.errors == [] and page.outside == []


def test_formulas_have_a_size_and_numbers_lead_to_them(site, open_page):
    page = open_page()
    page.goto(f"{site}/derivations/04-layer-norm.html")
    heights = page.eval_on_selector_all(".formula math", "all => all.map(one => one.getBoundingClientRect().height)")
    assert len(heights) > 8 and min(heights) > 12
    page.goto(f"{site}/derivations/05-attention.html")
    page.locator("article p a[href*='#f-']").first.click()
    page.wait_for_function("document.querySelector('.formula:target') !== null")


def test_a_link_of_the_tour_leads_to_the_line(site, open_page):
    page = open_page()
    page.goto(f"{site}/architecture.html")
    page.get_by_role("link", name="Pass.backward").first.click()
    page.wait_for_function("document.querySelector('a:target') !== null")
    assert "def backward" in page.evaluate("document.querySelector('a:target').closest('pre').innerText")
