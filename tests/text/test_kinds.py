"""Training byte-level BPE and Unigram tokenizers: round trips, special tokens, files, and bad input."""

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.text import build_corpus, load_tokenizer
from glassbert.text.kinds import KINDS, train_tokenizer
from tests.training.toy import texts

TEXTS = [*texts(40), "Größe, naïve café — 東京 🙂"]
SIZES = {"wordpiece": 90, "bpe": 300, "unigram": 90}


@pytest.fixture(scope="module", params=KINDS)
def trained(request):
    return request.param, train_tokenizer(request.param, TEXTS, SIZES[request.param])


def test_size_special_tokens_and_ends(trained):
    kind, tokenizer = trained
    assert tokenizer.vocab_size == SIZES[kind] == len(tokenizer.vocabulary)
    row = tokenizer.encode("the old tree", "a bird")
    assert row.ids[0] == tokenizer.cls_id and row.ids[-1] == tokenizer.sep_id
    assert tokenizer.mask_id not in row.ids and len({*tokenizer.special_ids}) == 5
    assert tokenizer.pad_id == (1 if kind == "bpe" else 0)


def test_words_are_whole_or_continued(trained):
    """Masking of words needs to know which tokens continue a word."""
    _, tokenizer = trained
    ids = tokenizer.encode("the small house stands", special_tokens=False).ids
    begins = ~tokenizer.continues_word[np.array(ids)]
    assert 3 <= begins[1:].sum() + 1 <= 4


def test_a_saved_tokenizer_is_the_same(trained, tmp_path):
    _, tokenizer = trained
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint and again.special_names == tokenizer.special_names
    assert again.encode("the red bird").ids == tokenizer.encode("the red bird").ids


def test_bytes_are_never_unknown(trained):
    kind, tokenizer = trained
    if kind == "bpe":
        strange = "\u4e00\U0001f9ff Ünïcode\t!"
        assert tokenizer.decode(tokenizer.encode(strange, special_tokens=False)) == strange


def test_a_corpus_has_the_kind_that_is_asked_for(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(TEXTS), encoding="utf-8")
    corpus = build_corpus([file], tmp_path / "corpus", kind="bpe", vocab_size=300, workers=1)
    assert corpus.tokenizer.kind == "BPE"
    assert corpus.manifest["tokenizer"]["trained"]["kind"] == "bpe"
    with pytest.raises(TextError, match="was not trained with these settings"):
        build_corpus([file], tmp_path / "corpus", kind="unigram", vocab_size=90, workers=1)


def test_bad_kinds_and_sizes():
    with pytest.raises(TextError, match="no kind of tokenizer 'sentencepiece'; choose one of wordpiece, bpe, unigram"):
        train_tokenizer("sentencepiece", TEXTS)
    with pytest.raises(TextError, match=r"a token for every byte.*at least 261, got 100"):
        train_tokenizer("bpe", TEXTS, 100)
    with pytest.warns(UserWarning, match="the text is small"):
        assert train_tokenizer("unigram", ["a b"], 5000).vocab_size < 5000
    with pytest.raises(TextError, match="no kind of tokenizer"):
        build_corpus([], "nowhere", kind="words")


def test_the_packaged_tokenizer_opens_by_its_name_unless_a_folder_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = load_tokenizer("mini")
    assert packaged.vocab_size == 8192 and packaged.vocabulary["door"] > 4
    train_tokenizer("wordpiece", TEXTS, 90).save(tmp_path / "mini")
    assert load_tokenizer("mini").vocab_size == 90
    with pytest.raises(TextError, match="no tokenizer at mnii"):
        load_tokenizer("mnii")


@pytest.mark.parametrize("name", ["é" * 5_000, "a\0b", "\ud800", "~nobody/x"])
def test_a_name_that_no_file_can_have_is_no_tokenizer(name):
    with pytest.raises(TextError, match="no tokenizer at"):
        load_tokenizer(name)
