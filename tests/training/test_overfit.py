"""A model with correct gradients learns one batch by heart."""

import numpy as np

from glassbert import MINI_BERT_CONFIG, MiniBERT
from glassbert.text.sentences import MASK, PAD, SENTENCES, SPECIAL_TOKENS, padded_batch, train_tokenizer
from glassbert.training.overfit import mask_some, overfit_one_batch


def test_special_tokens_are_ids_0_to_4():
    tokenizer = train_tokenizer()
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert tokenizer.decode(tokenizer.encode(SENTENCES[0]).ids).lower().startswith("paris is the capital")


def test_masking_hides_words_only_and_at_least_one_a_row():
    ids, mask = padded_batch(train_tokenizer(), SENTENCES, 64)
    masked, labels = mask_some(ids, MASK, len(SPECIAL_TOKENS))
    hidden = labels != -100
    assert hidden.any(1).all()
    assert (masked[hidden] == MASK).all() and (ids[hidden] >= len(SPECIAL_TOKENS)).all()
    np.testing.assert_array_equal(masked[~hidden], ids[~hidden])
    np.testing.assert_array_equal(mask == 0, ids == PAD)


def test_a_small_model_learns_a_batch_by_heart():
    tokenizer = train_tokenizer(SENTENCES[:6], 200)
    ids, mask = padded_batch(tokenizer, SENTENCES[:6], 64)
    masked, labels = mask_some(ids, MASK, len(SPECIAL_TOKENS))
    config = MINI_BERT_CONFIG.replace(vocab_size=200, hidden_size=64, intermediate_size=128, num_hidden_layers=2)
    losses = list(overfit_one_batch(MiniBERT(config, engine="numpy"), masked, labels, mask, 120, 3e-3))
    assert losses[0] > 4.0
    assert losses[-1] < 0.05
