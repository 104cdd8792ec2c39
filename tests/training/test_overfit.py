"""A model with correct gradients overfits one batch."""

import pytest

from glassbert import MINI_BERT_CONFIG, BertWithHead
from glassbert.text import FastTokenizer, mask_tokens
from glassbert.training.step import overfit_one_batch
from tests.text.sample_sentences import SENTENCES


@pytest.fixture(scope="module")
def batch():
    tokenizer = FastTokenizer.train(SENTENCES[:8], vocab_size=200, min_frequency=1)
    given = tokenizer.batch(SENTENCES[:8])
    masked = mask_tokens(given["input_ids"], tokenizer.mask_id, tokenizer.vocab_size)
    return tokenizer, masked.input_ids, masked.targets, given["attention_mask"]


def test_one_batch_is_overfitted(batch):
    tokenizer, ids, labels, mask = batch
    config = MINI_BERT_CONFIG.replace(
        vocab_size=tokenizer.vocab_size, hidden_size=64, intermediate_size=128, num_hidden_layers=2
    )
    losses = list(overfit_one_batch(BertWithHead(config, "mlm", engine="numpy"), ids, labels, mask, 300, 3e-3))
    assert losses[0] > 4.5
    assert losses[-1] < 0.01
