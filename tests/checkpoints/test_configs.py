"""config.json: both versions of ModernBERT's keys, all keys of BERT, and unsupported values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glassbert.errors import CheckpointError, GlassBertError
from tests.checkpoints.tiny import BERT, MINI, MODERNBERT, edit_config, load, tiny

# As published for ModernBERT-base by transformers 4.47, but small.
OLD_MODERNBERT = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 1,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 2,
    "global_attn_every_n_layers": 2,
    "global_rope_theta": 123.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 12,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 10,
    "layer_norm_eps": 1e-05,
    "local_attention": 6,
    "local_rope_theta": 45.0,
    "max_position_embeddings": 16,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-06,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "sep_token_id": 2,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.47.0.dev0",
    "vocab_size": 23,
}
NEW_SPELLING = {
    "global_attn_every_n_layers": ...,
    "global_rope_theta": ...,
    "local_rope_theta": ...,
    "torch_dtype": ...,
    "dtype": "float32",
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_theta": 123.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 45.0, "rope_type": "default"},
    },
}
MEANT = MODERNBERT.replace(
    global_attention_every=2,
    global_rope_theta=123.0,
    local_rope_theta=45.0,
    layer_norm_eps=1e-6,
    classifier_pooling="mean",
)


def read(folder: Path, config: Any, head: str | None = "mlm", **changes: Any) -> Any:
    tiny(config, head).save(folder)
    edit_config(folder, **changes)
    return load(folder).config


def test_old_and_new_keys_of_modernbert(tmp_path: Path) -> None:
    assert read(tmp_path, MEANT, **OLD_MODERNBERT, layer_types=..., rope_parameters=...) == MEANT
    assert read(tmp_path, MEANT, **{**OLD_MODERNBERT, **NEW_SPELLING}) == MEANT


def test_the_new_keys_take_precedence(tmp_path: Path) -> None:
    changes = {"global_attn_every_n_layers": 3, "global_rope_theta": 9.0, "local_rope_theta": 8.0}
    assert read(tmp_path, MEANT, **changes) == MEANT


def test_some_of_the_new_keys(tmp_path: Path) -> None:
    """rope_parameters for one kind of layer only; null means "as the global ones" in transformers 4."""
    one = {"rope_parameters": {"full_attention": {"rope_theta": 5.0}}, "local_rope_theta": 6.0, "layer_types": None}
    config = read(tmp_path, MEANT, **one, global_attn_every_n_layers=2)
    assert (config.global_rope_theta, config.local_rope_theta, config.global_attention_every) == (5.0, 6.0, 2)
    config = read(tmp_path, MEANT, rope_parameters=None, global_rope_theta=5.0, local_rope_theta=None)
    assert (config.global_rope_theta, config.local_rope_theta) == (5.0, 5.0)


@pytest.mark.parametrize(
    ("types", "every"),
    [("ggg", 1), ("glg", 2), ("gll", 3), ("lgl", None), ("ggl", None), ("lll", None), ("gl", None), ("gxg", None)],
)
def test_layer_types(types: str, every: int | None, tmp_path: Path) -> None:
    names = {"g": "full_attention", "l": "sliding_attention", "x": "chunked_attention"}
    changes = {"layer_types": [names[kind] for kind in types], "global_attn_every_n_layers": ...}
    if every is None:
        with pytest.raises(CheckpointError, match="layer_types"):
            read(tmp_path, MODERNBERT, **changes)
    else:
        assert read(tmp_path, MODERNBERT, **changes).global_attention_every == every


def test_window_counts_one_side(tmp_path: Path) -> None:
    assert read(tmp_path, MODERNBERT, local_attention=128).local_window == 64
    assert read(tmp_path, MODERNBERT, local_attention=5).local_window == 2


def test_dropout_of_bert(tmp_path: Path) -> None:
    config = read(tmp_path, BERT, hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.5, classifier_dropout=None)
    assert config.embedding_dropout == config.hidden_dropout == config.classifier_dropout == 0.25
    assert config.attention_dropout == 0.5
    assert read(tmp_path, BERT, hidden_dropout_prob=0.25, classifier_dropout=0.0).classifier_dropout == 0.0


def test_dropout_of_modernbert(tmp_path: Path) -> None:
    changes = {"embedding_dropout": 0.1, "attention_dropout": 0.2, "mlp_dropout": 0.3, "classifier_dropout": 0.4}
    config = read(tmp_path, MODERNBERT, **changes)
    assert (config.embedding_dropout, config.attention_dropout) == (0.1, 0.2)
    assert (config.ffn_dropout, config.classifier_dropout, config.hidden_dropout) == (0.3, 0.4, 0.0)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("gelu", "gelu"), ("gelu_new", "gelu_tanh"), ("gelu_pytorch_tanh", "gelu_tanh"), ("relu", "relu")],
)
def test_activations(theirs: str, ours: str, tmp_path: Path) -> None:
    assert read(tmp_path, BERT, hidden_act=theirs).activation == ours
    config = read(tmp_path, MODERNBERT, hidden_activation=theirs, classifier_activation=theirs)
    assert config.activation == ours


@pytest.mark.parametrize(
    ("family", "changes", "culprit"),
    [
        ("bert", {"hidden_act": "silu"}, "hidden_act is 'silu'"),
        ("bert", {"hidden_act": None}, "hidden_act is None"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ("bert", {"is_decoder": True}, "is_decoder is True"),
        ("bert", {"add_cross_attention": True}, "add_cross_attention is True"),
        ("bert", {"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ("bert", {"quantization_config": {"bits": 8}}, "quantization_config"),
        ("bert", {"auto_map": {"AutoModel": "theirs.Model"}}, "auto_map"),
        ("bert", {"hidden_size": "12"}, "hidden_size must be an integer"),
        ("bert", {"hidden_size": -12}, "hidden_size must be an integer of at least 1, got -12"),
        ("bert", {"num_attention_heads": 5}, "5 attention heads do not divide hidden_size 12"),
        ("bert", {"hidden_dropout_prob": 1.5}, "must be in"),
        ("bert", {"pad_token_id": 99}, "pad_token_id 99"),
        ("bert", {"glassbert": {"embedding_norm": False}}, "glassbert.embedding_norm"),
        ("bert", {"glassbert": {"initializer": "magic"}}, "initializer must be one of"),
        ("bert", {"glassbert": 3}, "glassbert must hold config fields"),
        ("bert", {"problem_type": "guessing"}, "problem_type is 'guessing'"),
        ("modernbert", {"hidden_activation": "swish"}, "hidden_activation is 'swish'"),
        ("modernbert", {"classifier_activation": "relu"}, "classifier_activation is 'relu'"),
        ("modernbert", {"classifier_activation": ..., "hidden_activation": "relu"}, "classifier_activation is 'gelu'"),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling is .max.; GlassBERT supports only"),
        ("modernbert", {"local_attention": 1}, "local_attention must be an integer of at least 2, got 1"),
        ("modernbert", {"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling"),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type 'yarn'"),
        ("modernbert", {"rope_parameters": {"rope_theta": 5}}, "rope_parameters must have the entries"),
        ("modernbert", {"rope_parameters": {"full_attention": 3}}, "rope_parameters.*must be an object"),
        ("bert", {"model_type": "t5"}, "model_type is 't5'; GlassBERT opens bert, .*modernbert, .*glassbert"),
        ("bert", {"model_type": ...}, "model_type is None"),
        ("bert", {"architectures": ["BertForMultipleChoice"]}, "BertForMultipleChoice.*head='core'"),
        ("bert", {"architectures": ...}, "names no architecture"),
        ("mini", {"hidden_sise": 12}, "no field 'hidden_sise'; did you mean 'hidden_size'"),
        ("mini", {"head_type": "poet"}, "head_type is 'poet'"),
        ("mini", {"positions": "spiral"}, "positions must be one of"),
    ],
)
def test_unsupported_values(family: str, changes: dict[str, Any], culprit: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=culprit) as caught:
        read(tmp_path, {"bert": BERT, "modernbert": MODERNBERT, "mini": MINI}[family], **changes)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_another_activation_in_a_head_that_is_not_there(tmp_path: Path) -> None:
    assert read(tmp_path, MODERNBERT, None, classifier_activation="relu") == MODERNBERT


def test_unused_keys_are_accepted(tmp_path: Path) -> None:
    """Keys that transformers does not read for BERT do not change the output."""
    changes = {"use_cache": True, "gradient_checkpointing": False, "_name_or_path": "x", "some_note": {"a": 1}}
    assert read(tmp_path, BERT, **changes, position_embedding_type="absolute", is_decoder=False) == BERT


@pytest.mark.parametrize("config", [BERT, MODERNBERT, MINI], ids=["bert", "modernbert", "mini"])
@pytest.mark.parametrize("value", [None, True, -1, 0, 3.5, 10**12, 10**30, float("nan"), "x", [], [1], {}, {"a": [1]}])
def test_any_value_of_any_key_loads_or_raises_our_error(config: Any, value: Any, tmp_path: Path) -> None:
    """Any config.json gives a model or a GlassBertError."""
    tiny(config).save(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    for key in [*fields, "rope_parameters", "layer_types", "glassbert", "id2label", "num_labels", "problem_type"]:
        path.write_text(json.dumps({**fields, key: value}))
        try:
            load(tmp_path)
        except GlassBertError as error:
            assert str(error)
