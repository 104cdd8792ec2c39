"""Builds that are interrupted, that find another corpus in their folder, or that run out of disk space."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from glassbert.errors import GlassBertError, TextError
from glassbert.text import WordPieceTokenizer
from glassbert.text.corpus import Corpus, parts
from glassbert.text.corpus.build_folder import BuildFolder
from tests.text.corpus.sample_corpora import build, fingerprints, stories, write
from tests.text.sample_sentences import SENTENCES


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source.txt", stories(60))


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small units, so that a few kilobytes give several."""
    monkeypatch.setattr(parts, "UNIT", 4000)
    monkeypatch.setattr("glassbert.text.corpus.blocks.BLOCK", 2000)


@pytest.mark.parametrize("survived", range(0, 5, 2))
def test_an_interrupted_build_continues(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    build([source], tmp_path / "whole")
    with monkeypatch.context() as patched:
        stop_after(patched, survived)
        with pytest.raises(KeyboardInterrupt):
            build([source], tmp_path / "out")
    with pytest.raises(TextError, match=r"unfinished: run the same `glassbert corpus build` again"):
        Corpus.open(tmp_path / "out")
    made: list[int] = []
    with monkeypatch.context() as patched:
        count_parts(patched, made)
        build([source], tmp_path / "out")
    assert min(made) == survived and made == sorted(made)
    assert fingerprints(tmp_path / "whole") == fingerprints(tmp_path / "out")


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    real = parts.write_part

    def write_part(folder: Path, number: int, arrays: Any) -> None:
        if number == count:
            raise KeyboardInterrupt
        real(folder, number, arrays)

    monkeypatch.setattr("glassbert.text.corpus.workers.write_part", write_part)


def count_parts(monkeypatch: pytest.MonkeyPatch, made: list[int]) -> None:
    real = parts.write_part

    def write_part(folder: Path, number: int, arrays: Any) -> None:
        made.append(number)
        real(folder, number, arrays)

    monkeypatch.setattr("glassbert.text.corpus.workers.write_part", write_part)


def test_interrupted_during_installation(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build([source], tmp_path / "whole", shard_tokens=500)
    with monkeypatch.context() as patched:
        patched.setattr("glassbert.text.corpus.build_folder.write_json", interrupt_at_manifest)
        with pytest.raises(KeyboardInterrupt):
            build([source], tmp_path / "out", shard_tokens=500)
    assert list((tmp_path / "out").glob("*.npy"))
    with pytest.raises(TextError, match="unfinished"):
        Corpus.open(tmp_path / "out")
    build([source], tmp_path / "out", shard_tokens=500)
    assert fingerprints(tmp_path / "whole") == fingerprints(tmp_path / "out")


def test_interrupted_while_one_corpus_replaces_another(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build([source], tmp_path / "out", shard_tokens=500)
    with monkeypatch.context() as patched:
        patched.setattr("glassbert.text.corpus.build_folder.write_json", interrupt_at_manifest)
        with pytest.raises(KeyboardInterrupt):
            build([source], tmp_path / "out", shard_tokens=900, overwrite=True)
    with pytest.raises(TextError, match="unfinished"):
        Corpus.open(tmp_path / "out")
    build([source], tmp_path / "out", shard_tokens=900).verify()
    build([source], tmp_path / "fresh", shard_tokens=900)
    assert fingerprints(tmp_path / "out") == fingerprints(tmp_path / "fresh")


def test_a_changed_tokenizer(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(source, tmp_path / "out", monkeypatch)
    WordPieceTokenizer.train(SENTENCES, 300, min_frequency=1).save(tmp_path / "out/.building/tokenizer")
    with pytest.raises(TextError, match="tokenizer changed after the build started; use --overwrite"):
        build([source], tmp_path / "out")
    assert build([source], tmp_path / "out", overwrite=True).vocab_size == 400


def interrupt_at_manifest(path: Path, content: Any, **options: Any) -> None:
    if path.name == "manifest.json":
        raise KeyboardInterrupt
    path.write_text(json.dumps(content))


def interrupted(source: Path, output: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    with monkeypatch.context() as patched:
        stop_after(patched, 3)
        with pytest.raises(KeyboardInterrupt):
            build([source], output, **settings)


def test_a_source_that_changed_meanwhile(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(source, tmp_path / "out", monkeypatch)
    text = source.read_text()
    source.write_text(text.replace("a", "e"))  # as long as before
    with pytest.raises(TextError, match=r"source\.txt changed since this build started; use --overwrite"):
        build([source], tmp_path / "out")
    forced = build([source], tmp_path / "out", overwrite=True)
    build([source], tmp_path / "fresh")
    assert fingerprints(forced.folder) == fingerprints(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"min_characters": 5}, "min_characters was 20 and is 5"),
    ],
)
def test_another_build_into_an_unfinished_one(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], match: str
) -> None:
    interrupted(source, tmp_path / "out", monkeypatch)
    with pytest.raises(TextError, match=match):
        build([source], tmp_path / "out", **change)
    build([source], tmp_path / "out", **change, overwrite=True).verify()


def test_other_sources_into_an_unfinished_build(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(source, tmp_path / "out", monkeypatch)
    other = write(tmp_path / "other.txt", stories(3, 500))
    with pytest.raises(TextError, match=r"other\.txt was not among the sources"):
        build([source, other], tmp_path / "out")
    with pytest.raises(TextError, match=r"source\.txt is no longer among the sources"):
        build([other], tmp_path / "out")
    source.write_text(source.read_text() + "more")
    with pytest.raises(TextError, match=r"source\.txt has changed: it had"):
        build([source], tmp_path / "out")


def test_on_bad_text_may_change_after_it_stopped_a_build(tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_bytes("\n\n".join(stories(40)).encode() + b"\n\nA document with \xff in the middle of it.\n")
    with pytest.raises(TextError, match=r"source\.txt, line 201: bytes that are not UTF-8"):
        build([source], tmp_path / "out")
    assert build([source], tmp_path / "out", on_bad_text="skip").manifest["counts"]["unreadable"] == 1


def test_a_damaged_part_is_made_again(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build([source], tmp_path / "whole")
    interrupted(source, tmp_path / "out", monkeypatch)
    part = next(iter(sorted((tmp_path / "out/.building/parts").glob("*.npz"))))
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(TextError, match=r"is damaged .*run the same build again"):
        build([source], tmp_path / "out")
    build([source], tmp_path / "out")
    assert fingerprints(tmp_path / "whole") == fingerprints(tmp_path / "out")


# ---- the folder ----


def test_a_finished_corpus_is_replaced_only_with_force(tmp_path: Path, source: Path) -> None:
    built = build([source], tmp_path / "out")
    before = fingerprints(tmp_path / "out")
    assert build([source], tmp_path / "out").manifest == built.manifest
    with pytest.raises(TextError, match="finished corpus that differs from this one: seed is 0 there and 3 here"):
        build([source], tmp_path / "out", seed=3)
    other = write(tmp_path / "other.txt", stories(4, 300))
    with pytest.raises(TextError, match="other sources"):
        build([other], tmp_path / "out")
    source.write_text(source.read_text().replace("a", "o"))
    with pytest.raises(TextError, match=r"source\.txt has changed since"):
        build([source], tmp_path / "out")
    assert fingerprints(tmp_path / "out") == before
    replaced = build([other], tmp_path / "out", overwrite=True)
    assert replaced.manifest["counts"]["documents_kept"] == 4
    replaced.verify()


def test_a_forced_build_that_fails_leaves_the_old_corpus(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build([source], tmp_path / "out").verify()
    with monkeypatch.context() as patched:
        stop_after(patched, 1)
        with pytest.raises(KeyboardInterrupt):
            build([source], tmp_path / "out", overwrite=True, seed=5)
    Corpus.open(tmp_path / "out").verify()
    assert build([source], tmp_path / "out", overwrite=True, seed=5).manifest["settings"]["seed"] == 5


def test_a_folder_with_other_files(tmp_path: Path, source: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.tex").write_text("years of work")
    with pytest.raises(TextError, match="contains other files"):
        build([source], tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]
    build([source], tmp_path / "out", overwrite=True)
    assert (tmp_path / "out/thesis.tex").read_text() == "years of work"
    with pytest.raises(TextError, match="is a file"):
        build([source], source)


def test_two_builds_at_once(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = BuildFolder.can_resume

    def meanwhile(self: BuildFolder, plan: Any) -> bool:
        with monkeypatch.context() as patched:
            patched.setattr(BuildFolder, "can_resume", real)
            with pytest.raises(TextError, match="another build is running"):
                build([source], tmp_path / "out")
        return real(self, plan)

    monkeypatch.setattr(BuildFolder, "can_resume", meanwhile)
    build([source], tmp_path / "out").verify()


@pytest.mark.parametrize("stage", ["glassbert.text.corpus.parts.np.savez", "numpy.lib.format.write_array"])
def test_a_full_disk(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(stage, full)
        with pytest.raises(GlassBertError, match=r"cannot write .*: the disk is full"):
            build([source], tmp_path / "out")
    with pytest.raises(TextError, match="unfinished"):
        Corpus.open(tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.part"))
    build([source], tmp_path / "out").verify()
