"""The pretrained Mini that ships with the package."""

import json
from pathlib import Path

import numpy as np

import glassbert
from glassbert.checkpoints.packaged import packaged_folder
from glassbert.text.loading import load_with_tokenizer
from glassbert.training.fill_mask import fill_mask

LIMIT_PARAMETERS, LIMIT_BYTES = 4_600_000, 10_000_000


def test_size_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = packaged_folder("mini")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= LIMIT_BYTES
    assert {"README.md", "recipe.toml", "receipt.json", "manifest.json"} <= {path.name for path in folder.iterdir()}
    receipt = json.loads((folder / "receipt.json").read_text())
    assert receipt["model"]["parameters"] == glassbert.load("mini").num_parameters <= LIMIT_PARAMETERS
    assert receipt["result"]["accuracy"] >= 0.6
    for name in ("receipt.json", "README.md", "recipe.toml"):
        assert "/tmp" not in (folder / name).read_text() and str(Path.home()) + "/" not in (folder / name).read_text()


def test_it_has_learned_english(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, tokenizer = load_with_tokenizer("mini", engine="numpy")
    for sentence, word in (
        ("She opened the [MASK] and went out.", "door"),
        ("He drank a [MASK] of water.", "glass"),
        ("Two days [MASK] he died.", "later"),
    ):
        assert word in [answer.word for answer in fill_mask(model, tokenizer, sentence)[0]]


def test_reading_a_text_gives_finite_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, tokenizer = load_with_tokenizer("mini", engine="numpy")
    ids = np.array([tokenizer.encode("GlassBERT can be seen through.").ids])
    assert np.isfinite(model.predict(ids)).all()
