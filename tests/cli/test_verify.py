"""`glassbert verify` on models, runs and corpora."""

import json
import os
import shutil
from pathlib import Path

import pytest

from glassbert.cli import main
from tests.checkpoints.tiny import tiny
from tests.training.toy import make_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("corpus") / "toy")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    return int(ended.value.code or 0)


def flip(path: Path, at: int = -20) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_an_intact_model_and_a_damaged_one(tmp_path, capsys):
    tiny().save(tmp_path)
    assert run("verify", tmp_path) == 0
    assert "all are as they were written" in capsys.readouterr().out
    flip(tmp_path / "model.safetensors")
    assert run("verify", tmp_path) == 1
    printed = capsys.readouterr().out
    assert "model.safetensors has changed" in printed and f"glassbert verify {tmp_path} --accept" in printed
    assert run("verify", tmp_path, "--accept") == 0
    assert run("verify", tmp_path) == 0


def test_a_corpus(corpus, tmp_path, capsys):
    shutil.copytree(corpus, tmp_path / "corpus")
    assert run("verify", tmp_path / "corpus") == 0
    flip(tmp_path / "corpus" / "train-00000.tokens.npy")
    capsys.readouterr()
    assert run("verify", tmp_path / "corpus", "--json") == 1
    (found,) = json.loads(capsys.readouterr().out)["damaged"]
    assert found["path"].endswith("train-00000.tokens.npy") and "build the corpus again" in found["problem"]


def test_the_packaged_model(capsys):
    import glassbert

    assert run("verify", Path(glassbert.__file__).parent / "pretrained" / "mini") == 0


def test_nothing_to_compare(tmp_path, capsys):
    assert run("verify", tmp_path) == 2
    assert "has no checksums" in capsys.readouterr().err
    assert run("verify", tmp_path / "nowhere") == 2


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch, capsys):
    """As another user's would be; the tests may run as root, who reads everything."""
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert run("verify", tmp_path) == 2
    assert "closed cannot be read: Permission denied" in capsys.readouterr().err
