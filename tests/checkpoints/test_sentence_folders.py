"""Folders of sentence-transformers: written with the encoder, read with their pooling, and unsupported modules."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import glassbert
from glassbert.errors import CheckpointError
from glassbert.text import WordPieceTokenizer
from tests.checkpoints.tiny import BERT, CONFIGS, MODERNBERT, assert_same, edit_config, load, tiny

IDS = np.arange(1, 9).reshape(2, 4)


def embedder(config: glassbert.EncoderConfig = BERT, pooling: str = "mean", **options: Any) -> glassbert.Model:
    model = glassbert.create_model(
        "bert_with_head", head_type="embedding", pooling=pooling, config=config, engine="numpy", threads=1, **options
    )
    rng = np.random.default_rng(2)
    for name, value in model.parameters.items():
        model.parameters[name] = rng.standard_normal(value.shape)
    return model


def stored_names(folder: Path) -> list[str]:
    return list(load_file(folder / "model.safetensors"))


def edit_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def modules(*kinds: str) -> list[dict[str, Any]]:
    folders = {"Transformer": "", "Pooling": "1_Pooling"}
    return [
        {
            "idx": i,
            "name": str(i),
            "path": folders.get(kind, f"{i}_{kind}"),
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
@pytest.mark.parametrize("config", [BERT, MODERNBERT], ids=["bert", "modernbert"])
def test_what_is_written_and_read_again(config: glassbert.EncoderConfig, pooling: str, tmp_path: Path) -> None:
    model = embedder(config, pooling, loss="contrastive", temperature=0.1)
    tokenizer = WordPieceTokenizer.train(["the old tree stands"] * 3, vocab_size=23)
    model.save(tmp_path, tokenizer=tokenizer)
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {
        "checksums.json", "config.json", "model.safetensors", "modules.json", "1_Pooling/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json", "tokenizer.json", "vocab.txt", "tokenizer_config.json",
        "special_tokens_map.json",
    }  # fmt: skip
    named = [entry["type"].rpartition(".")[2] for entry in json.loads((tmp_path / "modules.json").read_text())]
    assert named == ["Transformer", "Pooling", "Normalize"] and (tmp_path / "2_Normalize").is_dir()
    how = json.loads((tmp_path / "1_Pooling" / "config.json").read_text())
    on = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}
    assert [key for key, value in how.items() if key.startswith("pooling_mode") and value] == [on[pooling]]
    assert how["word_embedding_dimension"] == 12
    fields = json.loads((tmp_path / "config.json").read_text())
    assert fields["architectures"] == ["BertModel" if config is BERT else "ModernBertModel"]
    assert fields.get("classifier_pooling", "cls") == "cls"  # transformers refuses others
    assert all(
        name.startswith(("embeddings.", "encoder.", "layers.", "final_norm.")) for name in stored_names(tmp_path)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, core = load(tmp_path), load(tmp_path, head="core")
    assert_same(model, again)
    assert again.head is not None and again.head.loss_options.temperature == 0.1
    assert model.predict(IDS).tobytes() == again.predict(IDS).tobytes()
    assert core.head is None and core.predict(IDS).shape == (2, 4, 12)
    other = embedder(config, pooling)
    other.load_checkpoint(tmp_path)
    assert other.predict(IDS).tobytes() == model.predict(IDS).tobytes()
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()


def test_unsupported_poolings_are_written_in_our_own_format(tmp_path: Path) -> None:
    for name, model in {"attention": embedder(pooling="attention"), "mini": embedder(CONFIGS["mini"])}.items():
        model.save(tmp_path / name)
        assert {path.name for path in (tmp_path / name).iterdir()} == {
            "checksums.json",
            "config.json",
            "model.safetensors",
        }
        assert_same(model, load(tmp_path / name))


NAMED = {"embedding_dimension": 12, "pooling_mode": "max", "include_prompt": True}
SWITCHES = {"word_embedding_dimension": 12, "pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}


@pytest.mark.parametrize("how", [NAMED, {**NAMED, "pooling_mode": ["max"]}, SWITCHES])
def test_the_pooling_of_a_folder_of_sentence_transformers(how: dict[str, Any], tmp_path: Path) -> None:
    core = tiny(BERT, None)
    core.save(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    edit_json(tmp_path / "1_Pooling" / "config.json", how)
    edit_json(tmp_path / "modules.json", modules("Transformer", "Pooling", "Normalize"))
    assert load(tmp_path).head is None  # config.json names an encoder
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load(tmp_path, head="embedding")
    assert model.config.classifier_pooling == "max"
    np.testing.assert_array_equal(model.predict(IDS), core.predict(IDS).max(1))
    assert load(tmp_path, head="embedding", pooling="cls").config.classifier_pooling == "cls"
    with pytest.warns(UserWarning, match=r"head\.classifier"):
        assert load(tmp_path, head="sequence", num_labels=2).config.classifier_pooling == "cls"


def test_an_encoder_in_a_subfolder(tmp_path: Path) -> None:
    """The layout of old versions of sentence-transformers; without a pooling module the pooling is the mean."""
    tiny(BERT, None).save(tmp_path / "0_Transformer")
    only = modules("Transformer")
    only[0]["path"] = "0_Transformer"
    edit_json(tmp_path / "modules.json", only)
    assert load(tmp_path).head is None
    assert load(tmp_path, head="embedding").config.classifier_pooling == "mean"
    only[0]["path"] = "../elsewhere"
    edit_json(tmp_path / "modules.json", only)
    shutil.copytree(tmp_path / "0_Transformer", tmp_path.parent / "elsewhere", dirs_exist_ok=True)
    with pytest.raises(CheckpointError, match=r"there is no config\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("kinds", "how", "message"),
    [
        (
            ("Transformer", "Pooling", "Dense"),
            NAMED,
            r"a module 'Dense', but GlassBERT supports only.*head='core'",
        ),
        (("Transformer", "LSTM", "Pooling"), NAMED, "a module 'LSTM'"),
        (
            ("Transformer", "Pooling"),
            {"pooling_mode": ["cls", "mean"]},
            r"pools by cls and mean; GlassBERT has cls, mean",
        ),
        (("Transformer", "Pooling"), {"pooling_mode": "weightedmean"}, "pools by weightedmean"),
        (("Transformer", "Pooling"), {"pooling_mode_mean_sqrt_len_tokens": True}, "pooling_mode_mean_sqrt_len_tokens"),
    ],
)
def test_modules_that_cannot_be_represented(
    kinds: tuple[str, ...], how: dict[str, Any], message: str, tmp_path: Path
) -> None:
    tiny(BERT, None).save(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    edit_json(tmp_path / "1_Pooling" / "config.json", how)
    edit_json(tmp_path / "modules.json", modules(*kinds))
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path, head="embedding")
    assert load(tmp_path, head="core").head is None


@pytest.mark.parametrize("content", ["{}", "[1]", "nothing", '[{"type": "sentence_transformers.models.Pooling"}]'])
def test_invalid_module_files(content: str, tmp_path: Path) -> None:
    tiny(BERT, None).save(tmp_path)
    (tmp_path / "modules.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"modules\.json|config\.json"):
        load(tmp_path, head="embedding")


def test_a_head_type_in_the_config_must_be_ours(tmp_path: Path) -> None:
    tiny(BERT, None).save(tmp_path)
    edit_config(tmp_path, glassbert={"head_type": "poet"})
    assert load(tmp_path).head is None  # the architecture takes precedence
    edit_config(tmp_path, glassbert={"head_type": "embedding", "loss": "hope"})
    with pytest.raises(CheckpointError, match="unknown loss 'hope'"):
        load(tmp_path)
