"""Training a vocabulary: compared with a slow implementation and with `tokenizers`, and in bounded memory."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from glassbert.errors import TextError
from glassbert.text import FastTokenizer, WordPieceTokenizer, vocabulary_training
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import SPECIAL_TOKENS
from glassbert.text.vocabulary_training import (
    PairMerger,
    WordCounts,
    character_limit,
    character_tokens,
    choose_normaliser,
    count_words,
    train_from_counts,
    train_vocabulary,
)
from tests.text.sample_sentences import SENTENCES

HUGS = ["hug " * 10, "pug " * 5, "pun " * 12, "bun " * 4, "hugs " * 5]


def trained_slowly(counts: Counter[str], size: int) -> list[str]:
    """A vocabulary trained by counting all pairs again before every merge."""
    tokens = [*SPECIAL_TOKENS, *character_tokens(counts, 1000, 1.0)]
    ids = {token: id for id, token in enumerate(tokens)}
    words = [([c if i == 0 else f"##{c}" for i, c in enumerate(word)], count) for word, count in counts.items()]
    while len(tokens) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words:
            for pair in pairwise(word):
                pairs[pair] += count
        left, right = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        merged = left + right.removeprefix("##")
        if merged not in ids:
            ids[merged] = len(tokens)
            tokens.append(merged)
        for word, _ in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == (left, right):
                    word[i : i + 2] = [merged]
                i += 1
    return tokens


@pytest.mark.parametrize("seed", range(5))
def test_each_merge_is_the_most_frequent_pair(seed, monkeypatch):
    monkeypatch.setattr(vocabulary_training, "COVERAGE", 1.0)
    rng = random.Random(seed)
    counts = Counter({"".join(rng.choices("aabc", k=rng.randint(1, 9))): rng.randint(1, 9) for _ in range(150)})
    trained = train_from_counts(WordCounts(counts), 120, 1)
    assert list(trained) == trained_slowly(counts, 120)


def test_an_existing_entry_is_not_added_again():
    merger = PairMerger(Counter({"ab": 3, "abb": 2}), ["a", "##b", "ab"])
    assert list(merger.merges(1)) == ["abb"]
    assert merger.words == [[2], [3]]


def test_the_example_of_the_documentation():
    tokens = WordPieceTokenizer.train(HUGS, 19, min_frequency=1).description.tokens
    assert tokens[:5] == SPECIAL_TOKENS
    assert tokens[5:16] == ("b", "g", "h", "n", "p", "s", "u", "##g", "##n", "##s", "##u")
    assert tokens[16:] == ("##ug", "##un", "hug")


def test_tokenizers_trains_the_same_vocabulary(monkeypatch):
    """Pair counts are distinct, because `tokenizers` breaks ties at random."""
    monkeypatch.setattr(vocabulary_training, "COVERAGE", 1.0)
    rng = random.Random(7)
    words = ["".join(rng.choices("etaoinshrdlu", range(12, 0, -1), k=rng.randint(2, 8))) for _ in range(300)]
    text = " ".join(word for i, word in enumerate(words) for _ in range(1 + i * i % 97))
    ours = train_from_counts(count_words([text], Normaliser()), 90, 2)
    theirs = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    theirs.train_from_iterator(
        [text], trainers.WordPieceTrainer(vocab_size=90, special_tokens=list(SPECIAL_TOKENS), show_progress=False)
    )
    assert set(ours) == set(theirs.get_vocab())


@pytest.mark.parametrize("kind", [WordPieceTokenizer, FastTokenizer])
@pytest.mark.parametrize("size", [60, 300])
def test_the_vocabulary_has_the_requested_size(kind, size):
    tokenizer = kind.train(SENTENCES, size, min_frequency=1)
    assert tokenizer.vocab_size == size
    assert tuple(tokenizer.vocabulary[token] for token in SPECIAL_TOKENS) == (0, 1, 2, 3, 4)
    assert tokenizer.decode(tokenizer.encode("the water of the sea")) == "the water of the sea"


def test_the_same_text_gives_the_same_vocabulary_in_any_order():
    one = WordPieceTokenizer.train(SENTENCES, 400, min_frequency=1)
    other = WordPieceTokenizer.train(reversed(SENTENCES), 400, min_frequency=1)
    assert one.fingerprint == other.fingerprint


def test_capitals_and_accents_can_be_kept():
    tokens = WordPieceTokenizer.train(["Élan élan Elan"] * 3, 19, lowercase=False, min_frequency=1).vocabulary
    assert {"É", "é", "E"} <= set(tokens)


def test_progress_is_reported():
    steps = []
    WordPieceTokenizer.train(SENTENCES * 40, 300, progress=lambda *step: steps.append(step))
    assert {stage for stage, _, _ in steps} == {"counting words", "merging tokens"}
    assert steps[-1][1:] == (300, 300)


def test_special_tokens_in_the_text_are_not_words():
    counts = count_words(["a [MASK] b[SEP]c [mask]"], Normaliser()).counts
    assert counts == Counter({"a": 1, "b": 1, "c": 1, "[": 1, "mask": 1, "]": 1})


def test_counting_drops_the_rarest_words_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(vocabulary_training, "MAX_CHUNKS", 3)
    texts = [f"common rare{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10]}" for i in range(100)]
    exact = count_words(texts, Normaliser())
    assert exact.counts == Counter(" ".join(texts).split()) and not exact.dropped
    monkeypatch.setattr(vocabulary_training, "MAX_WORDS", 20)
    bounded = count_words(texts, Normaliser())
    assert len(bounded.counts) <= 20
    assert bounded.counts["common"] == 100
    assert bounded.dropped + len(bounded.counts) >= 101 and bounded.dropped_below > 1


def test_only_the_rarest_words_are_dropped():
    found = WordCounts(Counter({"a": 1, "b": 1, "c": 2, "d": 3, "e": 9}))
    found.drop_rare(4)
    assert found.counts == {"c": 2, "d": 3, "e": 9}
    assert (found.dropped, found.dropped_below) == (2, 2)


def test_dropped_words_give_a_warning(monkeypatch):
    monkeypatch.setattr(vocabulary_training, "MAX_CHUNKS", 20)
    monkeypatch.setattr(vocabulary_training, "MAX_WORDS", 40)
    with pytest.warns(UserWarning, match=r"were dropped to bound memory"):
        train_vocabulary(SENTENCES, Normaliser(), 60, 1)


def test_very_rare_characters_get_no_entry():
    counts = Counter({"common": 200_000, "ж": 1, "ab": 50_000})
    assert "ж" in character_tokens(counts, 1000, 1.0)
    assert "ж" not in character_tokens(counts, 1000, 0.99999)
    assert character_tokens(counts, 2, 1.0) == ["m", "o", "##m", "##o"]


@pytest.mark.parametrize("kind", [WordPieceTokenizer, FastTokenizer])
@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [
        (SENTENCES, 3, "vocab_size must be a whole number of at least 10, got 3"),
        ([], 100, "contains no words"),
        ([" \n", "\x00"], 100, "contains no words"),
        (["fine", "bad\ud800"], 100, "half a surrogate pair"),
        (["fine", 3], 100, "must be a string, got int"),
    ],
)
def test_bad_arguments(kind, texts, size, message):
    with pytest.raises(TextError, match=message):
        kind.train(texts, size)


@pytest.mark.parametrize("kind", [WordPieceTokenizer, FastTokenizer])
def test_a_small_text_gives_a_small_vocabulary_with_a_note(kind):
    with pytest.warns(
        UserWarning, match=r"the text is small: its vocabulary has [\d,]+ entries instead of 100,000"
    ) as caught:
        small = kind.train(SENTENCES, 100_000)
    size = int(str(caught[0].message).split(" entries")[0].split()[-1].replace(",", ""))
    assert small.vocab_size == size < 100_000
    assert kind.train(SENTENCES, size - 5).vocab_size == size - 5  # (ties: the last pieces differ from run to run)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("が、ございます。それは日本語です", True),
        ("первый край ёлка", True),
        ("한국어 문장입니다", True),
        ("हिन्दी में एक वाक्य", True),
        ("café naïve Straße", False),
        ("Ελληνικά γράμματα", False),
        ("plain words and nothing else", False),
        ("plain words, one Japanese letter が " * 1 + "and many more plain words " * 40, False),
    ],
)
def test_accents_of_other_scripts_are_letters(text, kept):
    normaliser, texts = choose_normaliser(iter([text, "x"]), lowercase=True)
    assert normaliser.strip_accents is (False if kept else None)
    assert list(texts) == [text, "x"]
    assert choose_normaliser([text], lowercase=False)[0] == Normaliser(lowercase=False)


@pytest.mark.parametrize("kind", [WordPieceTokenizer, FastTokenizer])
def test_a_trained_tokenizer_keeps_the_letters_of_other_scripts(kind):
    tokenizer = kind.train(["первый край ёлка йод"] * 3, vocab_size=40, min_frequency=1)
    assert tokenizer.decode(tokenizer.encode("Край ёлка").ids) == "край ёлка"


def test_a_large_vocabulary_has_room_for_many_characters():
    assert [character_limit(size) for size in (64, 2_048, 8_192, 50_000)] == [29, 1_000, 2_048, 12_500]
