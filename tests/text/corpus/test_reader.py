"""Opening a corpus that is missing, unfinished, truncated, changed or has another tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.text import WordPieceTokenizer
from glassbert.text.corpus import Corpus, write_corpus
from tests.text.corpus.sample_corpora import stories, tokenizer
from tests.text.sample_sentences import SENTENCES


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "whole"
    write_corpus(folder, tokenizer(), stories(60), validation=0.1, shard_tokens=1000)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "corpus"))


def assert_error(folder: Path, match: str) -> None:
    with pytest.raises(TextError, match=match):
        Corpus.open(folder)


def test_opening(folder: Path) -> None:
    corpus = Corpus.open(folder)
    assert corpus.tokenizer is corpus.tokenizer and corpus.tokenizer.fingerprint == tokenizer().fingerprint
    flags = corpus.split("train").shards[0].tokens.flags
    assert not flags.owndata and not flags.writeable  # mapped
    assert corpus.split("train").shards[0].name == "train-00000"
    with pytest.raises(TextError, match="no split 'test'; use train or validation"):
        corpus.split("test")
    read: list[int] = []
    corpus.verify(read.append)
    assert sum(read) == sum(path.stat().st_size for path in folder.iterdir() if path.name != "manifest.json")


def test_no_corpus(folder: Path, tmp_path: Path) -> None:
    assert_error(tmp_path / "nowhere", "there is no corpus .*nowhere: build one with `glassbert corpus build")
    assert_error(folder / "vocab.txt", "is a file, but a corpus is a folder")
    assert_error(tmp_path, r"contains no corpus: it has no manifest\.json")
    (folder / "manifest.json").unlink()
    (folder / ".building").mkdir()
    assert_error(folder, "unfinished")


@pytest.mark.parametrize("array", ["tokens", "sentences", "documents"])
def test_a_truncated_shard(folder: Path, array: str) -> None:
    path = folder / f"train-00001.{array}.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-2])
    assert_error(folder, rf"train-00001\.{array}\.npy was truncated: it has")
    path.write_bytes(whole + b"\0")
    assert_error(folder, "was changed: it has")
    path.unlink()
    assert_error(folder, rf"{array}\.npy is missing")
    path.write_bytes(b"\0" * len(whole))
    assert_error(folder, "is not an array")
    np.save(path, np.arange(5, dtype=np.float32))
    edit(folder, lambda manifest: file_facts(manifest, path.name).update(bytes=path.stat().st_size))
    assert_error(folder, r"contains float32 \(5,\), expected uint")


def test_a_pickle_is_not_opened(folder: Path) -> None:
    path = folder / "train-00000.tokens.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    edit(folder, lambda manifest: file_facts(manifest, path.name).update(bytes=path.stat().st_size))
    assert_error(folder, "is not an array")


@pytest.mark.parametrize("name", ["train-00000.tokens.npy", "validation-00000.documents.npy", "vocab.txt"])
def test_changed_files(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[-9] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(TextError, match=f"{name} has changed since it was written"):
        Corpus.open(folder).verify()


def test_another_tokenizer(folder: Path, tmp_path: Path) -> None:
    other = WordPieceTokenizer.train(SENTENCES, 300, min_frequency=1)
    with pytest.raises(TextError, match=r"was built with another tokenizer \(400 entries.*\(300 entries"):
        Corpus.open(folder).check_tokenizer(other)
    other.save(folder)
    with pytest.raises(TextError, match="was built with another tokenizer"):
        _ = Corpus.open(folder).tokenizer


def file_facts(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
    return next(shard["files"][name] for shard in shards if name in shard["files"])


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.pop("checksum", None)
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda m: m.update(version=2), "format version 2, but this GlassBERT reads version 1"),
        (lambda m: m.update(format="other"), "is not the manifest of a corpus"),
        (lambda m: m.pop("tokenizer"), "damaged: .*tokenizer"),
        (lambda m: m["splits"].pop("validation"), "damaged: .*validation"),
        (lambda m: m["splits"]["train"].update(tokens=5), "gives 5 tokens for train, but the shards contain"),
        (lambda m: m["splits"]["train"]["shards"][0].update(tokens=5), r"expected uint16 \(5,\)"),
        (lambda m: m["splits"]["train"]["shards"][0]["files"].pop("train-00000.tokens.npy"), "does not list"),
        (
            lambda m: m["splits"]["train"]["shards"][0]["files"].update({"../x": {"bytes": 1, "sha256": "0" * 64}}),
            "damaged",
        ),
    ],
)
def test_a_wrong_manifest(folder: Path, change: Callable[[Any], object], match: str) -> None:
    edit(folder, change)
    assert_error(folder, match)


@pytest.mark.parametrize("content", ["", "{", "[1]", '"text"', "[" * 100_000])
def test_a_manifest_that_is_not_one(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    assert_error(folder, "is not JSON|must hold a JSON object|is not the manifest of a corpus")
