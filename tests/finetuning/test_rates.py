"""Factors by layer: decay, freezing, gradual unfreezing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassbert.errors import TrainingError
from glassbert.finetuning.rates import NUMBER_FACTOR, layer_rates
from glassbert.models.numbers import NumbersConfig
from glassbert.training.optimizers import AdamW
from tests.models.small import BERT, CAUSAL, make

MODEL = make(BERT.replace(num_hidden_layers=4), "sequence", 3)


def by_module(rates):
    """The factor of every module; all parameters of a module must have the same."""
    found = {}
    for name, rate in rates.items():
        module = ".".join(name.split(".")[:2]) if name.startswith("layers.") else name.split(".")[0]
        assert found.setdefault(module, rate) == rate, name
    return found


def test_layer_decay():
    rates = layer_rates(MODEL, decay=0.5, head_factor=3.0)
    assert set(rates) == set(MODEL.layout.shapes)
    assert by_module(rates) == {
        "embeddings": 0.5**5, "layers.0": 0.5**4, "layers.1": 0.5**3, "layers.2": 0.25, "layers.3": 0.5,
        "pooler": 3.0, "head": 3.0,
    }  # fmt: skip
    assert by_module(layer_rates(make(CAUSAL), decay=0.5))["final_norm"] == 0.5
    assert set(layer_rates(MODEL).values()) == {1.0}


@pytest.mark.parametrize(
    ("freeze", "frozen"),
    [
        (0, []),
        ("embeddings", ["embeddings"]),
        (1, ["embeddings", "layers.0"]),
        (4, ["embeddings", "layers.0", "layers.1", "layers.2", "layers.3"]),
        ("encoder", ["embeddings", "layers.0", "layers.1", "layers.2", "layers.3"]),
    ],
)
def test_freezing(freeze, frozen):
    assert [module for module, rate in by_module(layer_rates(MODEL, freeze=freeze)).items() if rate == 0] == frozen


def test_gradual_unfreezing():
    learning = []
    for epoch in range(7):
        rates = by_module(layer_rates(MODEL, decay=0.9, unfrozen_layers=epoch))
        learning.append([module for module, rate in rates.items() if rate > 0])
    assert learning[0] == ["pooler", "head"]
    assert learning[1] == ["layers.3", "pooler", "head"]
    assert learning[4] == ["layers.0", "layers.1", "layers.2", "layers.3", "pooler", "head"]
    assert learning[5] == learning[6] == ["embeddings", *learning[4]]
    held = by_module(layer_rates(MODEL, freeze=2, unfrozen_layers=9))
    assert [module for module, rate in held.items() if rate == 0] == ["embeddings", "layers.0", "layers.1"]


@given(st.floats(0.1, 1.0), st.floats(0.1, 10.0), st.integers(0, 4), st.none() | st.integers(0, 9))
def test_rates_increase_from_bottom_to_top(decay, head_factor, freeze, unfrozen):
    rates = layer_rates(MODEL, decay=decay, head_factor=head_factor, freeze=freeze, unfrozen_layers=unfrozen)
    AdamW(MODEL).rates = rates
    order = [by_module(rates)[module] for module in ("embeddings", *(f"layers.{i}" for i in range(4)))]
    assert order == sorted(order) and order[-1] <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": 0.0}, "must be above 0 and at most 1, got 0.0"),
        ({"decay": 1.1}, "must be above 0 and at most 1, got 1.1"),
        ({"head_factor": -1.0}, "head_factor must be a number of at least 0"),
        ({"freeze": 5}, "a number of the lowest of the 4 layers, got 5"),
        ({"freeze": "layers"}, "'embeddings', 'encoder' or a number"),
        ({"freeze": True}, "got True"),
        ({"unfrozen_layers": -1}, "unfrozen_layers must be a number of layers"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(TrainingError, match=message):
        layer_rates(MODEL, **options)


def test_vectors_of_numbers_learn_faster_than_the_encoder_and_are_never_frozen():
    config = BERT.replace(embeddings="numbers", numbers=NumbersConfig(((0.0, 1.0),)))
    model = make(config, "sequence", 3)
    for options in ({}, {"decay": 0.5}, {"freeze": "encoder"}, {"unfrozen_layers": 0}):
        rates = layer_rates(model, **options)
        assert rates["embeddings.number"] == NUMBER_FACTOR > rates["embeddings.token"]
