"""Rows with next tokens as targets, and tokenizers with one special token."""

import numpy as np
import pytest
import tokenizers

from glassbert.errors import TextError
from glassbert.text import load_tokenizer
from glassbert.text.generator import MLMDataGenerator, NextTokenGenerator
from tests.text import synthetic_corpus


@pytest.mark.parametrize("packing", ["sentences", "tokens"])
def test_every_token_of_a_document_but_the_first_is_a_target(packing):
    corpus, tokenizer = synthetic_corpus.corpus(), synthetic_corpus.tokenizer()
    rows = NextTokenGenerator(corpus, tokenizer, 24, 8, packing=packing)
    same = MLMDataGenerator(corpus, tokenizer, 24, 8, packing=packing)
    batch, masked = rows.batch(1, 2), same.batch(1, 2)
    original = np.where(masked.labels != -100, masked.labels, masked.input_ids)
    np.testing.assert_array_equal(batch.input_ids, original)  # nothing is masked
    np.testing.assert_array_equal(batch.segment_ids, masked.segment_ids)
    first = batch.position_ids == 0
    assert (batch.input_ids[first & (batch.segment_ids != 0)] == synthetic_corpus.CLS).all()
    np.testing.assert_array_equal(batch.labels, np.where(first | (batch.segment_ids == 0), -100, batch.input_ids))


def test_a_tokenizer_with_one_special_token(tmp_path):
    """As that of GPT-2: the end of a text takes every role but that of the mask."""
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(["the old bird sings"] * 9, vocab_size=280, special_tokens=["<|endoftext|>"])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.sep_id == tokenizer.cls_id == tokenizer.pad_id == tokenizer.token_to_id("<|endoftext|>")
    assert tokenizer.decode(tokenizer.encode("the old bird", special_tokens=False)).strip() == "the old bird"
    with pytest.raises(TextError, match="this tokenizer has no mask token"):
        _ = tokenizer.mask_id
