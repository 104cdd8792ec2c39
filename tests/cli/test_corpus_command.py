"""`glassbert corpus build` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from glassbert.cli.corpus import app
from glassbert.errors import GlassBertError
from glassbert.text.corpus import Corpus
from tests.text.corpus.sample_corpora import stories, tokenizer, write


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["build", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source.txt", [*stories(60), stories(1)[0]])


def test_build_prints_a_summary(tmp_path: Path, source: Path) -> None:
    tokenizer().save(tmp_path / "tokenizer")
    options = ("-o", tmp_path / "out", "--tokenizer", tmp_path / "tokenizer", "--workers", 1)
    output = " ".join(run(source, *options, "--keep-near-duplicates").split())
    assert "documents read 61 left out: exact duplicates 1 documents kept 60" in output
    assert "vocabulary 400 unknown tokens 0.000%" in output and "MB of text in" in output
    assert "already exists with the same sources" in run(source, *options, "--keep-near-duplicates")
    corpus = Corpus.open(tmp_path / "out")
    assert f"train: tokens {corpus.split('train').tokens:,}" in output


def test_options_reach_the_build(tmp_path: Path, source: Path) -> None:
    run(
        *(source, "-o", tmp_path / "out", "--vocab-size", 250, "--cased", "--layout", "lines", "--no-clean"),
        *("--min-characters", 3, "--keep-duplicates", "--keep-near-duplicates", "--validation", 0.2, "--seed", 7),
        *("--shard-tokens", 900, "--workers", 1, "--on-bad-text", "skip"),
    )
    corpus = Corpus.open(tmp_path / "out")
    settings = corpus.manifest["settings"]
    assert (settings["layout"], settings["clean"], settings["min_characters"]) == ("lines", False, 3)
    assert (settings["exact_duplicates"], settings["near_duplicates"]) == (False, None)
    assert (settings["validation"], settings["seed"], settings["shard_tokens"]) == (0.2, 7, 900)
    assert corpus.vocab_size == 250 and settings["on_bad_text"] == "skip"
    assert corpus.manifest["counts"]["documents_read"] == 61 * 4
    assert corpus.tokenizer.encode("Paris").ids != corpus.tokenizer.encode("paris").ids


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(GlassBertError, match=r"there is no file or folder .*none\.txt"):
        run(tmp_path / "none.txt", "-o", tmp_path / "out")
    with pytest.raises(GlassBertError, match="layout must be one of"):
        run(tmp_path, "-o", tmp_path / "out", "--layout", "sideways")
    assert not (tmp_path / "out").exists()
