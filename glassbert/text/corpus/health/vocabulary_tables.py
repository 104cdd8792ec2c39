"""`VocabularyTables`: properties of every vocabulary entry, as arrays indexed by token id.

A corpus contains only token ids. These tables turn a pass over its tokens into array look-ups.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass

import numpy as np

from glassbert.text.tokenizer import Tokenizer

KINDS = ("Latin letters", "other letters", "digits", "punctuation", "symbols", "damaged")
DAMAGED = ("Cc", "Cf", "Co", "Cs", "Cn")
# The names of HTML tags, without a, b, i and u ("a < b" is not a tag), and the names after & in HTML entities.
TAGS = """
abbr article aside blockquote body br button caption code dd div dl dt em font footer form h1 h2 h3 h4 h5 h6 head header
hr html iframe img input label li link main meta nav noscript ol option p pre script section select small span strong
style sub sup svg table tbody td textarea th thead title tr ul video
"""
ENTITIES = "amp gt lt nbsp quot apos mdash ndash rsquo lsquo ldquo rdquo hellip #"


@dataclass(frozen=True)
class VocabularyTables:
    """One array per property, each [vocabulary]."""

    texts: list[str]  # without `##` or space marker
    continues: np.ndarray  # bool: continues a word
    unknown: np.ndarray  # bool
    characters: np.ndarray  # number of characters
    letters: np.ndarray  # number of letters
    single: np.ndarray  # bool: a single character; noise is tokenized into these
    alphanumeric: np.ndarray  # bool: letters and digits only
    opens_tag: np.ndarray  # bool: < or </
    slash: np.ndarray  # bool
    tag: np.ndarray  # bool: the name of an HTML tag
    ampersand: np.ndarray  # bool
    entity: np.ndarray  # bool: the name of an HTML entity, after &

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> VocabularyTables:
        texts = [""] * tokenizer.vocab_size
        continues = np.asarray(tokenizer.continues_word, bool)
        special = set(tokenizer.special_ids)
        for token, id in tokenizer.vocabulary.items():
            if id not in special:
                text = tokenizer.decode([id], skip_special_tokens=False).strip()
                if not text or ("\ufffd" in text and "\ufffd" not in token):  # white space, or part of a character
                    text = token
                texts[id] = text.removeprefix("##") if continues[id] and len(text) > 2 else text
        unknown = np.zeros(len(texts), bool)
        unknown[tokenizer.unknown_id] = True

        def where(names: str) -> np.ndarray:
            words = frozenset(names.split())
            return np.array([text.lower() in words for text in texts])

        return cls(
            texts=texts,
            continues=continues,
            unknown=unknown,
            characters=np.array([len(text) for text in texts]),
            letters=np.array([sum(map(str.isalpha, text)) for text in texts]),
            single=np.array([len(text) == 1 for text in texts]),
            alphanumeric=np.array([text.isalnum() for text in texts]),
            opens_tag=where("< </"),
            slash=where("/"),
            tag=where(TAGS),
            ampersand=where("&"),
            entity=where(ENTITIES),
        )

    def character_counts(self, counts: np.ndarray) -> Counter[str]:
        """The count of each character in a text with these token counts [vocabulary]."""
        found: Counter[str] = Counter()
        for id in np.flatnonzero(counts):
            for character in self.texts[id]:
                found[character] += int(counts[id])
        return found


def character_kind(character: str) -> str:
    """The kind of a character, one of KINDS."""
    category = unicodedata.category(character)
    if category in DAMAGED or character == "\ufffd":
        return "damaged"
    if category[0] in "LM":
        latin = character < "\u0250" or unicodedata.name(character, "").startswith("LATIN")
        return "Latin letters" if latin else "other letters"
    return {"N": "digits", "P": "punctuation"}.get(category[0], "symbols")
