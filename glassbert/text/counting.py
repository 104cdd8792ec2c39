"""Counting the words of a stream, in memory that does not grow with it.

What stands between white space is counted as it is, which Python does quickly, and only the distinct strings are then
normalised and cut into words. When there are more distinct words than the table may hold, the rarest are forgotten:
they would not have become entries of a vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from glassbert.text.bulk import SPECIAL, cut
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import Progress, check_text
from glassbert.text.words import WORD

PARTS = 1 << 20  # distinct strings between white space, before they are cut into words
WORDS = 1 << 21  # distinct words


@dataclass
class WordCounts:
    """Word -> how often it occurs. `forgotten` words of at most `forgotten_below` - 1 occurrences are not in it."""

    counts: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    characters: int = 0
    forgotten: int = 0
    forgotten_below: int = 1

    def forget_the_rare(self, limit: int) -> None:
        """Leave at most three quarters of `limit` words, the frequent ones."""
        while len(self.counts) > limit * 3 // 4:
            self.forgotten_below += 1
            kept = {word: count for word, count in self.counts.items() if count >= self.forgotten_below}
            self.forgotten += len(self.counts) - len(kept)
            self.counts = Counter(kept)


def count_words(
    texts: Iterable[str],
    normaliser: Normaliser,
    progress: Progress | None = None,
    most_parts: int = PARTS,
    most_words: int = WORDS,
) -> WordCounts:
    found = WordCounts()
    parts: Counter[str] = Counter()

    def into_words() -> None:
        for part, count in parts.items():
            for stretch in SPECIAL.split(part)[::2] if "[" in part else (part,):
                for word in WORD.findall(normaliser.text(stretch)):
                    found.counts[word] += count
        parts.clear()
        if len(found.counts) > most_words:
            found.forget_the_rare(most_words)

    for text in texts:
        check_text(text, f"text {found.texts + 1:,}")
        parts.update(cut(text))
        found.texts += 1
        found.characters += len(text)
        if len(parts) > most_parts:
            into_words()
        if progress and not found.texts % 1000:
            progress("counting words", found.characters, 0)
    into_words()
    return found
