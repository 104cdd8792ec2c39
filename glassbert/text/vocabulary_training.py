"""Train a WordPiece vocabulary: start with characters and repeatedly merge the most frequent pair of tokens.

    h ##u ##g ×10, p ##u ##g ×5, h ##u ##g ##s ×5      the pair (##u, ##g) occurs 20 times
    h ##ug ×10,    p ##ug ×5,    h ##ug ##s ×5         the most frequent pair is now (h, ##ug), 15 times

Every merge adds one entry. A merge changes only the words that contain the pair: an index gives these words, pair
counts are updated word by word, and a heap gives the most frequent pair. Ties go to the pair with the lower token ids,
so the same text always gives the same vocabulary.

Words are counted in bounded memory. Strings between white space are counted first, and only distinct strings are
normalised and split into words. If there are too many distinct words, the rarest are dropped.
"""

from __future__ import annotations

import heapq
import warnings
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise

from glassbert.errors import TextError
from glassbert.text.bulk_encoding import SPECIAL, split_chunks
from glassbert.text.characters import decompose, is_mark
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import SPECIAL_TOKENS, Progress, check_text
from glassbert.text.wordpiece import CONTINUATION_PREFIX, WORD

# The most frequent characters get entries until they cover this share of the text, but at most MAX_CHARACTERS.
COVERAGE = 0.99999
MAX_CHARACTERS = 1000  # or a quarter of the vocabulary, where that is more: Japanese and Chinese need thousands
SAMPLE_TEXTS = 10_000  # read to decide whether accents are stripped
CHANGED_LETTERS = 0.002
FIRST_OTHER_SCRIPT = 0x400  # Latin and Greek letters come before it
MAX_CHUNKS = 1 << 20  # distinct strings between white space, before they are split into words
MAX_WORDS = 1 << 21  # distinct words
SMALL_TEXT = "the text is small"

Pair = tuple[int, int]


# ---- counting words ----


@dataclass
class WordCounts:
    """Number of occurrences of each word. `dropped` words with fewer than `dropped_below` occurrences are missing."""

    counts: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    characters: int = 0
    dropped: int = 0
    dropped_below: int = 1

    def drop_rare(self, limit: int) -> None:
        """Drop the rarest words until at most three quarters of `limit` words are left."""
        while len(self.counts) > limit * 3 // 4:
            self.dropped_below += 1
            kept = {word: count for word, count in self.counts.items() if count >= self.dropped_below}
            self.dropped += len(self.counts) - len(kept)
            self.counts = Counter(kept)


def count_words(texts: Iterable[str], normaliser: Normaliser, progress: Progress | None = None) -> WordCounts:
    """Count the normalised words of a stream of texts, in bounded memory."""
    found = WordCounts()
    chunks: Counter[str] = Counter()

    def count_words_of_chunks() -> None:
        for chunk, count in chunks.items():
            for part in SPECIAL.split(chunk)[::2] if "[" in chunk else (chunk,):
                for word in WORD.findall(normaliser.text(part)):
                    found.counts[word] += count
        chunks.clear()
        if len(found.counts) > MAX_WORDS:
            found.drop_rare(MAX_WORDS)

    for text in texts:
        check_text(text, f"text {found.texts + 1:,}")
        chunks.update(split_chunks(text))
        found.texts += 1
        found.characters += len(text)
        if len(chunks) > MAX_CHUNKS:
            count_words_of_chunks()
        if progress and not found.texts % 1000:
            progress("counting words", found.characters, 0)
    count_words_of_chunks()
    return found


# ---- accents ----


def choose_normaliser(texts: Iterable[str], lowercase: bool) -> tuple[Normaliser, Iterable[str]]:
    """BERT's normalisation for a text, and the texts again (the first ones are read to decide).

    With lower case BERT strips accents. In Latin and Greek that merges spellings (café, cafe); in other scripts it
    turns letters into others (が to か, й to и, أ to ا), drops vowels (Devanagari) and takes Korean syllables apart. If
    such letters are more than CHANGED_LETTERS of all letters, accents stay.
    """
    if not lowercase:
        return Normaliser(lowercase=False), texts
    rest = iter(texts)
    first = list(islice(rest, SAMPLE_TEXTS))
    characters: Counter[str] = Counter()
    for number, text in enumerate(first, 1):
        check_text(text, f"text {number:,}")
        if not text.isascii():
            characters.update(text)
        else:
            characters["a"] += len(text)
    changed = sum(count for character, count in characters.items() if _becomes_another_letter(character))
    letters = sum(count for character, count in characters.items() if character.isalpha())
    keep = changed > CHANGED_LETTERS * max(letters, 1)
    return Normaliser(strip_accents=False if keep else None), chain(first, rest)


def _becomes_another_letter(character: str) -> bool:
    """Whether stripping accents changes a character of another script than Latin and Greek."""
    parts = decompose(character)
    first = parts[0] if parts else character
    return ord(first) >= FIRST_OTHER_SCRIPT and ("".join(parts) != character or is_mark(character))


# ---- training ----


def train_vocabulary(
    texts: Iterable[str],
    normaliser: Normaliser,
    vocab_size: int,
    min_frequency: int = 2,
    progress: Progress | None = None,
) -> tuple[str, ...]:
    """`vocab_size` tokens in the order of their ids: special tokens, characters, then merges in order.

    A text that does not have so many gives all it has, with a warning.
    """
    check_size(vocab_size, min_frequency)
    found = count_words(texts, normaliser, progress)
    if found.dropped:
        warnings.warn(
            f"the text has very many distinct words; {found.dropped:,} words with fewer than "
            f"{found.dropped_below} occurrences were dropped to bound memory",
            stacklevel=2,
        )
    return train_from_counts(found, vocab_size, min_frequency, progress)


def train_from_counts(
    found: WordCounts,
    vocab_size: int,
    min_frequency: int = 2,
    progress: Progress | None = None,
) -> tuple[str, ...]:
    """As `train_vocabulary`, from word counts."""
    if not found.counts:
        raise TextError("the text contains no words: a vocabulary cannot be trained")
    tokens = [*SPECIAL_TOKENS, *character_tokens(found.counts, character_limit(vocab_size), COVERAGE)]
    for token in PairMerger(found.counts, tokens).merges(min_frequency):
        if len(tokens) >= vocab_size:
            break
        tokens.append(token)
        if progress and not len(tokens) % 100:
            progress("merging tokens", len(tokens), vocab_size)
    if len(tokens) < vocab_size:
        warn_of_small_vocabulary(vocab_size, len(tokens))
    return tuple(tokens)


def check_size(vocab_size: int, min_frequency: int) -> None:
    least = 2 * len(SPECIAL_TOKENS)
    if not isinstance(vocab_size, int) or vocab_size < least:
        raise TextError(f"vocab_size must be a whole number of at least {least}, got {vocab_size!r}")
    if not isinstance(min_frequency, int) or min_frequency < 1:
        raise TextError(f"min_frequency must be a whole number of at least 1, got {min_frequency!r}")


def character_limit(vocab_size: int) -> int:
    """The maximum number of characters. Each needs two entries: at the start of a word, and inside a word."""
    return min(max(MAX_CHARACTERS, vocab_size // 4), (vocab_size - len(SPECIAL_TOKENS)) // 2)


def small_vocabulary_note(wanted: int, found: int) -> str:
    return f"{SMALL_TEXT}: its vocabulary has {found:,} entries instead of {wanted:,}; more text gives a larger one"


def warn_of_small_vocabulary(wanted: int, found: int) -> None:
    warnings.warn(small_vocabulary_note(wanted, found), stacklevel=3)


def character_tokens(counts: Counter[str], limit: int, coverage: float) -> list[str]:
    """The most frequent characters, and with ## those that occur inside words.

    Characters beyond `coverage` of the text are left out: they occur once or twice and would take entries from
    frequent words.
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
    return [*kept, *(CONTINUATION_PREFIX + character for character in kept if character in inside)]


class PairMerger:
    """Words as lists of token ids, the counts of adjacent pairs, and the words that contain each pair."""

    def __init__(self, counts: Counter[str], tokens: Iterable[str]):
        self.tokens = list(tokens)
        self.ids = {token: id for id, token in enumerate(self.tokens)}
        self.words: list[list[int]] = []
        self.word_counts: list[int] = []
        self.pair_counts: dict[Pair, int] = defaultdict(int)
        self.pair_words: dict[Pair, array[int]] = defaultdict(lambda: array("I"))
        for word, count in sorted(counts.items()):
            self._add(self._character_ids(word), count)
        self.heap = [(-count, pair) for pair, count in self.pair_counts.items()]
        heapq.heapify(self.heap)

    def _character_ids(self, word: str) -> list[int]:
        """One id per character. Characters without an entry are skipped."""
        names = (CONTINUATION_PREFIX + character if i else character for i, character in enumerate(word))
        return [self.ids[name] for name in names if name in self.ids]

    def _add(self, word: list[int], count: int) -> None:
        if len(word) < 2:
            return
        number = len(self.words)
        self.words.append(word)
        self.word_counts.append(count)
        for pair in pairwise(word):
            self.pair_counts[pair] += count
            self.pair_words[pair].append(number)

    def merges(self, min_frequency: int) -> Iterator[str]:
        """The new tokens in order, until no pair occurs `min_frequency` times."""
        while self.heap:
            negative, pair = heapq.heappop(self.heap)
            count = self.pair_counts.get(pair, 0)
            if count != -negative:  # the heap entry is stale: earlier merges changed the count
                if count:
                    heapq.heappush(self.heap, (-count, pair))
                continue
            if count < min_frequency:
                return
            name = self.tokens[pair[0]] + self.tokens[pair[1]].removeprefix(CONTINUATION_PREFIX)
            is_new = name not in self.ids  # "ab" + "c" and "a" + "bc" give the same token
            if is_new:
                self.ids[name] = len(self.tokens)
                self.tokens.append(name)
            self._merge(pair, self.ids[name])
            if is_new:
                yield name

    def _merge(self, pair: Pair, merged: int) -> None:
        """Replace the pair by the token `merged` in every word that contains it."""
        changed: set[Pair] = set()
        for number in self.pair_words.pop(pair):
            word, count = self.words[number], self.word_counts[number]
            new = replace_pair(word, pair, merged)
            if len(new) == len(word):
                continue
            for old_pair in pairwise(word):
                self.pair_counts[old_pair] -= count
            for new_pair in pairwise(new):
                self.pair_counts[new_pair] += count
                if merged in new_pair:
                    self.pair_words[new_pair].append(number)
                    changed.add(new_pair)
            self.words[number] = new
        self.pair_counts.pop(pair, None)
        for new_pair in sorted(changed):
            heapq.heappush(self.heap, (-self.pair_counts[new_pair], new_pair))


def replace_pair(word: list[int], pair: Pair, merged: int) -> list[int]:
    """The word with every occurrence of the pair, from the left, replaced by `merged`."""
    left, right = pair
    new: list[int] = []
    i = 0
    while i < len(word):
        if word[i] == left and i + 1 < len(word) and word[i + 1] == right:
            new.append(merged)
            i += 2
        else:
            new.append(word[i])
            i += 1
    return new
