"""Loading and saving tokenizers: GlassBERT's, Hugging Face's, other kinds, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glassbert.errors import GlassBertError, TextError
from glassbert.text import FastTokenizer, WordPieceTokenizer, load_tokenizer
from glassbert.text.normalise import Normaliser
from glassbert.text.wordpiece_files import FILES, as_json
from tests.text.tokenizers_for_tests import byte_level_folder, description, unigram_folder

TEXT = "The Café players, İ 中 [MASK]!"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    WordPieceTokenizer(description()).save(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.mark.parametrize("normaliser", [Normaliser(), Normaliser(lowercase=False), Normaliser(strip_accents=False)])
@pytest.mark.parametrize("kept", [FILES, ("tokenizer.json",), ("vocab.txt", "tokenizer_config.json")])
def test_round_trips(tmp_path, normaliser, kept):
    hand = WordPieceTokenizer(description(normaliser))
    hand.save(tmp_path)
    for name in set(FILES) - set(kept):
        (tmp_path / name).unlink()
    for found in (WordPieceTokenizer.load(tmp_path), load_tokenizer(tmp_path), load_tokenizer(tmp_path / kept[0])):
        assert found.fingerprint == hand.fingerprint
        assert found.encode(TEXT) == hand.encode(TEXT)


def test_both_implementations_write_the_same_files(tmp_path):
    WordPieceTokenizer(description()).save(tmp_path / "hand")
    FastTokenizer(as_json(description())).save(tmp_path / "fast")
    assert sorted(path.name for path in (tmp_path / "hand").iterdir()) == sorted(FILES)
    for name in FILES:
        assert (tmp_path / "hand" / name).read_bytes() == (tmp_path / "fast" / name).read_bytes()


def test_tokenizer_json_is_what_tokenizers_would_write(folder):
    ours = json.loads((folder / "tokenizer.json").read_text())
    assert json.loads(load_tokenizer(folder)._rust.to_str()) == ours


def test_truncation_and_padding_in_a_file_are_ignored(folder):
    path = folder / "tokenizer.json"
    load_tokenizer(folder)._rust.enable_truncation(5)
    rust = load_tokenizer(folder)._rust
    rust.enable_truncation(5)
    rust.enable_padding(length=50)
    rust.save(str(path))
    assert len(load_tokenizer(folder).encode("the " * 20)) == 22


@pytest.mark.parametrize("place", ["model", "tokenizer"])
def test_the_folder_of_a_run(tmp_path, place):
    hand = WordPieceTokenizer(description())
    hand.save(tmp_path / "run" / place)
    assert load_tokenizer(tmp_path / "run").fingerprint == hand.fingerprint
    assert WordPieceTokenizer.load(tmp_path / "run").fingerprint == hand.fingerprint


def test_windows_line_ends_in_a_vocabulary(folder):
    (folder / "tokenizer.json").unlink()
    vocabulary = folder / "vocab.txt"
    vocabulary.write_bytes(vocabulary.read_bytes().replace(b"\n", b"\r\n"))
    assert WordPieceTokenizer.load(folder).fingerprint == WordPieceTokenizer(description()).fingerprint


# ---- other kinds ----


@pytest.mark.parametrize("make", [byte_level_folder, unigram_folder])
def test_other_kinds_are_loaded_by_the_same_function(tmp_path, make):
    tokenizer = load_tokenizer(make(tmp_path / "other"))
    text = "The ship carried tea, silk and spices from the east."
    encoding = tokenizer.encode(text)
    assert tokenizer.decode(encoding) == text
    assert (encoding.ids[0], encoding.ids[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
    ids, counts = tokenizer.encode_ids([text, "", text])
    assert ids.tolist() == encoding.ids[1:-1] * 2 and counts.tolist() == [len(encoding) - 2, 0, len(encoding) - 2]
    assert len(tokenizer.encode(text, text, max_length=12)) == 12
    assert len({tokenizer.pad_id, tokenizer.unknown_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}) == 5
    tokenizer.save(tmp_path / "again")
    again = load_tokenizer(tmp_path / "again")
    assert again.encode(text) == encoding and again.fingerprint == tokenizer.fingerprint
    with pytest.raises(TextError, match="with load_tokenizer"):
        WordPieceTokenizer.load(tmp_path / "other")


def test_an_earlier_truncation_has_no_effect(tmp_path):
    folder = byte_level_folder(tmp_path / "other")
    tokenizer = load_tokenizer(folder)
    text = "The ship carried tea, silk and spices from the east."
    whole = tokenizer.encode_ids([text])[0].tolist()
    tokenizer.encode(text, max_length=5)
    assert tokenizer.encode_ids([text])[0].tolist() == whole
    tokenizer._rust.enable_truncation(5)
    tokenizer._rust.save(str(folder / "tokenizer.json"))
    assert load_tokenizer(folder).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(("make", "mark"), [(byte_level_folder, "Ġ"), (unigram_folder, "▁")])
def test_words_start_with_the_space_mark_in_other_kinds(tmp_path, make, mark):
    tokenizer = load_tokenizer(make(tmp_path / "other"))
    for token, id in tokenizer.vocabulary.items():
        expected = not token.startswith(mark) and id not in tokenizer.special_ids
        assert tokenizer.continues_word[id] == expected, token


# ---- bad files ----


def edit(folder: Path, change) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("load", [WordPieceTokenizer.load, load_tokenizer])
class TestBadFiles:
    def assert_error(self, load, path: Path, culprit: str) -> None:
        with pytest.raises(TextError, match=culprit) as caught:
            load(path)
        assert str(path) in str(caught.value)

    def test_missing_files(self, load, tmp_path):
        self.assert_error(load, tmp_path, "neither tokenizer.json nor vocab.txt")
        self.assert_error(load, tmp_path / "nowhere", "no such file or folder")

    @pytest.mark.parametrize("content", ["{", "[]", "", '{"version": "1.0"}', "\x00"])
    def test_broken_json(self, load, folder, content):
        (folder / "tokenizer.json").write_text(content)
        self.assert_error(load, folder, "JSON|cannot be loaded|the model of .* is missing")

    @pytest.mark.parametrize("name", ["[PAD]", "[UNK]", "[MASK]"])
    def test_a_vocabulary_without_special_tokens(self, load, folder, name):
        (folder / "tokenizer.json").unlink()
        vocabulary = folder / "vocab.txt"
        vocabulary.write_text(vocabulary.read_text().replace(f"{name}\n", ""))
        self.assert_error(load, folder, rf"has no \{name}")

    def test_a_json_without_special_tokens(self, load, folder):
        def change(content):
            content["added_tokens"] = []
            tokens = [token for token in content["model"]["vocab"] if token != "[MASK]"]
            content["model"]["vocab"] = {token: id for id, token in enumerate(tokens)}

        edit(folder, change)
        self.assert_error(load, folder, r"\[MASK\]|special")

    def test_a_token_twice(self, load, folder):
        (folder / "tokenizer.json").unlink()
        with open(folder / "vocab.txt", "a", encoding="utf-8") as file:
            file.write("the\n")
        self.assert_error(load, folder, r"contains 'the' twice, in lines \d+ and \d+")

    def test_a_vocabulary_that_is_not_utf8(self, load, folder):
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.txt").write_bytes(b"\xff\xfe\n")
        self.assert_error(load, folder, "cannot be read")


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        (lambda c: c["normalizer"].update(type="Lowercase"), "the normalizer of .* is Lowercase"),
        (lambda c: c.update(pre_tokenizer=None), "the pre_tokenizer of .* is missing"),
        (lambda c: c["model"].update(continuing_subword_prefix="@@"), "does not use ## for continuations"),
        (lambda c: c["model"]["vocab"].update(new=10_000), "without gaps"),
        (lambda c: c["added_tokens"][4].update(lstrip=True), r"defines '\[MASK\]' differently"),
        (lambda c: c["added_tokens"].append({"content": "the", "id": 7}), "defines 'the' differently"),
    ],
)
def test_files_that_only_the_fast_tokenizer_loads(folder, change, culprit):
    edit(folder, change)
    with pytest.raises(TextError, match=culprit):
        WordPieceTokenizer.load(folder)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(GlassBertError, match="cannot write"):
        WordPieceTokenizer(description()).save(tmp_path / "file")
