"""Round trips of every family with every head, in Hugging Face's format and in our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import glassbert
from glassbert.checkpoints import load_weights, save_model
from glassbert.errors import CheckpointError
from tests.checkpoints.tiny import (
    BERT,
    CONFIGS,
    HEADS,
    MINI,
    MODERNBERT,
    assert_same,
    edit_config,
    load,
    tiny,
    weights,
)

VARIANTS: dict[str, glassbert.EncoderConfig] = {
    **CONFIGS,
    "bert_untied": BERT.replace(tie_word_embeddings=False),
    "bert_without_pooler": BERT.replace(pooler=False),
    "bert_other_dropouts": BERT.replace(
        embedding_dropout=0.4, hidden_dropout=0.3, ffn_dropout=0.2, attention_dropout=0.0
    ),
    "bert_depth_scaled": BERT.replace(initializer="depth_scaled", initializer_range=0.5),
    "bert_mean_pooling": BERT.replace(classifier_pooling="mean"),
    "bert_no_pad_id": BERT.replace(pad_token_id=None),
    "bert_causal": BERT.replace(causal=True),
    "modernbert_untied": MODERNBERT.replace(tie_word_embeddings=False, decoder_bias=False),
    "modernbert_biases": MODERNBERT.replace(
        attention_bias=True, ffn_bias=True, norm_bias=True, head_bias=True, classifier_pooling="mean"
    ),
    "modernbert_all_global": MODERNBERT.replace(local_window=None, global_attention_every=1),
    "modernbert_every_second": MODERNBERT.replace(global_attention_every=2, local_rope_theta=77.0, hidden_dropout=0.1),
    "modernbert_one_layer": MODERNBERT.replace(num_hidden_layers=1, global_attention_every=5),
    "larger": glassbert.LARGER_BERT_CONFIG.replace(vocab_size=23, max_position_embeddings=16, hidden_size=24),
    "plain_encoder": glassbert.EncoderConfig(vocab_size=23, hidden_size=12, num_hidden_layers=1, num_attention_heads=2),
}
NATIVE = {"mini", "larger", "plain_encoder", "bert_causal"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_save_and_load(variant: str, head: str | None, dtype: str, tmp_path: Path) -> None:
    model = tiny(VARIANTS[variant], head, dtype=dtype)
    model.save(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    native = variant in NATIVE or (head == "sequence" and variant in ("bert_mean_pooling", "bert_without_pooler"))
    assert (fields["model_type"] == "glassbert") == native
    assert fields["dtype"] == dtype
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}
    back = load(tmp_path, dtype=dtype)
    assert_same(model, back)
    ids = np.arange(1, 13).reshape(2, 6)
    assert np.array_equal(model.forward(ids)[0], back.forward(ids)[0])


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", CONFIGS)
def test_shards(family: str, head: str | None, tmp_path: Path) -> None:
    model = tiny(CONFIGS[family], head)
    save_model(model, tmp_path, max_shard_size="2KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    shards = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert shards == sorted(set(index["weight_map"].values())) and len(shards) > 2
    assert not (tmp_path / "model.safetensors").exists()
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in weights(model).values())
    for shard in shards:
        arrays = load_file(tmp_path / shard)
        assert len(arrays) == 1 or sum(array.nbytes for array in arrays.values()) <= 2000
    assert_same(model, load(tmp_path))
    assert_same(model, load(tmp_path / "model.safetensors.index.json"))


@pytest.mark.parametrize(
    ("config", "model_class"), [(glassbert.MINI_BERT_CONFIG, glassbert.MiniBERT), (MINI, glassbert.BertWithHead)]
)
def test_class_of_a_preset(config: glassbert.EncoderConfig, model_class: type, tmp_path: Path) -> None:
    tiny(config).save(tmp_path)
    assert type(load(tmp_path)) is model_class


def test_class_without_head(tmp_path: Path) -> None:
    for config, model_class in ((BERT, glassbert.BertCore), (MODERNBERT, glassbert.ModernBertCore)):
        tiny(config, None).save(tmp_path)
        assert type(load(tmp_path)) is model_class


@pytest.mark.parametrize("loss", ["cross_entropy", "binary_cross_entropy", "mean_squared_error"])
@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("family", CONFIGS)
def test_loss_of_the_sequence_head(family: str, labels: int, loss: str, tmp_path: Path) -> None:
    model = tiny(CONFIGS[family], "sequence", labels, loss=loss)
    model.save(tmp_path)
    assert_same(model, load(tmp_path))


@pytest.mark.parametrize("family", CONFIGS)
def test_mlx(family: str, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    model = tiny(CONFIGS[family], engine="mlx", threads=None)
    model.save(tmp_path)
    back = load(tmp_path)
    for name, value in weights(model).items():
        assert value.tobytes() == back.parameters[name].tobytes(), name
    again = load(tmp_path, engine="mlx", threads=None)
    assert weights(again).keys() == weights(model).keys()


def test_load_checkpoint_takes_the_weights(tmp_path: Path) -> None:
    for config in CONFIGS.values():
        model, other = tiny(config), glassbert.Model(config, "mlm", engine="numpy", seed=5)
        model.save(tmp_path)
        other.load_checkpoint(tmp_path)
        assert_same(model, other)


def test_weights_of_the_other_layout_and_precision(tmp_path: Path) -> None:
    model = tiny(BERT, dtype="float64")
    model.save(tmp_path)
    other = tiny(BERT)
    load_weights(other, tmp_path)
    for name, value in weights(model).items():
        assert np.array_equal(value.astype(np.float32), other.parameters[name])


def test_a_file_of_any_name_with_its_config(tmp_path: Path) -> None:
    model = tiny()
    model.save(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    assert_same(model, load(tmp_path))
    assert_same(model, load(tmp_path / "weights.safetensors"))


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_to_huggingface_splits_and_names(family: str) -> None:
    model = tiny(CONFIGS[family])
    tensors = model.to_huggingface()
    prefix = "bert.encoder.layer.1.attention.self." if family == "bert" else "model.layers.1.attn.Wqkv."
    ours = model.parameters["layers.1.attention.qkv.weight"]
    if family == "bert":
        for i, name in enumerate(("query", "key", "value")):
            assert np.array_equal(tensors[f"{prefix}{name}.weight"], ours[12 * i : 12 * (i + 1)])
        assert "cls.predictions.decoder.weight" not in tensors and "cls.predictions.decoder.bias" not in tensors
    else:
        assert np.array_equal(tensors[f"{prefix}weight"], ours) and "decoder.weight" not in tensors
    tensors[next(iter(tensors))][:] = 7  # a copy: the model must not change
    assert not (model.token_embeddings == 7).all()


def test_to_huggingface_takes_any_arrays_by_our_names() -> None:
    model = tiny()
    some = {"pooler.weight": np.zeros((12, 12))}
    with pytest.raises(CheckpointError, match=r"pooler\.weight"):
        model.to_huggingface(some)
    with pytest.raises(CheckpointError, match=r"head\.norm\.bias.*\(12,\).*\(3,\)"):
        model.to_huggingface({"head.norm.bias": np.zeros(3)})
    assert set(model.to_huggingface({"head.norm.bias": np.zeros(12)})) == {"cls.predictions.transform.LayerNorm.bias"}


def test_to_huggingface_names_the_obstacles() -> None:
    with pytest.raises(CheckpointError, match="embedding_norm is False"):
        tiny(MINI).to_huggingface()
    with pytest.raises(CheckpointError, match="type_vocab_size is 0"):
        tiny(BERT.replace(type_vocab_size=0)).to_huggingface()


def test_unknown_fields_are_kept(tmp_path: Path) -> None:
    tiny(BERT, "token", 3).save(tmp_path)
    names = {"0": "O", "1": "B-PER", "2": "I-PER"}
    edit_config(
        tmp_path, id2label=names, label2id={v: int(k) for k, v in names.items()}, my_note="hello", bos_token_id=3
    )
    load(tmp_path).save(tmp_path / "again")
    fields = json.loads((tmp_path / "again" / "config.json").read_text())
    assert fields["id2label"] == names and fields["label2id"]["I-PER"] == 2
    assert fields["my_note"] == "hello" and fields["bos_token_id"] == 3


def test_label_names_follow_the_number_of_labels(tmp_path: Path) -> None:
    tiny(BERT, "sequence", 3).save(tmp_path)
    with pytest.warns(UserWarning, match="initialised at random"):
        load(tmp_path, num_labels=4).save(tmp_path / "four")
    fields: dict[str, Any] = json.loads((tmp_path / "four" / "config.json").read_text())
    assert len(fields["id2label"]) == len(fields["label2id"]) == 4
