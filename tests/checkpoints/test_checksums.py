"""Checksums of saved models: any changed file is named before anything is computed with it."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import glassbert
from glassbert import files
from glassbert.checkpoints import load_weights
from glassbert.errors import CheckpointError
from glassbert.text import FastTokenizer
from glassbert.text.fast import load_tokenizer
from glassbert.training.verification import accept_changes, verify_files
from tests.checkpoints.tiny import BERT, assert_same, load, tiny


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tokenizer = FastTokenizer.train(["a cat sat on a mat"] * 3, vocab_size=20, min_frequency=1)
    tiny().save(tmp_path / "model", tokenizer=tokenizer)
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "vocab.txt"])
def test_every_flipped_bit_is_noticed(saved: Path, name: str) -> None:
    rng = random.Random(name)
    original = (saved / name).read_bytes()
    for _ in range(40):
        flip(saved / name, rng.randrange(8 * len(original)))
        with pytest.raises(CheckpointError):
            load(saved)
        with pytest.raises(CheckpointError):
            load_weights(tiny(), saved)
        (saved / name).write_bytes(original)
    load(saved)


def test_a_change_in_the_checksums_is_no_excuse(saved: Path) -> None:
    original = (saved / files.CHECKSUMS).read_bytes()
    rng = random.Random(0)
    for _ in range(60):
        flip(saved / files.CHECKSUMS, rng.randrange(8 * len(original)))
        try:
            load(saved)  # white space, or a letter in the name of the seal
        except CheckpointError as error:
            assert "checksums.json" in str(error)
        (saved / files.CHECKSUMS).write_bytes(original)


def test_the_changed_file_is_named_and_can_be_accepted(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**config, "id2label": {"0": "other"}}))
    with pytest.raises(CheckpointError, match=r"config\.json has .* bytes, but .* --accept"):
        load(saved)
    glassbert.load(saved, engine="numpy", verify=False)
    assert [one.path for one in verify_files(saved) if one.problem] == [str(saved / "config.json")]
    assert accept_changes(saved) == [str(saved / "config.json")]
    assert accept_changes(saved) == []
    assert load(saved).carried_fields["id2label"] == {"0": "other"}


def test_a_missing_file_is_named(saved: Path) -> None:
    (saved / "vocab.txt").unlink()
    with pytest.raises(CheckpointError, match=r"vocab\.txt is missing"):
        load(saved)


def test_checksums_that_name_files_elsewhere_are_refused(saved: Path) -> None:
    listed = {"files": {"../secret": {"bytes": 1, "blake2b": "0"}}}
    files.write_json(saved / files.CHECKSUMS, listed, sealed=True)
    with pytest.raises(CheckpointError, match="damaged"):
        load(saved)


def test_a_folder_without_checksums_loads(saved: Path) -> None:
    (saved / files.CHECKSUMS).unlink()
    assert_same(tiny(), load(saved))


def test_no_verify(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(saved / "model.safetensors", 8 * (saved / "model.safetensors").stat().st_size - 100)
    monkeypatch.setenv(files.VERIFY, "0")
    load(saved)


def test_files_added_later_are_listed(saved: Path) -> None:
    tokenizer = FastTokenizer.train(["one two three"] * 3, vocab_size=18, min_frequency=1)
    tokenizer.save(saved)
    load(saved)
    tiny().save(saved)
    assert "tokenizer.json" in (files.read_checksums(saved) or {})
    load(saved)


def test_an_interrupted_addition_leaves_no_wrong_checksum(saved: Path) -> None:
    with pytest.raises(KeyboardInterrupt), files.adding_files(saved, ["vocab.txt"]):
        (saved / "vocab.txt").write_text("other")
        raise KeyboardInterrupt
    listed = files.read_checksums(saved)
    assert listed is not None and "vocab.txt" not in listed and "model.safetensors" in listed
    load(saved)


def test_a_tokenizer_alone_is_compared(saved: Path) -> None:
    path = saved / "tokenizer.json"
    path.write_text(path.read_text().replace('"lowercase": true', '"lowercase": false'))
    with pytest.raises(glassbert.GlassBertError, match=r"tokenizer\.json has"):
        load_tokenizer(saved)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    model = tiny()
    model.parameters["layers.1.ffn.up.bias"][3] = value
    model.save(tmp_path)
    with pytest.raises(CheckpointError, match=r"layer\.1\.intermediate\.dense\.bias has 1 values that are not finite"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="not finite"):
        load_weights(tiny(), tmp_path)
    assert not np.isfinite(glassbert.load(tmp_path, engine="numpy", verify=False).parameters["layers.1.ffn.up.bias"][3])


def test_large_finite_weights_are_accepted(tmp_path: Path) -> None:
    model = tiny()
    model.parameters["layers.1.ffn.up.bias"][:] = 3e38  # their sum is beyond float32
    model.save(tmp_path)
    load(tmp_path)


def test_blocks_of_any_size_have_one_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files shorter than, equal to and longer than a block; the last byte and the order of blocks matter."""
    monkeypatch.setattr(files, "BLOCK", 64)
    content = random.Random(1).randbytes(200)
    seen = set()
    for size in (0, 1, 63, 64, 65, 128, 200):
        (tmp_path / "x").write_bytes(content[:size])
        seen.add(files.checksum(tmp_path / "x"))
    (tmp_path / "x").write_bytes(content[64:128] + content[:64] + content[128:])
    seen.add(files.checksum(tmp_path / "x"))
    assert len(seen) == 8


def test_a_copied_folder_keeps_its_checksums(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "copy")
    flip(tmp_path / "copy" / "model.safetensors", 9000)
    load(saved)
    with pytest.raises(CheckpointError, match="copy"):
        load(tmp_path / "copy")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "checksums.json"])
@pytest.mark.parametrize("kind", ["pipe", "zero", "folder", "loop"])
def test_special_files_are_refused_at_once(saved: Path, name: str, kind: str) -> None:
    (saved / name).unlink()
    if kind == "pipe":
        os.mkfifo(saved / name)
    elif kind == "folder":
        (saved / name).mkdir()
    else:
        (saved / name).symlink_to("/dev/zero" if kind == "zero" else name)
    with pytest.raises(CheckpointError):
        load(saved)


@pytest.mark.parametrize("path", ["..", ".", "../other", "/etc", "a/b", "x\0y", 3, None, []])
def test_modules_stay_inside_their_folder(tmp_path: Path, path: object) -> None:
    tiny(BERT, "embedding").save(tmp_path / "model")
    (tmp_path / "config.json").write_text('{"pooling_mode": "max"}')
    modules = json.loads((tmp_path / "model" / "modules.json").read_text())
    modules[1]["path"] = path
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(CheckpointError, match="must name a subfolder"):
        glassbert.load(tmp_path / "model", engine="numpy", head="embedding", verify=False)
