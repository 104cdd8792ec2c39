"""Bulk encoding: the same ids as `encode`, with bounded caches."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from glassbert.text import WordPieceTokenizer, bulk_encoding
from glassbert.text.bulk_encoding import split_chunks
from tests.text.tokenizers_for_tests import description

TEXTS = [
    "the players play",
    "",
    "water, the[MASK]un [SEP]",
    "Café\u00a0über\u3000中",
    "a\x1cb\x85c",
    "the players play",
]


def expected(tokenizer: WordPieceTokenizer) -> list[list[int]]:
    return [row.ids for row in tokenizer.encode_batch(TEXTS, special_tokens=False)]


def test_ids_and_counts():
    tokenizer = WordPieceTokenizer(description())
    for _ in range(2):  # computed, then cached
        ids, counts = tokenizer.encode_ids(TEXTS)
        assert ids.dtype == np.uint32 and counts.dtype == np.int64
        rows = [row.tolist() for row in np.split(ids, np.cumsum(counts)[:-1])]
        assert rows == expected(tokenizer)


def test_no_texts():
    ids, counts = WordPieceTokenizer(description()).encode_ids([])
    assert (ids.shape, ids.dtype, counts.shape) == ((0,), np.uint32, (0,))


def test_the_caches_are_bounded(monkeypatch):
    monkeypatch.setattr(bulk_encoding, "MAX_ENTRIES", 3)
    monkeypatch.setattr(bulk_encoding, "MAX_CACHED_LENGTH", 7)
    tokenizer = WordPieceTokenizer(description())
    for _ in range(3):
        ids, _ = tokenizer.encode_ids([*TEXTS, "a b c d e f", "unaffable playings"])
        known = list(chain.from_iterable(expected(tokenizer)))
        assert ids.tolist()[: len(known)] == known
    cache = tokenizer._chunk_ids
    assert 0 < len(cache) <= 3 and 0 < len(cache.words) <= 3
    assert max(map(len, [*cache, *cache.words])) <= 7


@pytest.mark.parametrize(
    ("text", "chunks"),
    [(" a  b\n", ["a", "b"]), ("a\x0bb c", ["a\x0bb c"]), ("a\u200bb c", ["a\u200bb", "c"]), ("a\u2003b", ["a", "b"])],
)
def test_where_a_text_is_split(text, chunks):
    assert split_chunks(text) == chunks
