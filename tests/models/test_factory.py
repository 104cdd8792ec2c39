"""Models by name."""

import numpy as np
import pytest

from glassbert import MINI_BERT_CONFIG, BertWithHead, create_from_registry, create_model, register
from glassbert.errors import ConfigError
from glassbert.families import factory
from glassbert.families.modernbert import ModernBertConfig

SMALL = MINI_BERT_CONFIG.replace(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1)
MODERN = ModernBertConfig(
    vocab_size=50, hidden_size=16, num_attention_heads=2, intermediate_size=32, num_hidden_layers=1, pad_token_id=0
)


@pytest.mark.parametrize(
    ("head_type", "labels", "outputs", "loss"),
    [
        ("binary", None, 1, "binary_cross_entropy"),
        ("multiclass", 4, 4, "cross_entropy"),
        ("multilabel", 3, 3, "binary_cross_entropy"),
        ("regression", None, 1, "mean_squared_error"),
        ("regression", 4, 4, "mean_squared_error"),
        ("ordinal", 5, 4, "ordinal"),
    ],
)
@pytest.mark.parametrize(("name", "config"), [("bert_with_head", SMALL), ("modernbert_with_head", MODERN)])
def test_heads_by_name(name, config, head_type, labels, outputs, loss):
    model = create_model(name, head_type=head_type, num_labels=labels, config=config, engine="numpy")
    output, _ = model.forward(np.array([[1, 2, 3]]))
    assert output.shape == (1, outputs)
    assert model.head.loss_name == loss


def test_a_preset_by_name():
    assert create_model("bert_with_head", head_type="mlm", config="mini", engine="numpy").config == MINI_BERT_CONFIG


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "bart"}, "unknown model 'bart'; did you mean 'bert'"),
        ({"name": "bert", "head_type": "binary"}, "'bert' has no head; use 'bert_with_head'"),
        ({"name": "bert_with_head", "head_type": "binry"}, "did you mean 'binary'"),
        ({"name": "bert_with_head", "head_type": "binary", "num_labels": 7}, "num_labels 7 does not fit"),
        ({"name": "bert_with_head", "head_type": "multiclass"}, "num_labels of at least 1"),
        ({"name": "bert_with_head", "head_type": "mlm", "config": "tiny"}, "unknown preset 'tiny'"),
    ],
)
def test_invalid_arguments(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        create_model(**{"config": SMALL, "engine": "numpy", **arguments})


def test_options_of_a_recipe_can_be_replaced():
    ranks = create_from_registry("sst5-bert", config=SMALL, engine="numpy")
    assert ranks.head.loss_name == "ordinal" and ranks.head.num_labels == 5 and ranks.head.pooling == "mean"
    other = create_from_registry("sst5-bert", config=SMALL, pooling="max", num_labels=3, engine="numpy")
    assert other.head.num_labels == 3 and other.head.pooling == "max"


def test_custom_recipes(monkeypatch):
    monkeypatch.setattr(factory, "REGISTRY", dict(factory.REGISTRY))
    register("mine", lambda **options: BertWithHead(SMALL, "mlm", **options))
    assert create_from_registry("mine", engine="numpy").config == SMALL
    with pytest.raises(ConfigError, match="already"):
        register("mine", BertWithHead)
    with pytest.raises(ConfigError, match="titanic-bert"):
        create_from_registry("titanic")
