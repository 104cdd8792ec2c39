"""A tokenizer with new pieces: transformers reads the files as both of ours do."""

from collections import Counter

import pytest

from glassbert.text import FastTokenizer, WordPieceTokenizer
from glassbert.text.new_pieces import choose_pieces, extended

pytestmark = pytest.mark.parity
TEXTS = ["The kernels read a kernel.", "kernelx жук [MASK] kernel-kernels", "unrelated words, ünïcode"]


def test_transformers_reads_an_extended_vocabulary(tmp_path):
    from transformers import AutoTokenizer

    words = [" ".join("abcdefghijklmnopqrstuvwxyz"), "the words read a unrelated word"] * 3
    old = WordPieceTokenizer.train(words, vocab_size=55, min_frequency=1).description
    pieces = choose_pieces(Counter({"kernel": 50, "kernels": 20, "жук": 9}), old, 12)
    assert {"kernel", "kernels", "ж"} <= {piece.token for piece in pieces}
    WordPieceTokenizer(extended(old, pieces)).save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for ours in (WordPieceTokenizer.load(tmp_path), FastTokenizer.load(tmp_path)):
        assert len(theirs) == ours.vocab_size
        for text in TEXTS:
            assert ours.encode(text).ids == theirs(text)["input_ids"]
