"""A family in one file needs no change in any other: it trains, saves, opens, is described and is checked."""

import sys
from importlib import import_module

import numpy as np
import pytest

import glassbert
from glassbert import FAMILIES, POSITIONS, AdamW, Model, TrainingStep
from glassbert.errors import ConfigError
from glassbert.proof.model_cases import MLM_LABELS, PADDED, ModelSetup, model_fixture
from glassbert.proof.referee import check_case

IDS = np.random.default_rng(0).integers(1, 50, (6, 9))
MASK = (np.arange(9) < np.array([9, 7, 9, 3, 1, 9])[:, None]).astype(int)
LABELS = np.where(np.arange(9) % 3 == 0, IDS, -100)


@pytest.fixture(autouse=True)
def toy():
    """The family is registered for these tests alone."""
    tables = (POSITIONS, FAMILIES)
    before = [dict(table._entries) for table in tables]
    sys.modules.pop("tests.models.toy_family", None)
    yield import_module("tests.models.toy_family")
    for table, entries in zip(tables, before, strict=True):
        table._entries = entries


def test_its_layers_share_one_set_of_parameters(toy):
    model = Model(toy.TINY, "mlm", engine="numpy", threads=2)
    assert not any(name.startswith("layers.1.") for name in model.parameters)
    assert model.parameters["embeddings.token"].shape == (50, 8)
    assert model.parameters["positions.table"].shape == (7, 2)
    _, cache = model.forward(IDS, MASK, trace=True)
    assert cache["layers.2.ffn.hidden"].shape == (6, 9, 24)
    assert model.layers[2].parameters["ffn.up.weight"] is model.parameters["layers.0.ffn.up.weight"]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_its_gradients_are_right(toy, checkpointing):
    config = toy.ToyConfig(
        vocab_size=11, hidden_size=8, embedding_size=4, num_hidden_layers=3, num_attention_heads=2, intermediate_size=7,
        max_position_embeddings=8, pad_token_id=None,
    )  # fmt: skip
    setup = ModelSetup(config, "mlm", labels=MLM_LABELS, inputs=PADDED, checkpointing=checkpointing)
    case = glassbert.proof.cases.Case(
        "toy", "model", "toy", lambda: model_fixture(np.random.default_rng(0), setup, threads=2)
    )
    result = check_case(case)
    assert result.ok, result.reason


def test_every_parameter_moves_and_it_learns(toy):
    model = Model(toy.TINY, "mlm", engine="numpy", threads=2)
    before = {name: values.copy() for name, values in model.parameters.items()}
    step = TrainingStep(model, AdamW(model, 1e-2))
    losses = [float(step(IDS, LABELS, MASK).loss) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    assert all((values != before[name]).any() for name, values in model.parameters.items())


def test_predict_equals_forward_for_a_mask_with_holes(toy):
    model = Model(toy.TINY, engine="numpy", threads=2)
    holes = MASK * (np.random.default_rng(3).random(MASK.shape) < 0.7)
    np.testing.assert_allclose(
        model.predict(IDS, holes) * holes[:, :, None], model.forward(IDS, holes)[0] * holes[:, :, None], atol=1e-5
    )


def test_it_is_saved_and_opened_in_its_own_layout(toy, tmp_path):
    model = Model(toy.TINY, "mlm", engine="numpy", threads=1)
    model.save(tmp_path)
    again = glassbert.load(tmp_path, engine="numpy", threads=1)
    assert again.config == toy.TINY and again.head.kind == "mlm"
    np.testing.assert_array_equal(again.predict(IDS, MASK), model.predict(IDS, MASK))
    assert "toy" in repr(again) and model.describe(batch_size=2)


def test_an_unknown_part_or_family_lists_what_there_is(toy):
    with pytest.raises(ConfigError, match=r"positions must be one of 'none', 'learned', 'rotary'.*'toy-distance'"):
        toy.TINY.replace(positions="distance")
    with pytest.raises(ConfigError, match="unknown model 'tooy_with_head'; did you mean 'toy_with_head'"):
        glassbert.create_model("tooy_with_head")
    with pytest.raises(ConfigError, match=r"position_offset counts rows of a table.*has no table"):
        toy.TINY.replace(position_offset=2)
