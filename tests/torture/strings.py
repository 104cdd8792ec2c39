"""Hostile strings through both tokenizers."""

from __future__ import annotations

import functools
import random

from glassbert.errors import GlassBertError
from glassbert.text import FastTokenizer, WordPieceTokenizer
from tests.text.sample_sentences import SENTENCES
from tests.torture.table import Line, describe

PIECES = [
    "a", "Z", "é", "e\u0301", "ß", "İ", "ǆ", "日本", "한국어", "ن", "\u200f", "\u200d", "👩‍👩‍👧",
    "\ufeff", "\ufffd", "\x00", "\x1b[31m",
    "\n", "\r\n", "\u2028", "\t", "\xa0", " ", "##", "[CLS]", "[MASK]", "[UNK",
    "</s>", "'", '"', "\\", "/", "%", "0", "٣", "²",
    "\U0010ffff", "\ue000", "ﬁ", "Ａ", "\u0300" * 5, "a" * 120, "https://x.y/z?q=1", "don't",
    "U.S.", "-", "—", "…", "𝔘", "🇩🇪",
]  # fmt: skip


@functools.cache
def tokenizers() -> tuple[FastTokenizer, WordPieceTokenizer]:
    fast = FastTokenizer.train(SENTENCES, 300, min_frequency=1)
    assert fast.description is not None
    return fast, WordPieceTokenizer(fast.description)


def hostile_strings(count: int, seed: int, number: int = 0) -> list[Line]:
    """Strings of odd pieces and random characters: our tokenizer and the fast one give the same ids, and no error."""
    line, rng = Line("hostile strings", "both tokenizers"), random.Random(f"strings {seed} {number}")
    fast, own = tokenizers()
    while line.tried < count:
        texts = [_string(rng) for _ in range(min(250, count - line.tried))]
        line.tried += len(texts)
        try:
            found = [row.ids for row in fast.encode_batch(texts)]
            expected = [row.ids for row in own.encode_batch(texts)]
            for text, one, two in zip(texts, found, expected, strict=True):
                if list(one) != list(two):
                    line.fail(f"the ids of {text[:60]!r} differ")
            for ids in found[:20]:
                fast.decode(ids)
        except GlassBertError as error:
            line.fail(f"refused: {error}")
        except BaseException as error:
            line.fail(describe(error))
    return [line]


def _string(rng: random.Random) -> str:
    if rng.random() < 0.3:
        codes = (rng.randrange(0x110000) for _ in range(rng.randrange(12)))
        return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(10)))
