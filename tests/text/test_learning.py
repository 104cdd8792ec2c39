"""Learning a vocabulary: against a slow and plain learner, against `tokenizers`, and in bounded memory."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from itertools import pairwise

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from glassbert.errors import TextError
from glassbert.text import FastTokenizer, WordPieceTokenizer, learning
from glassbert.text.counting import WordCounts, count_words
from glassbert.text.learning import Joining, first_tokens, learn_from_counts
from glassbert.text.normalise import Normaliser
from glassbert.text.sentences import SENTENCES
from glassbert.text.tokenizer import SPECIAL_TOKENS

HUGS = ["hug " * 10, "pug " * 5, "pun " * 12, "bun " * 4, "hugs " * 5]


def learnt_slowly(counts: Counter[str], size: int) -> list[str]:
    """All pairs counted anew before every join."""
    tokens = [*SPECIAL_TOKENS, *first_tokens(counts, 1000, 1.0)]
    ids = {token: id for id, token in enumerate(tokens)}
    words = [([c if i == 0 else f"##{c}" for i, c in enumerate(word)], count) for word, count in counts.items()]
    while len(tokens) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words:
            for pair in pairwise(word):
                pairs[pair] += count
        left, right = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        joined = left + right.removeprefix("##")
        if joined not in ids:
            ids[joined] = len(tokens)
            tokens.append(joined)
        for word, _ in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == (left, right):
                    word[i : i + 2] = [joined]
                i += 1
    return tokens


@pytest.mark.parametrize("seed", range(5))
def test_each_join_is_the_most_frequent_pair(seed):
    rng = random.Random(seed)
    counts = Counter({"".join(rng.choices("aabc", k=rng.randint(1, 9))): rng.randint(1, 9) for _ in range(150)})
    learnt = learn_from_counts(WordCounts(counts), 120, 1, coverage=1.0)
    assert list(learnt) == learnt_slowly(counts, 120)


def test_what_is_an_entry_already_does_not_become_one_again():
    joining = Joining(Counter({"ab": 3, "abb": 2}), ["a", "##b", "ab"])
    assert list(joining.joins(1)) == ["abb"]
    assert joining.words == [[2], [3]]


def test_the_example_of_the_lesson():
    tokens = WordPieceTokenizer.train(HUGS, 19, min_frequency=1).description.tokens
    assert tokens[:5] == SPECIAL_TOKENS
    assert tokens[5:16] == ("b", "g", "h", "n", "p", "s", "u", "##g", "##n", "##s", "##u")
    assert tokens[16:] == ("##ug", "##un", "hug")


def test_tokenizers_learns_the_same():
    """With a count of its own for every pair there are no ties, which `tokenizers` breaks by chance."""
    rng = random.Random(7)
    words = ["".join(rng.choices("etaoinshrdlu", range(12, 0, -1), k=rng.randint(2, 8))) for _ in range(300)]
    text = " ".join(word for i, word in enumerate(words) for _ in range(1 + i * i % 97))
    ours = learn_from_counts(count_words([text], Normaliser()), 90, 2, coverage=1.0)
    theirs = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    theirs.train_from_iterator(
        [text], trainers.WordPieceTrainer(vocab_size=90, special_tokens=list(SPECIAL_TOKENS), show_progress=False)
    )
    assert set(ours) == set(theirs.get_vocab())


@pytest.mark.parametrize("kind", [WordPieceTokenizer, FastTokenizer])
@pytest.mark.parametrize("size", [60, 300])
def test_the_vocabulary_has_the_size_asked_for(kind, size):
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


def test_progress_is_told():
    told = []
    WordPieceTokenizer.train(SENTENCES * 40, 300, progress=lambda *step: told.append(step))
    assert {what for what, _, _ in told} == {"counting words", "joining pieces"}
    assert told[-1][1:] == (300, 300)


def test_special_tokens_in_the_text_are_no_words():
    counts = count_words(["a [MASK] b[SEP]c [mask]"], Normaliser()).counts
    assert counts == Counter({"a": 1, "b": 1, "c": 1, "[": 1, "mask": 1, "]": 1})


def test_counting_forgets_the_rarest_words_when_there_are_too_many():
    texts = [f"common rare{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10]}" for i in range(100)]
    exact = count_words(texts, Normaliser(), most_parts=3)
    assert exact.counts == Counter(" ".join(texts).split()) and not exact.forgotten
    bounded = count_words(texts, Normaliser(), most_parts=3, most_words=20)
    assert len(bounded.counts) <= 20
    assert bounded.counts["common"] == 100
    assert bounded.forgotten + len(bounded.counts) >= 101 and bounded.forgotten_below > 1


def test_the_rarest_are_forgotten_and_no_others():
    found = WordCounts(Counter({"a": 1, "b": 1, "c": 2, "d": 3, "e": 9}))
    found.forget_the_rare(4)
    assert found.counts == {"c": 2, "d": 3, "e": 9}
    assert (found.forgotten, found.forgotten_below) == (2, 2)


def test_forgetting_is_told(monkeypatch):
    monkeypatch.setattr(learning, "count_words", partial(count_words, most_parts=20, most_words=40))
    with pytest.warns(UserWarning, match=r"were forgotten on the way to keep memory bounded"):
        learning.learn_vocabulary(SENTENCES, Normaliser(), 60, 1)


def test_characters_of_no_weight_get_no_entry():
    counts = Counter({"common": 200_000, "ж": 1, "ab": 50_000})
    assert "ж" in first_tokens(counts, 1000, 1.0)
    assert "ж" not in first_tokens(counts, 1000, 0.99999)
    assert first_tokens(counts, 2, 1.0) == ["m", "o", "##m", "##o"]


@pytest.mark.parametrize("kind", [WordPieceTokenizer, FastTokenizer])
@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [
        (SENTENCES, 100_000, r"a vocabulary of [\d,]+ entries at most, not 100,000"),
        (SENTENCES, 3, "vocab_size must be a whole number of at least 10, got 3"),
        ([], 100, "no words to learn|entries at most"),
        ([" \n", "\x00"], 100, "no words to learn|entries at most"),
        (["fine", "bad\ud800"], 100, "half a surrogate pair"),
        (["fine", 3], 100, "must be a string, got int"),
    ],
)
def test_what_cannot_be_learnt_is_refused(kind, texts, size, message):
    with pytest.raises(TextError, match=message):
        kind.train(texts, size)


def test_the_size_named_in_the_refusal_can_be_had():
    with pytest.raises(TextError) as refused:
        WordPieceTokenizer.train(SENTENCES, 100_000)
    size = int(str(refused.value).split(" entries")[0].split()[-1].replace(",", ""))
    assert WordPieceTokenizer.train(SENTENCES, size).vocab_size == size
