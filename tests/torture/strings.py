"""Hostile strings through both tokenizers, and random masks through `predict` and `forward`."""

from __future__ import annotations

import random

import numpy as np

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


def hostile_strings(count: int, seed: int) -> list[Line]:
    """Strings of odd pieces and random characters: our tokenizer and the fast one give the same ids, and no error."""
    line, rng = Line("hostile strings", "both tokenizers"), random.Random(f"strings {seed}")
    own = WordPieceTokenizer.train(SENTENCES, 400, min_frequency=1)
    fast = FastTokenizer.train(SENTENCES, 300, min_frequency=1)
    description = fast.description
    assert description is not None
    own = WordPieceTokenizer(description)
    while line.tried < count:
        texts = [_string(rng) for _ in range(250)]
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


def random_masks(count: int, seed: int) -> list[Line]:
    """Batches with random masks over all families, windows, heads and poolings."""
    from tests.models.test_predict_equals_forward import FAMILY_NAMES, heads_of, largest_difference, model_of

    line, rng = Line("random masks", "predict and forward"), np.random.default_rng([seed, 7])
    cases = [(family, window, *head) for family in FAMILY_NAMES for window in (None, 2) for head in heads_of(family)]
    worst = 0.0
    for number in range(count):
        family, window, head, pooling = cases[number % len(cases)]
        line.tried += 1
        difference = largest_difference(model_of(family, head, pooling, window, 1), rng, head not in (None, "token"))
        worst = max(worst, difference)
        if difference > 1e-5:
            line.fail(f"{family}, window {window}, {head}, {pooling}: {difference:.2g}")
    line.note = f"largest difference {worst:.1e}"
    return [line]
