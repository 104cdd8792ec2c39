"""Configs: the sizes of the presets, and errors for invalid values."""

import dataclasses
import math

import numpy as np
import pytest

from glassbert import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, PRESETS, BertConfig, LargerBERT, MiniBERT, ModernBertConfig
from glassbert.errors import ConfigError, GlassBertError
from glassbert.models.encoder import Encoder
from glassbert.models.heads import pooler_parameters
from tests.models.small import BERT, make


def encoder_size(config):
    parameters = Encoder(config).parameters() + (pooler_parameters(config) if config.pooler else [])
    return sum(math.prod(parameter.shape) for parameter in parameters)


def test_mini_bert_has_about_four_and_a_half_million_parameters():
    assert MiniBERT(engine="numpy", initialize=False).get_parameter_count() == pytest.approx(4.5e6, rel=0.02)


def test_larger_bert_has_49_million_parameters_and_30_million_tied():
    model = LargerBERT(engine="numpy", initialize=False)
    assert model.get_parameter_count() == pytest.approx(49e6, rel=0.01)
    tied = LARGER_BERT_CONFIG.replace(tie_word_embeddings=True)
    assert LargerBERT(tied, engine="numpy", initialize=False).get_parameter_count() == pytest.approx(30e6, rel=0.01)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("bert-base", 109_482_240),  # as `transformers` counts BertModel and ModernBertModel
        ("bert-large", 335_141_888),
        ("modernbert-base", 149_014_272),
        ("modernbert-large", 394_781_696),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_published_sizes(name, count):
    assert encoder_size(PRESETS[name]) == count


def test_the_presets_are_what_the_specification_says():
    shapes = {
        name: (c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.intermediate_size, c.vocab_size,
               c.max_position_embeddings)
        for name, c in PRESETS.items()
    }  # fmt: skip
    published = {
        "mini": (3, 192, 4, 768, 8_192, 64),
        "larger": (6, 384, 8, 1_536, 50_000, 128),
        "bert-base": (12, 768, 12, 3_072, 30_522, 512),
        "bert-large": (24, 1_024, 16, 4_096, 30_522, 512),
        "modernbert-base": (22, 768, 12, 1_152, 50_368, 8_192),
        "modernbert-large": (28, 1_024, 16, 2_624, 50_368, 8_192),
        "gpt2": (12, 768, 12, 3_072, 50_257, 1_024),
        "gpt2-medium": (24, 1_024, 16, 4_096, 50_257, 1_024),
        "gpt2-large": (36, 1_280, 20, 5_120, 50_257, 1_024),
        "gpt2-xl": (48, 1_600, 25, 6_400, 50_257, 1_024),
        "gpt2-mini": (3, 192, 4, 768, 8_192, 64),
    }
    assert {name: shapes[name] for name in published} == published
    assert MINI_BERT_CONFIG.head_size == LARGER_BERT_CONFIG.head_size == 48
    assert MINI_BERT_CONFIG.activation == "relu" and not MINI_BERT_CONFIG.tie_word_embeddings
    assert LARGER_BERT_CONFIG.initializer == "depth_scaled" and LARGER_BERT_CONFIG.hidden_dropout > 0


def test_modernbert_alternates_global_and_local_layers():
    config = ModernBertConfig.get_base_config()
    assert [config.window_of(i) for i in range(7)] == [None, 64, 64, None, 64, 64, None]
    assert BertConfig.get_base_config().window_of(3) is None


def test_a_config_is_frozen_and_goes_into_a_dictionary_and_back():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BERT.hidden_size = 7
    assert BertConfig.from_dict(BERT.to_dict()) == BERT
    assert BERT.replace(hidden_size=24).hidden_size == 24 and BERT.hidden_size == 12


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"num_attention_heads": 5},
            "5 attention heads do not divide hidden_size 12; heads that would: 1, 2, 3, 4",
        ),
        ({"hiden_size": 8}, "no field 'hiden_size'; did you mean 'hidden_size'"),
        ({"zzz": 8}, "no field 'zzz'; it has"),
        ({"num_hidden_layers": 2**31}, "num_hidden_layers must be at most 4,096, got 2147483648"),
        ({"max_position_embeddings": 2**31}, "max_position_embeddings must be at most 16,777,216"),
        ({"attention_dropout": 10**400}, r"attention_dropout must be in \[0, 1\)"),
        ({"hidden_size": -4}, "hidden_size must be an integer of at least 1, got -4"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": 12.0}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": "12"}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"max_position_embeddings": 0}, "max_position_embeddings"),
        ({"type_vocab_size": -2}, "type_vocab_size"),
        ({"hidden_dropout": 1.0}, r"hidden_dropout must be in \[0, 1\), got 1.0"),
        ({"attention_dropout": -0.1}, "attention_dropout"),
        ({"embedding_dropout": math.nan}, "embedding_dropout"),
        ({"layer_norm_eps": math.nan}, "layer_norm_eps"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps"),
        ({"initializer_range": -1.0}, "initializer_range"),
        ({"initializer_range": math.inf}, "initializer_range"),
        ({"global_rope_theta": math.nan}, "global_rope_theta"),
        ({"activation": "swish"}, "activation must be one of 'relu', 'gelu', 'gelu_tanh', 'tanh', got 'swish'"),
        ({"positions": "sinus"}, "positions must be one of"),
        ({"norm_position": "middle"}, "norm_position"),
        ({"initializer": "xavier"}, "initializer"),
        ({"classifier_pooling": "first"}, "classifier_pooling"),
        ({"feed_forward": "gatd"}, "feed_forward must be one of 'dense', 'gated', got 'gatd'"),
        ({"pad_token_id": 31}, "pad_token_id 31 is no id of a vocabulary of 31"),
        ({"pad_token_id": -1}, "pad_token_id -1"),
        ({"local_window": 0}, "local_window"),
        ({"global_attention_every": 3}, "needs a local_window"),
        ({"global_attention_every": 0}, "global_attention_every"),
        ({"positions": "rotary", "hidden_size": 6}, "a head has 3, an odd number"),
        ({"skip_first_norm": True}, "skip_first_norm"),
    ],
)
def test_an_invalid_config_is_an_error_that_names_the_field(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        BERT.replace(**changes)
    with pytest.raises(ConfigError, match=sentence):
        BertConfig.from_dict({**BERT.to_dict(), **changes})
    assert issubclass(ConfigError, GlassBertError)


def test_a_numpy_integer_is_an_integer():
    assert make(BERT.replace(hidden_size=int(np.int64(24)))).config.hidden_size == 24


@pytest.mark.parametrize("initializer", ["normal", "truncated", "depth_scaled"])
def test_initial_values(initializer):
    config = BERT.replace(hidden_size=48, vocab_size=400, initializer=initializer, initializer_range=0.05)
    model = make(config, spread=False, dtype="float32")
    table = model.parameters["embeddings.token"]
    assert table.std() == pytest.approx(0.05 if initializer == "normal" else 0.05 * 0.8796, rel=0.05)
    if initializer != "normal":
        assert np.abs(table).max() <= 0.1 + 1e-6
    ratio = model.parameters["layers.0.ffn.down.weight"].std() / model.parameters["layers.0.ffn.up.weight"].std()
    assert ratio == pytest.approx(0.5 if initializer == "depth_scaled" else 1.0, rel=0.1)
    for name, values in model.parameters.items():
        if name.endswith("norm.weight"):
            assert (values == 1).all()
        elif name.endswith("bias"):
            assert not values.any()


def test_the_same_seed_gives_the_same_model():
    one, two, other = (make(spread=False, seed=seed) for seed in (1, 1, 2))
    for name in one.parameters:
        np.testing.assert_array_equal(one.parameters[name], two.parameters[name])
    assert (one.parameters["embeddings.token"] != other.parameters["embeddings.token"]).any()
