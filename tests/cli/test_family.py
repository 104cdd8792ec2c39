"""`glassbert family`: all members, one of them, and the generated page."""

import importlib.util
import json
from pathlib import Path

import pytest
from rich.console import Console

from glassbert.checkpoints.family import FAMILIES
from glassbert.cli import family
from glassbert.errors import ConfigError
from glassbert.evaluation.family import member, members, reference_scheme, scheme
from glassbert.evaluation.family_page import attention_maps, draw, page, svg_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
MEMBERS = [name for name, one in FAMILIES.items() if one.mini]


def shown(function, *arguments):
    console = Console(width=100)
    with console.capture() as capture:
        function(console, *arguments)
    return capture.get()


def test_every_member_is_in_the_table(capsys):
    text = shown(family.show_all, members())
    for name in MEMBERS:
        assert FAMILIES[name].title in text and name in text
    family.run(None, as_json=True, output=None)
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["name"] == "bert" and {row["name"] for row in rows} == set(MEMBERS)
    assert all(row["base"]["parameters"] > row["mini"]["parameters"] for row in rows)


@pytest.mark.parametrize("name", MEMBERS)
def test_one_member_with_its_formulas(name):
    text = shown(family.show_one, member(name))
    one = FAMILIES[name]
    assert one.title in text and one.formulas.splitlines()[0].split()[0] in text
    assert all(aspect in text for aspect in one.differences)
    assert f"pretrain --family {name}" in text


def test_the_command_that_trains_a_member_names_what_it_needs():
    assert "pretrain --family distilbert --teacher FOLDER --minutes 5" in shown(family.show_one, member("distilbert"))
    assert "pretrain --family albert --minutes 5" in shown(family.show_one, member("albert"))


def test_numbers_of_albert_and_bert():
    bert, albert = member("bert"), member("ALBERT")
    assert bert.base.preset == "bert-base" and bert.base.parameters == 109_514_298
    assert albert.base.parameters == 11_813_810
    assert albert.base.flops_per_token == pytest.approx(bert.base.flops_per_token, rel=0.05)


def test_an_unknown_member():
    with pytest.raises(ConfigError, match="unknown member of the family 'albrt'; did you mean 'albert'"):
        member("albrt")


def test_what_is_shared_with_bert_is_not_marked_as_different():
    bert, mpnet = reference_scheme(), scheme(FAMILIES["mpnet"])
    assert {part for part in bert if bert[part] != mpnet[part]} == {"embeddings", "positions", "pretraining"}


def test_the_page_is_up_to_date():
    """If it is not: glassbert family -o docs/family.md"""
    assert (DOCS / "family.md").read_text(encoding="utf-8") == page(members())
    assert {path.stem for path in (DOCS / "family").glob("*.svg")} == set(MEMBERS)


@pytest.mark.parametrize("name", MEMBERS)
def test_who_attends_to_whom(name):
    """Every row of a map is a distribution over the tokens."""
    one = FAMILIES[name]
    for weights in attention_maps(one.presets[one.mini]):
        assert weights.ndim == 2 and weights.sum(-1) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_are_the_same_every_time():
    one = member("albert")
    assert svg_of(draw(one)) == svg_of(draw(one))
