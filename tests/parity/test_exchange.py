"""Checkpoints in both directions: transformers opens what we save, we open what it saves, and no bit changes."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import glassbert
from glassbert.checkpoints.family import FAMILIES
from glassbert.errors import CheckpointError
from tests.parity.reference import CLASSES, CONFIGS, reference_model

HEADS = (None, "mlm", "sequence", "token")
SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
OURS = {"bert": glassbert.BertConfig(**SIZES), "modernbert": glassbert.ModernBertConfig(**SIZES, local_window=5)}


def randomised(config: glassbert.EncoderConfig, head: str | None, dtype: str = "float32") -> glassbert.Model:
    model = glassbert.Model(config, head, 5, engine="numpy", dtype=dtype)
    rng = np.random.default_rng(0)
    for name, value in model.parameters.items():
        model.parameters[name] = rng.standard_normal(value.shape)
    return model


def open_with_transformers(family: str, head: str | None, folder: Path) -> Any:
    model, info = CLASSES[family, head].from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model


def assert_same_weights(reference: Any, ours: dict[str, np.ndarray]) -> None:
    theirs = {name: parameter.detach().numpy() for name, parameter in reference.named_parameters()}
    assert set(theirs) == set(ours)
    for name, array in theirs.items():
        assert array.dtype == ours[name].dtype and array.tobytes() == ours[name].tobytes(), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", OURS)
def test_ours_to_transformers_and_back(family: str, head: str | None, tied: bool, dtype: str, tmp_path: Path) -> None:
    config = OURS[family].replace(tie_word_embeddings=tied, hidden_dropout=0.3, classifier_dropout=0.2)
    model = randomised(config, head, dtype)
    model.save(tmp_path / "ours")
    reference = open_with_transformers(family, head, tmp_path / "ours")
    assert_same_weights(reference, model.to_huggingface())
    reference.save_pretrained(tmp_path / "theirs")
    back = glassbert.load(tmp_path / "theirs", engine="numpy", dtype=dtype)
    assert back.config == config
    assert (back.head and back.head.kind) == head
    for name, value in model.parameters.items():
        assert value.tobytes() == back.parameters[name].tobytes(), name


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", OURS)
def test_theirs_to_ours_and_back(family: str, head: str | None, tmp_path: Path) -> None:
    reference = reference_model(family, head, num_labels=5, **SIZES)
    reference.save_pretrained(tmp_path / "theirs")
    model = glassbert.load(tmp_path / "theirs", engine="numpy")
    assert_same_weights(reference, model.to_huggingface())
    model.save(tmp_path / "ours")
    again = open_with_transformers(family, head, tmp_path / "ours")
    assert_same_weights(again, model.to_huggingface())
    before, after = reference.config.to_dict(), again.config.to_dict()
    # classifier_dropout null means hidden_dropout_prob; we write what it means.
    ignored = {"_name_or_path", "transformers_version", "dtype", "classifier_dropout", "problem_type"}
    ignored |= {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}
    for key in set(before) - ignored:
        assert before[key] == after[key], key


@pytest.mark.parametrize("family", OURS)
def test_auto_classes_open_what_we_save(family: str, tmp_path: Path) -> None:
    autos = {
        None: transformers.AutoModel,
        "mlm": transformers.AutoModelForMaskedLM,
        "sequence": transformers.AutoModelForSequenceClassification,
        "token": transformers.AutoModelForTokenClassification,
    }
    for head, auto in autos.items():
        randomised(OURS[family], head).save(tmp_path)
        opened, info = auto.from_pretrained(tmp_path, output_loading_info=True)
        assert type(opened) is CLASSES[family, head] and not any(info.values())
        assert head in (None, "mlm") or opened.config.num_labels == 5


@pytest.mark.parametrize("family", OURS)
def test_shards_in_both_directions(family: str, tmp_path: Path) -> None:
    model = randomised(OURS[family], "mlm")
    glassbert.checkpoints.save_model(model, tmp_path / "ours", max_shard_size=20_000)
    assert len(list((tmp_path / "ours").glob("model-*.safetensors"))) > 2
    reference = open_with_transformers(family, "mlm", tmp_path / "ours")
    assert_same_weights(reference, model.to_huggingface())
    reference.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists()
    assert_same_weights(reference, glassbert.load(tmp_path / "theirs", engine="numpy").to_huggingface())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("family", OURS)
def test_half_precision_of_transformers(family: str, dtype: str, tmp_path: Path) -> None:
    reference = reference_model(family, "mlm", **SIZES).to(getattr(torch, dtype))
    reference.save_pretrained(tmp_path)
    assert_same_weights(reference.float(), glassbert.load(tmp_path, engine="numpy").to_huggingface())


@pytest.mark.parametrize("family", OURS)
def test_default_configs_mean_the_same(family: str, tmp_path: Path) -> None:
    """A key that a config.json does not have means the default of transformers: it must be ours too."""
    ours = FAMILIES[family].config_class()
    theirs = CONFIGS[family]()
    tiny = {**SIZES, "num_hidden_layers": 1}
    reference = CLASSES[family, "mlm"](CONFIGS[family](**tiny))
    reference.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    minimal = {key: written[key] for key in (*tiny, "model_type", "architectures")}
    (tmp_path / "config.json").write_text(json.dumps(minimal))
    assert glassbert.load(tmp_path, engine="numpy").config == ours.replace(**tiny)
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        assert getattr(theirs, key) == getattr(ours, key)
    assert theirs.max_position_embeddings == ours.max_position_embeddings and theirs.pad_token_id == ours.pad_token_id


def test_a_bert_of_transformers_4_with_old_names(tmp_path: Path) -> None:
    """gamma and beta, a position_ids buffer, the pooler and the next-sentence head beside the language model."""
    reference = reference_model("bert", "mlm", **SIZES)
    reference.save_pretrained(tmp_path)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(64)[None]
    old["bert.pooler.dense.weight"], old["bert.pooler.dense.bias"] = torch.ones(32, 32), torch.ones(32)
    old["cls.seq_relationship.weight"], old["cls.seq_relationship.bias"] = torch.ones(2, 32), torch.ones(2)
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].clone()
    save_file(old, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = glassbert.load(tmp_path, engine="numpy")
    assert_same_weights(reference, model.to_huggingface())
    core = glassbert.load(tmp_path, engine="numpy", head="core")
    assert core.config.pooler and (core.parameters["pooler.weight"] == 1).all()


def test_the_advice_for_pickles_works(tmp_path: Path) -> None:
    reference = reference_model("bert", "token", num_labels=3, **SIZES)
    folder = tmp_path / "old"
    reference.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(reference.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickle") as caught:
        glassbert.load(folder)
    advice = [line.strip() for line in str(caught.value).splitlines() if line.startswith("    ")]
    script = tmp_path / "convert.py"
    script.write_text("\n".join(advice))
    runpy.run_path(str(script))
    assert_same_weights(reference, glassbert.load(tmp_path / "old-safetensors", engine="numpy").to_huggingface())
