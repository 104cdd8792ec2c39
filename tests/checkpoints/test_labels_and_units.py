"""Label names in config.json, the tokenizer in the model folder, and regressions in the units of their labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import glassbert
from glassbert.checkpoints import label_names
from glassbert.errors import CheckpointError
from glassbert.text import WordPieceTokenizer, load_tokenizer
from tests.checkpoints.tiny import BERT, CONFIGS, MINI, load, tiny

IDS = np.arange(1, 9).reshape(2, 4)


def fields(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize("family", CONFIGS)
def test_names_are_written_read_and_written_again(family: str, tmp_path: Path) -> None:
    model = tiny(CONFIGS[family], "sequence", 3)
    assert label_names(model) is None
    model.save(tmp_path, labels=["bad", "so so", "good"])
    assert fields(tmp_path)["id2label"] == {"0": "bad", "1": "so so", "2": "good"}
    assert fields(tmp_path)["label2id"] == {"bad": 0, "so so": 1, "good": 2}
    again = load(tmp_path)
    assert label_names(again) == ["bad", "so so", "good"]
    again.save(tmp_path / "again")
    assert fields(tmp_path / "again")["id2label"] == fields(tmp_path)["id2label"]
    with pytest.warns(UserWarning, match="initialised at random"):
        assert label_names(load(tmp_path, num_labels=2)) is None


def test_a_binary_head_takes_the_name_of_yes(tmp_path: Path) -> None:
    model = tiny(BERT, "sequence", 1, loss="binary_cross_entropy")
    model.save(tmp_path, labels=["negative", "positive"])
    assert fields(tmp_path)["id2label"] == {"0": "positive"}
    assert fields(tmp_path)["problem_type"] == "multi_label_classification"
    again = load(tmp_path)
    assert label_names(again) == ["positive"] and again.head.loss_name == "binary_cross_entropy"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("head", "labels", "names", "message"),
    [
        ("sequence", 3, ["a", "b"], "the head has 3 labels, but 2 names were given"),
        ("sequence", 2, ["a", "a"], "'a' occurs twice"),
        ("sequence", 2, ["a", ""], "'' is not one"),
        ("token", 2, ["a", 7], "7 is not one"),
        ("mlm", 0, ["a"], "only a head with labels"),
        (None, 0, ["a"], "only a head with labels"),
    ],
)
def test_names_that_do_not_fit(head: Any, labels: int, names: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        tiny(BERT, head, labels).save(tmp_path / "x", labels=names)
    assert not (tmp_path / "x").exists()


def test_the_tokenizer_is_saved_too(tmp_path: Path) -> None:
    tokenizer = WordPieceTokenizer.train(["the old tree stands"] * 3, vocab_size=23)
    tiny(MINI, "token", 3).save(tmp_path, tokenizer=tokenizer)
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint


# ---- units ---------------------------------------------------------------------------------------------------------


def regression(config: glassbert.EncoderConfig, outputs: int = 1, **options: Any) -> glassbert.Model:
    return tiny(config, "sequence", outputs, loss="mean_squared_error", loss_options=options)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_file_for_transformers_has_outputs_in_the_units_of_the_labels(
    family: str, outputs: int, tmp_path: Path
) -> None:
    mean, scale = [[2.5], [2.5, -100.0]][outputs - 1], [[1.25], [1.25, 40.0]][outputs - 1]
    model = regression(CONFIGS[family], outputs, target_mean=mean, target_scale=scale)
    assert model.head is not None
    expected = model.head.decode(model.predict(IDS))
    model.save(tmp_path)
    plain = regression(CONFIGS[family], outputs)  # without mean and scale
    stored = load_file(tmp_path / "model.safetensors")
    assert all(np.array_equal(stored[name], values) for name, values in model.to_huggingface().items())
    for name, value in model.parameters.items():
        part = name.rpartition(".")[2]
        plain.parameters[name] = stored[f"classifier.{part}"] if name.startswith("head.classifier") else value
    np.testing.assert_allclose(plain.predict(IDS), expected, rtol=1e-5, atol=1e-4)
    again = load(tmp_path)
    assert again.head is not None and again.head.loss_options == model.head.loss_options
    np.testing.assert_allclose(again.predict(IDS), model.predict(IDS), rtol=1e-5, atol=1e-5)
    labels = expected + 1.0
    assert float(again.loss(IDS, labels)[0]) == pytest.approx(float(model.loss(IDS, labels)[0]), rel=1e-4)
    other = regression(CONFIGS[family], outputs, target_mean=mean, target_scale=scale)
    other.load_checkpoint(tmp_path)
    np.testing.assert_allclose(other.predict(IDS), model.predict(IDS), rtol=1e-5, atol=1e-5)


def test_other_units_give_the_same_values(tmp_path: Path) -> None:
    model = regression(BERT, target_mean=[2.5], target_scale=[1.25])
    model.save(tmp_path)
    assert model.head is not None
    other = load(tmp_path, loss_options={"target_scale": [10.0]})
    assert other.head is not None and other.head.loss_options.target_mean is None
    values = other.head.decode(other.predict(IDS))
    np.testing.assert_allclose(values, model.head.decode(model.predict(IDS)), rtol=1e-5, atol=1e-5)


def test_gradients_under_their_names_are_not_rescaled() -> None:
    model = regression(BERT, target_mean=[2.5], target_scale=[1.25])
    _, cache = model.loss(IDS, np.array([1.0, 2.0]))
    gradients = model.backward(cache)
    found = model.to_huggingface(gradients)
    np.testing.assert_array_equal(found["classifier.weight"], gradients["head.classifier.weight"])
