"""What can be said of every vocabulary entry once, so that millions of tokens need only look it up.

A built corpus is numbers; its letters, digits and odd signs are still there, in the vocabulary. One table a
property, indexed by token id, turns a pass over the text into a few array look-ups.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass

import numpy as np

from glassbert.text.tokenizer import Tokenizer

KINDS = ("Latin letters", "other letters", "digits", "punctuation", "symbols", "damaged")
DAMAGED = ("Cc", "Cf", "Co", "Cs", "Cn")
# The names of HTML tags, without a, b, i and u ("a < b" is no tag), and what stands behind & in an HTML entity.
TAGS = """
abbr article aside blockquote body br button caption code dd div dl dt em font footer form h1 h2 h3 h4 h5 h6 head header
hr html iframe img input label li link main meta nav noscript ol option p pre script section select small span strong
style sub sup svg table tbody td textarea th thead title tr ul video
"""
ENTITIES = "amp gt lt nbsp quot apos mdash ndash rsquo lsquo ldquo rdquo hellip #"


@dataclass(frozen=True)
class Pieces:
    """Tables over the vocabulary."""

    texts: list[str]  # without `##` or the mark of a space
    continues: np.ndarray  # bool: goes on with the word before it
    unknown: np.ndarray  # bool
    characters: np.ndarray  # how many
    letters: np.ndarray  # how many of them
    single: np.ndarray  # bool: one character alone; noise falls apart into these
    alphanumeric: np.ndarray  # bool: letters and digits only
    opens_tag: np.ndarray  # bool: < or </
    slash: np.ndarray  # bool
    tag: np.ndarray  # bool: the name of an HTML tag
    ampersand: np.ndarray  # bool
    entity: np.ndarray  # bool: what follows & in HTML

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Pieces:
        texts = [""] * tokenizer.vocab_size
        continues = np.asarray(tokenizer.continues_word, bool)
        special = set(tokenizer.special_ids)
        for token, id in tokenizer.vocabulary.items():
            if id not in special:
                text = tokenizer.decode([id], skip_special_tokens=False).strip()
                if not text or ("\ufffd" in text and "\ufffd" not in token):  # white space, or a part of a character
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
        """How often each character stands in a text whose tokens were counted."""
        found: Counter[str] = Counter()
        for id in np.flatnonzero(counts):
            for character in self.texts[id]:
                found[character] += int(counts[id])
        return found


def kind_of(character: str) -> str:
    """One of KINDS."""
    category = unicodedata.category(character)
    if category in DAMAGED or character == "\ufffd":
        return "damaged"
    if category[0] in "LM":
        latin = character < "\u0250" or unicodedata.name(character, "").startswith("LATIN")
        return "Latin letters" if latin else "other letters"
    return {"N": "digits", "P": "punctuation"}.get(category[0], "symbols")
