"""Ids for whole corpora: equal to those of `encode`, in tables that do not grow without end."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from glassbert.text import WordPieceTokenizer, bulk
from glassbert.text.bulk import cut
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
    for _ in range(2):  # worked out, then looked up
        ids, counts = tokenizer.encode_ids(TEXTS)
        assert ids.dtype == np.uint32 and counts.dtype == np.int64
        rows = [row.tolist() for row in np.split(ids, np.cumsum(counts)[:-1])]
        assert rows == expected(tokenizer)


def test_no_texts():
    ids, counts = WordPieceTokenizer(description()).encode_ids([])
    assert (ids.shape, ids.dtype, counts.shape) == ((0,), np.uint32, (0,))


def test_the_tables_stay_within_their_bounds(monkeypatch):
    monkeypatch.setattr(bulk, "ENTRIES", 3)
    monkeypatch.setattr(bulk, "LONGEST", 7)
    tokenizer = WordPieceTokenizer(description())
    for _ in range(3):
        ids, _ = tokenizer.encode_ids([*TEXTS, "a b c d e f", "unaffable playings"])
        known = list(chain.from_iterable(expected(tokenizer)))
        assert ids.tolist()[: len(known)] == known
    table = tokenizer._part_ids
    assert 0 < len(table) <= 3 and 0 < len(table.words) <= 3
    assert max(map(len, [*table, *table.words])) <= 7


@pytest.mark.parametrize(
    ("text", "parts"),
    [(" a  b\n", ["a", "b"]), ("a\x0bb c", ["a\x0bb c"]), ("a\u200bb c", ["a\u200bb", "c"]), ("a\u2003b", ["a", "b"])],
)
def test_where_a_text_is_cut(text, parts):
    assert cut(text) == parts
