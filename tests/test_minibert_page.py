"""docs/minibert.html: made from minibert.py and the prose beside it, complete, self-contained and up to date."""

import html
import importlib.util
import re
from pathlib import Path

import pytest

from tests.test_derivations import FORMULAS

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "minibert.py").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def build():
    spec = importlib.util.spec_from_file_location("build_minibert_page", ROOT / "docs" / "minibert" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(build):
    assert build.PAGE.read_text(encoding="utf-8") == build.page(), "run `python docs/minibert/build.py`"


def test_every_line_is_on_the_page_once_and_in_order(build):
    found = re.findall(r'id="L(\d+)".*?<span class="text"[^>]*>(.*?)</span></span>', build.page())
    shown = {int(number): html.unescape(re.sub(r"</?i[^>]*>", "", text)) for number, text in found}
    assert len(shown) == len(found) and list(shown) == sorted(shown)
    assert all(shown[number] == LINES[number - 1] for number in shown)
    assert all(not line.strip() for number, line in enumerate(LINES, 1) if number not in shown)


def test_every_function_has_prose(build):
    for section in build.sections():
        assert len(section.prose.split()) >= 8, section.title


def test_prose_and_code_cannot_drift_apart(build, monkeypatch, tmp_path):
    changed = tmp_path / "minibert.py"
    changed.write_text("\n".join(LINES).replace("def softmax(", "def soft_max("), encoding="utf-8")
    monkeypatch.setattr(build, "SOURCE", changed)
    with pytest.raises(ValueError, match=r"the prose names 'softmax' where minibert\.py has 'soft_max'"):
        build.page()


def test_the_page_loads_nothing_and_its_links_lead_somewhere(build):
    page = build.page()
    assert not re.search(r"https?:|<script|@import|url\(|\ssrc=", page)
    ids = set(re.findall(r'id="([^"]+)"', page))
    for target in re.findall(r'href="([^"]+)"', page):
        assert target[1:] in ids if target.startswith("#") else (build.PAGE.parent / target).exists(), target
    named = [
        (chapter, number)
        for chapter, text in re.findall(r'<a href="derivations/([\w-]+\.md)">([^<]+)</a>', page)
        for number in re.findall(r"\((\d+\.\d+)\)", text)
    ]
    assert len(named) >= 10 and all(FORMULAS[number][0] == chapter for chapter, number in named)
