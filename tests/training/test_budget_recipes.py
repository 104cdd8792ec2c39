"""Recipes choose by budget, record what they chose, and give way to flags."""

import itertools

import pytest

from glassbert.errors import TrainingError
from glassbert.families.factory import create_model
from glassbert.training.budget_recipes import NEWEST, RECIPES, choose, left_out
from glassbert.training.recipes import config_for
from glassbert.training.settings import TrainingSettings

LIMIT = 4_600_000


@pytest.mark.parametrize("name", RECIPES)
def test_budgets_rise_and_models_stay_within_the_limit(name):
    rungs = RECIPES[name]
    assert rungs[0].operations == rungs[0].tokens == 0
    for smaller, larger in itertools.pairwise(rungs):
        assert smaller.operations < larger.operations and smaller.tokens < larger.tokens
        assert larger.parts
    for rung in rungs:
        settings = TrainingSettings.from_dict({**rung.settings, **rung.model})
        config = config_for(settings, settings.vocab_size, 0)
        model = create_model("bert_with_head", head="mlm", config=config, engine="numpy", initialize=False)
        assert model.num_parameters <= LIMIT


@pytest.mark.parametrize(("budget", "operations", "layers"), [
    ({"minutes": 5}, 3e13, 3), ({"minutes": 30}, 2e14, 3), ({"minutes": 15}, 4e16, 9),
    ({"tokens": 10**9}, 0, 9), ({"steps": 50}, 0, 3),
])  # fmt: skip
def test_shape_follows_from_the_budget(budget, operations, layers):
    choice = choose("small-best", budget, lambda seconds: operations)
    assert choice.name == NEWEST["small-best"]
    assert choice.model["num_hidden_layers"] == layers


def test_flags_override_and_saved_settings_stay():
    settings = TrainingSettings.from_dict({"recipe": "small-best", "steps": 10, "hidden_size": 96, "batch": 16})
    assert (settings.model["hidden_size"], settings.batch, settings.recipe) == (96, 16, "small-best-1")
    assert settings.model["positions"] == "rotary"
    assert TrainingSettings.from_dict(settings.to_dict()) == settings


@pytest.mark.parametrize(("reason", "expected"), [("", "bfloat16"), ("oneDNN is not installed", "float32")])
def test_precision_follows_from_the_machine_unless_it_is_given(monkeypatch, reason, expected):
    monkeypatch.setattr("glassbert.engines.onednn.why_not", lambda: reason)
    recipe = {"recipe": "small-best", "steps": 10, "engine": "numpy"}
    assert TrainingSettings.from_dict(recipe).precision == expected
    assert TrainingSettings.from_dict({**recipe, "precision": "float32"}).precision == "float32"
    assert TrainingSettings.from_dict({"preset": "mini", "steps": 10}).precision == "float32"


def test_what_a_small_budget_leaves_out_is_named():
    small, large = RECIPES["small-best-1"][0], RECIPES["small-best-1"][-1]
    notes = left_out("small-best-1", small.model)
    assert len(notes) == len(RECIPES["small-best-1"]) - 1
    assert "rows of 512 at the end" in notes[-1]
    assert left_out("small-best-1", large.model) == []


@pytest.mark.parametrize(("given", "match"), [
    ({"recipe": "small-bset", "steps": 3}, "did you mean 'small-best"),
    ({"recipe": "small-best", "preset": "larger", "steps": 3}, "does not go with --preset"),
    ({"recipe": "small-best", "size": 4, "steps": 3}, "does not go with --size"),
])  # fmt: skip
def test_bad_input(given, match):
    with pytest.raises(TrainingError, match=match):
        TrainingSettings.from_dict(given)
