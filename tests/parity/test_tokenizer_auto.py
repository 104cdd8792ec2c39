"""AutoTokenizer opens what we write, and we open what it writes; both give the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from glassbert.text import FastTokenizer, WordPieceTokenizer, load_tokenizer
from glassbert.text.kinds import train_tokenizer
from glassbert.text.normalise import Normaliser
from glassbert.text.wordpiece_files import as_json
from tests.text.tokenizers_for_tests import byte_level_folder, description, unigram_folder

TEXTS = ["The Café players, İ 中 don't [MASK]!", "", "unaffable " * 30, "e\u0301\x00 x\u200by"]


@pytest.mark.parametrize("kind", ["hand", "fast"])
@pytest.mark.parametrize("normaliser", [Normaliser(), Normaliser(lowercase=False), Normaliser(strip_accents=False)])
def test_auto_tokenizer_opens_what_we_write(tmp_path: Path, kind, normaliser):
    described = description(normaliser)
    ours = WordPieceTokenizer(described) if kind == "hand" else FastTokenizer(as_json(described))
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.is_fast and len(theirs) == ours.vocab_size
    assert theirs.convert_tokens_to_ids(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]) == [0, 1, 2, 3, 4]
    assert [theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.mask_token_id] == [0, 1, 2, 4]
    for text in TEXTS:
        for pair in (None, "the water"):
            found = theirs(text, pair, truncation=True, max_length=20, return_offsets_mapping=True)
            mine = ours.encode(text, pair, max_length=20)
            assert found["input_ids"] == mine.ids
            assert found["token_type_ids"] == mine.type_ids
            assert found["offset_mapping"] == mine.offsets
        assert theirs.decode(ours.encode(text).ids, skip_special_tokens=True) == ours.decode(ours.encode(text))


def test_a_batch_is_what_transformers_gives(tmp_path):
    ours = WordPieceTokenizer(description())
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)(TEXTS, padding=True, truncation=True, max_length=16)
    mine = ours.batch(TEXTS, max_length=16)
    for name, array in mine.items():
        assert array.tolist() == theirs[name]


def test_we_open_what_auto_tokenizer_writes(tmp_path):
    ours = WordPieceTokenizer(description())
    ours.save(tmp_path / "ours")
    AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    for found in (WordPieceTokenizer.load(tmp_path / "theirs"), load_tokenizer(tmp_path / "theirs")):
        assert found.fingerprint == ours.fingerprint
        assert found.encode(TEXTS[0]) == ours.encode(TEXTS[0])


@pytest.mark.parametrize("make", [byte_level_folder, unigram_folder])
def test_other_kinds_come_back_as_they_were(tmp_path, make):
    ours = load_tokenizer(make(tmp_path / "other"))
    ours.save(tmp_path / "again")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert theirs("The ship carried tea.")["input_ids"] == ours.encode("The ship carried tea.").ids
    assert theirs.mask_token_id == ours.mask_id and theirs.pad_token_id == ours.pad_id


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_other_kinds_open_in_transformers(kind: str, tmp_path: Path) -> None:
    """A byte-level BPE and a Unigram tokenizer that we have trained: the same ids for texts and pairs, and back."""
    texts = ["the old tree stands", "a red bird sings in the tree, Café!", "naïve 東京 🙂"]
    more = "the king sees a stone, and the river runs"
    tokenizer = train_tokenizer(kind, [*texts, more] * 4, 300 if kind == "bpe" else 40)
    tokenizer.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in texts:
        assert theirs(text)["input_ids"] == list(tokenizer.encode(text).ids)
        assert theirs(text, texts[0])["input_ids"] == list(tokenizer.encode(text, texts[0]).ids)
    assert theirs.mask_token_id == tokenizer.mask_id and theirs.pad_token_id == tokenizer.pad_id
