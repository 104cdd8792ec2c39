"""`glassbert tokenizer train | encode | inspect`."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glassbert.cli.tokenizer import app
from glassbert.errors import TextError
from glassbert.text import WordPieceTokenizer, load_tokenizer
from tests.text.sample_sentences import SENTENCES
from tests.text.tokenizers_for_tests import byte_level_folder, description


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    WordPieceTokenizer(description()).save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def run(*arguments: object, **options) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(map(str, arguments)), catch_exceptions=False, **options)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("option", ["--hand", "--fast"])
def test_train(tmp_path, option):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "a.txt").write_text("\n\n".join(SENTENCES[:16]), encoding="utf-8")
    (sources / "b.txt.xz").write_bytes(lzma.compress("\n\n".join(SENTENCES[16:]).encode()))
    output = tmp_path / "tokenizer"
    printed = run("train", sources, "-o", output, "--vocab-size", 220, option)
    assert "220 entries" in printed
    assert load_tokenizer(output).vocab_size == 220
    with pytest.raises(TextError, match="already contains a tokenizer; add --overwrite"):
        run("train", sources, "-o", output, "--vocab-size", 220)
    run("train", sources, "-o", output, "--vocab-size", 230, "--overwrite", "--cased")
    again = load_tokenizer(output)
    assert again.vocab_size == 230 and "T" in again.vocabulary


def test_a_failed_training_writes_nothing(tmp_path):
    (tmp_path / "a.txt").write_text("\x00 \x01")
    with pytest.raises(TextError, match="contains no words"):
        run("train", tmp_path / "a.txt", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_small_text_gives_a_small_vocabulary(tmp_path):
    (tmp_path / "a.txt").write_text("hardly any text")
    printed = run("train", tmp_path / "a.txt", "-o", tmp_path / "out")
    assert "entries trained" in printed and load_tokenizer(tmp_path / "out").vocab_size < 100


@pytest.mark.parametrize("option", ["--hand", "--fast"])
def test_encode_shows_reasons(folder, option):
    printed = run("encode", folder, "The unaffable snow☃", "Cafés", option)
    assert "[CLS] the un ##aff ##able [UNK] [SEP] cafe ##s [SEP]" in printed
    assert "##aff after ##affabl, ##affab, ##affa" in printed
    assert "no match at '☃'" in printed
    assert "Cafés → cafes" in printed


def test_encode_from_standard_input_as_json(folder):
    encoding = json.loads(run("encode", folder, "-", "--json", "--max-length", 4, input="the players play\n"))
    assert encoding["tokens"] == ["[CLS]", "the", "play", "[SEP]"]
    assert encoding["offsets"] == [[0, 0], [0, 3], [4, 8], [0, 0]]


def test_encode_with_another_kind(tmp_path):
    assert "this is BPE" in run("encode", byte_level_folder(tmp_path / "other"), "The ship")


def test_inspect(folder):
    printed = run("inspect", folder)
    described = description()
    assert f"{len(described.tokens):,}" in printed and "[MASK] 4" in printed
    assert WordPieceTokenizer(described).fingerprint in printed
    assert "lower case, accents stripped" in printed and "unreachable" in printed and "vocab.txt (" in printed
    facts = json.loads(run("inspect", folder / "vocab.txt", "--json"))
    assert facts["entries"] == len(described.tokens) and facts["kind"] == "WordPiece"
