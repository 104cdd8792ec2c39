"""New pieces of a vocabulary, and corpora in other pieces."""

from collections import Counter

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.text import FastTokenizer, WordPieceTokenizer
from glassbert.text.corpus import write_corpus
from glassbert.text.corpus.resplit import count_corpus_words, resplit
from glassbert.text.new_pieces import choose_pieces, extended, replaced_pieces
from glassbert.text.normalise import Normaliser
from glassbert.text.wordpiece import WordPiece
from glassbert.text.wordpiece_files import Description, as_json

LETTERS = tuple("abcdefghijklmnopqrstuvwxyz.")
TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *("ker", "##nel", "the", "##ing", "read"),
)
OLD = Description(TOKENS)
WORDS = Counter({"kernel": 90, "kernels": 30, "reading": 20, "the": 500, "rare": 1})


def test_pieces_that_save_most_tokens_are_taken_first():
    pieces = choose_pieces(WORDS, OLD, 2)
    assert [piece.token for piece in pieces] == ["kernel", "kernels"]
    assert [(piece.uses, piece.saved) for piece in pieces] == [(90, 90), (30, 60)]
    assert pieces[0].replaces == (OLD.vocabulary["ker"], OLD.vocabulary["##nel"])


def test_rare_words_and_words_that_are_one_piece_give_none():
    tokens = {piece.token for piece in choose_pieces(WORDS, OLD, 100)}
    assert tokens == {"kernel", "kernels", "reading"}
    assert choose_pieces(WORDS, OLD, 0) == []
    with pytest.raises(TextError, match="at least 0"):
        choose_pieces(WORDS, OLD, -1)


def test_characters_that_are_missing_come_first():
    pieces = choose_pieces(Counter({"жук": 50, "kernel": 900}), OLD, 6)
    tokens = [piece.token for piece in pieces]
    assert {"ж", "##у", "##к"} == set(tokens[:3]) and "kernel" in tokens
    new = WordPieceTokenizer(extended(OLD, pieces))
    assert "[UNK]" not in new.tokenize("жук")
    unknown = next(piece for piece in pieces if piece.token == "ж")
    assert unknown.replaces == (OLD.vocabulary["[UNK]"],)


def test_the_old_pieces_of_a_piece_inside_a_word():
    old = WordPiece(OLD.vocabulary)
    assert replaced_pieces("##nels", old) == (OLD.vocabulary["##nel"], OLD.vocabulary["##s"])
    assert replaced_pieces("nels", old) == tuple(OLD.vocabulary[token] for token in ("n", "##e", "##l", "##s"))
    assert replaced_pieces("##я", old) == (OLD.vocabulary["[UNK]"],)


def test_both_tokenizers_read_the_extended_vocabulary_alike():
    new = extended(OLD, choose_pieces(WORDS, OLD, 3))
    slow, fast = WordPieceTokenizer(new), FastTokenizer(as_json(new))
    text = "The kernels are reading kernel . kernelx"
    assert slow.encode(text).ids == fast.encode(text).ids
    assert np.array_equal(slow.encode_ids([text])[0], fast.encode_ids([text])[0])
    assert new.tokens[: len(OLD.tokens)] == OLD.tokens  # old ids stay
    assert new.vocabulary["kernels"] in slow.encode(text).ids


DOCUMENTS = [
    f"the kernel {word} reading. kernels read the kernel ж." for word in ("reads", "the", "kernels", "abc")
] * 5


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    new = extended(OLD, choose_pieces(WORDS, OLD, 3))
    build = {"validation": 0.2, "shard_tokens": 60}
    return (
        write_corpus(folder / "old", WordPieceTokenizer(OLD), DOCUMENTS, **build),
        write_corpus(folder / "new", WordPieceTokenizer(new), DOCUMENTS, **build),
        new,
    )


def flat(corpus, split):
    shards = corpus.split(split).shards
    tokens = [np.asarray(shard.tokens) for shard in shards]
    sentences = [np.diff(shard.sentence_ends.astype(int), prepend=0) for shard in shards]
    documents = [np.diff(shard.document_ends.astype(int), prepend=0) for shard in shards]
    return [np.concatenate(arrays).tolist() for arrays in (tokens, sentences, documents)]


def test_a_corpus_in_other_pieces_equals_one_built_with_them(corpora, tmp_path):
    old, new, description = corpora
    found = resplit(old, description, tmp_path / "found")
    back = resplit(found, OLD, tmp_path / "back")
    for split in ("train", "validation"):
        assert flat(found, split) == flat(new, split)
        assert flat(back, split) == flat(old, split)
    found.verify()
    assert found.tokenizer.fingerprint == description.fingerprint


def test_one_split_alone(corpora, tmp_path):
    old, _, description = corpora
    found = resplit(old, description, tmp_path / "found", ["validation"])
    assert found.split("train").tokens == 0 and found.split("validation").tokens > 0


def test_words_of_a_corpus_are_counted(corpora):
    counts = count_corpus_words(corpora[0], "train") + count_corpus_words(corpora[0], "validation")
    assert counts["kernel"] == 2 * len(DOCUMENTS) and "[UNK]" not in counts and counts["read"] == len(DOCUMENTS)


def test_another_normaliser_is_refused(corpora, tmp_path):
    other = Description(TOKENS, Normaliser(lowercase=False))
    with pytest.raises(TextError, match="another kind of tokenizer"):
        resplit(corpora[0], other, tmp_path / "found")
