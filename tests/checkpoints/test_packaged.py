"""Models that ship with the package: found by name, verified, and out of the way of local folders and the hub."""

import json
import warnings

import pytest

import glassbert
from glassbert.checkpoints import packaged
from glassbert.checkpoints.packaged import checksum, packaged_folder, packaged_names, which_model, write_manifest
from glassbert.errors import CheckpointError
from glassbert.families.bert import MINI_BERT_CONFIG


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A packaged model named tiny, in a package folder of its own."""
    folder = tmp_path / "package" / "tiny"
    config = MINI_BERT_CONFIG.replace(vocab_size=40, hidden_size=8, num_attention_heads=2, intermediate_size=16)
    glassbert.MiniBERT(config, engine="numpy").save(folder, dtype="float16")
    write_manifest(folder)
    monkeypatch.setattr(packaged, "_root", lambda: folder.parent)
    monkeypatch.chdir(tmp_path)
    packaged._verified.cache_clear()
    yield folder
    packaged._verified.cache_clear()


def test_name_opens_the_packaged_model(shipped):
    assert packaged_names() == ("tiny",)
    assert glassbert.load("tiny", engine="numpy").config.vocab_size == 40
    assert "ships with GlassBERT" in which_model("tiny")
    assert which_model("runs/mine") is None


def test_a_local_folder_of_that_name_wins_and_is_named(shipped, tmp_path):
    other = MINI_BERT_CONFIG.replace(vocab_size=50, hidden_size=8, num_attention_heads=2, intermediate_size=16)
    glassbert.MiniBERT(other, engine="numpy").save(tmp_path / "tiny")
    assert glassbert.load("tiny", engine="numpy").config.vocab_size == 50
    assert "the folder of that name here" in which_model("tiny")


@pytest.mark.parametrize("name", ["tniy", "tinny", "Tiny"])
def test_close_name_gets_a_hint(shipped, name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CheckpointError, match="did you mean 'tiny'"):
        glassbert.load(name)


def test_damage_is_noticed(shipped):
    weights = shipped / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        packaged_folder("tiny")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": {"config.json": 3}}'])
def test_damaged_manifest(shipped, content):
    (shipped / "manifest.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged"):
        packaged_folder("tiny")


def test_missing_file(shipped):
    (shipped / "config.json").unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        packaged_folder("tiny")


def test_manifest_lists_every_file(shipped):
    files = json.loads((shipped / "manifest.json").read_text())["files"]
    assert set(files) == {path.name for path in shipped.iterdir()} - {"manifest.json"}
    assert files["config.json"]["blake2b"] == checksum(shipped / "config.json")


def test_float16_file_keeps_the_weights_to_half_precision(shipped):
    config = MINI_BERT_CONFIG.replace(vocab_size=40, hidden_size=8, num_attention_heads=2, intermediate_size=16)
    model, stored = glassbert.MiniBERT(config, engine="numpy"), glassbert.load("tiny", engine="numpy")
    for name, values in model.parameters.items():
        assert abs(values - stored.parameters[name]).max() < 1e-3
    model.parameters["embeddings.token"] = model.parameters["embeddings.token"] + 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CheckpointError, match="beyond the range of float16"):
            model.save(shipped.parent / "large", dtype="float16")
