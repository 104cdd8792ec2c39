"""A build from sources to shards: all text is in the shards, and the result is deterministic."""

from __future__ import annotations

import io
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.text.corpus import build_corpus, parts, workers, write_corpus
from tests.text.corpus.sample_corpora import build, fingerprints, stories, texts, tokenizer, write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source.txt", stories(60))


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small units, so that a few kilobytes give several."""
    monkeypatch.setattr(parts, "UNIT", 4000)
    monkeypatch.setattr("glassbert.text.corpus.blocks.BLOCK", 2000)


def test_all_text_is_in_the_corpus(tmp_path: Path, source: Path) -> None:
    corpus = build([source], tmp_path / "out", validation=0.1, shard_tokens=1000)
    train, validation = corpus.split("train"), corpus.split("validation")
    assert len(train.shards) > 2 and 1 <= validation.documents < 15
    assert train.documents + validation.documents == 60 == corpus.manifest["counts"]["documents_kept"]
    expected = sorted(story.lower().replace("\n", " ") for story in stories(60))
    found = [text.replace(" |", "") for split in ("train", "validation") for text in texts(corpus, split)]

    def letters(many: list[str]) -> list[str]:
        return sorted("".join(filter(str.isalnum, text)) for text in many)

    assert letters(found) == letters(expected)
    for shard, following in pairwise(train.shards):
        assert len(shard.tokens) + int(following.document_token_ends[0]) > 1000  # it would not have fitted
    for shard in train.shards + validation.shards:
        assert shard.tokens.dtype == np.uint16 and len(shard.tokens) <= 1000
        assert int(shard.sentence_ends[-1]) == len(shard.tokens)
        assert int(shard.document_ends[-1]) == len(shard.sentence_ends)
        assert (np.diff(shard.sentence_ends.astype(int)) > 0).all()
        assert int(shard.document_token_ends[-1]) == len(shard.tokens)
    corpus.verify()
    assert not (tmp_path / "out" / ".building").exists()


def test_documents_have_their_source_numbers(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.txt", stories(60)), write(tmp_path / "b.txt", stories(70, 100))
    corpus = build([one, two], tmp_path / "out")
    assert [source["documents"] for source in corpus.manifest["sources"]] == [60, 70]
    numbers = np.concatenate([shard.document_sources for split in corpus.splits.values() for shard in split.shards])
    assert np.bincount(numbers).tolist() == [60, 70]
    held = np.concatenate([shard.document_sources for shard in corpus.split("validation").shards])
    assert set(held.tolist()) == {0, 1}
    assert one.stat().st_size == corpus.manifest["sources"][0]["bytes"]


def test_the_same_bytes_for_any_number_of_workers(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build([source], tmp_path / "one", near_duplicates=0.7)
    build([source], tmp_path / "two", near_duplicates=0.7, workers=2)
    assert fingerprints(tmp_path / "one") == fingerprints(tmp_path / "two")


def test_nothing_left(tmp_path: Path) -> None:
    source = write(tmp_path / "a.txt", ["short", "12345 67890 12345 67890", "tiny"])
    with pytest.raises(TextError, match="none of the 3 documents read is left: 1 noise, 2 too_short"):
        build([source], tmp_path / "out")
    with pytest.raises(TextError, match="no build setting 'sed'; use layout"):
        build([source], tmp_path / "out", sed=1)
    with pytest.raises(TextError, match="layout must be one of paragraphs"):
        build([source], tmp_path / "out", layout="columns")


def test_a_tokenizer_is_trained_on_the_sources(tmp_path: Path, source: Path) -> None:
    one = build_corpus([source], tmp_path / "one", vocab_size=250, workers=1, near_duplicates=None)
    assert one.vocab_size == one.tokenizer.vocab_size == 250
    assert one.manifest["counts"]["unknown_tokens"] == 0
    build_corpus([source], tmp_path / "two", vocab_size=250, workers=1, near_duplicates=None)
    assert fingerprints(tmp_path / "one") == fingerprints(tmp_path / "two")
    with pytest.raises(TextError, match="tokenizer was not trained with these settings"):
        build_corpus([source], tmp_path / "one", vocab_size=200, workers=1, near_duplicates=None)


def test_special_tokens_written_in_the_text(tmp_path: Path) -> None:
    source = write(
        tmp_path / "a.txt", ["The token [MASK] stands between [CLS] and [SEP], as everybody knows.", "[PAD]" * 9]
    )
    corpus = build([source], tmp_path / "out", validation=0.0)
    assert corpus.manifest["counts"]["special_tokens"] == 12 and corpus.manifest["counts"]["documents_kept"] == 1
    special = set(corpus.tokenizer.special_ids) - {corpus.tokenizer.unknown_id}
    assert not special & set(corpus.split("train").shards[0].tokens.tolist())


def test_standard_input(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(source.read_bytes())))
    corpus = build(["-"], tmp_path / "out")
    assert corpus.manifest["sources"][0]["name"] == "standard input"
    assert corpus.manifest["counts"]["documents_kept"] == 60
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(TextError, match="standard input is empty"):
        build(["-"], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_documents_in_memory(tmp_path: Path) -> None:
    documents = ["One text. Two sentences.", ["A paragraph.", "Another one."], "One text. Two sentences."]
    corpus = write_corpus(tmp_path / "out", tokenizer(), documents, validation=0.0)
    assert texts(corpus, "train") == [
        "one text. | two sentences.",
        "a paragraph. | another one.",
        "one text. | two sentences.",
    ]


def test_progress_is_reported(tmp_path: Path, source: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    build_corpus(
        [source],
        tmp_path / "out",
        vocab_size=250,
        workers=1,
        near_duplicates=None,
        progress=lambda now: reports.append((now.stage, now.done, now.total)),
    )
    size = source.stat().st_size
    assert list(dict.fromkeys(stage for stage, _, _ in reports)) == ["vocabulary", "reading", "writing"]
    assert ("reading", size, size) in reports and reports[-1][1] == reports[-1][2]


def test_a_killed_worker(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures.process import BrokenProcessPool

    def broken(self: Any, *args: Any) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr("glassbert.text.corpus.workers.ProcessPoolExecutor.submit", broken)
    with pytest.raises(TextError, match=r"a worker process was killed.*run the same build again"):
        build([source], tmp_path / "out", workers=2)


def test_units_are_read_no_faster_than_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    made: list[int] = []

    def units() -> Any:
        for number in range(50):
            read.append(number)
            yield parts.Unit(number, []), ""

    monkeypatch.setattr(workers, "make", lambda unit, digest, job: made.append(unit.number))
    for _ in workers.make_all(units(), None, 1):  # type: ignore[arg-type]
        assert len(read) <= len(made) + 1
    assert made == list(range(50))


def test_a_script_without_a_main_guard_is_run_once(tmp_path: Path) -> None:
    """A spawned process imports the main script unless it is hidden."""
    source = write(tmp_path / "text.txt", stories(60))
    script = tmp_path / "script.py"
    script.write_text(
        "from glassbert.text.corpus import blocks, build_corpus, parts\n"
        "parts.UNIT, blocks.BLOCK = 4000, 2000\n"
        "print('run')\n"
        f"build_corpus([{str(source)!r}], 'corpus', vocab_size=150, workers=2, near_duplicates=None)\n"
        "print('built')\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, ["run", "built"]), done.stderr
