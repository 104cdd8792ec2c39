"""Learning a vocabulary: begin with characters, and join again and again the pair that occurs most often.

    h ##u ##g ×10, p ##u ##g ×5, h ##u ##g ##s ×5      the pair (##u, ##g) occurs 20 times
    h ##ug ×10,    p ##ug ×5,    h ##ug ##s ×5         now (h, ##ug) leads with 15

Every join is a new entry. A join changes only the words that hold the pair, so the counts of all pairs are kept up to
date word by word, an index says which words hold a pair, and a heap says which pair leads. Between pairs that occur
equally often the one whose parts are older entries wins: the same text always gives the same vocabulary.
"""

from __future__ import annotations

import heapq
import warnings
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from glassbert.errors import TextError
from glassbert.text.counting import WordCounts, count_words
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import SPECIAL_TOKENS, Progress
from glassbert.text.wordpiece import CONTINUES

# Which characters get entries: the most frequent, until they make up so much of the text, but no more than so many.
COVERAGE = 0.99999
ALPHABET = 1000

Pair = tuple[int, int]


def learn_vocabulary(
    texts: Iterable[str],
    normaliser: Normaliser,
    vocab_size: int,
    min_frequency: int = 2,
    progress: Progress | None = None,
) -> tuple[str, ...]:
    """`vocab_size` tokens in the order of their ids: special tokens, characters, then joins as they were made."""
    check_size(vocab_size, min_frequency)
    found = count_words(texts, normaliser, progress)
    if found.forgotten:
        warnings.warn(
            f"the text has very many different words; {found.forgotten:,} that occurred fewer than "
            f"{found.forgotten_below} times were forgotten on the way to keep memory bounded",
            stacklevel=2,
        )
    return learn_from_counts(found, vocab_size, min_frequency, progress)


def learn_from_counts(
    found: WordCounts,
    vocab_size: int,
    min_frequency: int = 2,
    progress: Progress | None = None,
    coverage: float = COVERAGE,
) -> tuple[str, ...]:
    if not found.counts:
        raise TextError("there are no words to learn a vocabulary from")
    tokens = [*SPECIAL_TOKENS, *first_tokens(found.counts, alphabet_limit(vocab_size), coverage)]
    for token in Joining(found.counts, tokens).joins(min_frequency):
        if len(tokens) >= vocab_size:
            break
        tokens.append(token)
        if progress and not len(tokens) % 100:
            progress("joining pieces", len(tokens), vocab_size)
    if len(tokens) < vocab_size:
        raise TextError(too_large(vocab_size, len(tokens), min_frequency))
    return tuple(tokens)


def check_size(vocab_size: int, min_frequency: int) -> None:
    least = 2 * len(SPECIAL_TOKENS)
    if not isinstance(vocab_size, int) or vocab_size < least:
        raise TextError(f"vocab_size must be a whole number of at least {least}, got {vocab_size!r}")
    if not isinstance(min_frequency, int) or min_frequency < 1:
        raise TextError(f"min_frequency must be a whole number of at least 1, got {min_frequency!r}")


def alphabet_limit(vocab_size: int) -> int:
    """Characters take two entries each: at the beginning of words, and inside."""
    return min(ALPHABET, (vocab_size - len(SPECIAL_TOKENS)) // 2)


def too_large(asked: int, found: int, min_frequency: int) -> str:
    return (
        f"this text gives a vocabulary of {found:,} entries at most, not {asked:,} (of pieces that occur at least "
        f"{min_frequency} times): ask for {found:,} or fewer, or give more text"
    )


def first_tokens(counts: Counter[str], limit: int, coverage: float) -> list[str]:
    """The most frequent characters, and those of them that occur inside words once more with ##.

    The last few characters of a large text, each seen once or twice, would take entries from words that are common.
    """
    characters: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
        inside.update(word[1:])
    kept: list[str] = []
    uncovered = characters.total()
    for character in sorted(characters, key=lambda c: (-characters[c], c))[:limit]:
        if uncovered <= (1 - coverage) * characters.total():
            break
        kept.append(character)
        uncovered -= characters[character]
    kept.sort()
    return [*kept, *(CONTINUES + character for character in kept if character in inside)]


class Joining:
    """Words as rows of token ids, the counts of their neighbouring pairs, and where each pair occurs."""

    def __init__(self, counts: Counter[str], tokens: Iterable[str]):
        self.tokens = list(tokens)
        self.ids = {token: id for id, token in enumerate(self.tokens)}
        self.words: list[list[int]] = []
        self.word_counts: list[int] = []
        self.pair_counts: dict[Pair, int] = defaultdict(int)
        self.places: dict[Pair, array[int]] = defaultdict(lambda: array("I"))
        for word, count in sorted(counts.items()):
            self._add(self._spelled(word), count)
        self.heap = [(-count, pair) for pair, count in self.pair_counts.items()]
        heapq.heapify(self.heap)

    def _spelled(self, word: str) -> list[int]:
        """Character by character; those outside the alphabet are passed over."""
        names = (CONTINUES + character if i else character for i, character in enumerate(word))
        return [self.ids[name] for name in names if name in self.ids]

    def _add(self, word: list[int], count: int) -> None:
        if len(word) < 2:
            return
        number = len(self.words)
        self.words.append(word)
        self.word_counts.append(count)
        for pair in pairwise(word):
            self.pair_counts[pair] += count
            self.places[pair].append(number)

    def joins(self, min_frequency: int) -> Iterator[str]:
        """The new tokens, one after another, until no pair is frequent enough."""
        while self.heap:
            negative, pair = heapq.heappop(self.heap)
            count = self.pair_counts.get(pair, 0)
            if count != -negative:  # other joins have used up some of its occurrences since it was pushed
                if count:
                    heapq.heappush(self.heap, (-count, pair))
                continue
            if count < min_frequency:
                return
            name = self.tokens[pair[0]] + self.tokens[pair[1]].removeprefix(CONTINUES)
            is_new = name not in self.ids  # "ab" + "c" and "a" + "bc" are one token
            if is_new:
                self.ids[name] = len(self.tokens)
                self.tokens.append(name)
            self._join(pair, self.ids[name])
            if is_new:
                yield name

    def _join(self, pair: Pair, joined: int) -> None:
        """Replace the pair by one token in every word that holds it."""
        changed: set[Pair] = set()
        for number in self.places.pop(pair):
            word, count = self.words[number], self.word_counts[number]
            new = replaced(word, pair, joined)
            if len(new) == len(word):
                continue
            for old_pair in pairwise(word):
                self.pair_counts[old_pair] -= count
            for new_pair in pairwise(new):
                self.pair_counts[new_pair] += count
                if joined in new_pair:
                    self.places[new_pair].append(number)
                    changed.add(new_pair)
            self.words[number] = new
        self.pair_counts.pop(pair, None)
        for new_pair in sorted(changed):
            heapq.heappush(self.heap, (-self.pair_counts[new_pair], new_pair))


def replaced(word: list[int], pair: Pair, joined: int) -> list[int]:
    """The word with every occurrence of the pair, from the left, as one token."""
    left, right = pair
    new: list[int] = []
    i = 0
    while i < len(word):
        if word[i] == left and i + 1 < len(word) and word[i + 1] == right:
            new.append(joined)
            i += 2
        else:
            new.append(word[i])
            i += 1
    return new
