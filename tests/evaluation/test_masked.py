"""Scores of masked words and pseudo-likelihoods against loops."""

import numpy as np
import pytest

from glassbert.evaluation.masked import blocks, pseudo_likelihoods, score
from tests.evaluation.subjects import subject


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("head", ["mlm", "pretraining"])
def test_scores_are_those_of_predict(head):
    one = subject(head, type_vocab_size=2)
    ids = np.random.default_rng(0).integers(5, 96, (6, 12))
    asked = np.array([1, 14, 15, 40, 71])
    targets = ids.reshape(-1)[asked]
    output = one.model.predict(ids)
    logits = (output["mlm"] if head == "pretraining" else output).reshape(-1, 96)[asked]
    found = score(one.model, ids, asked, targets)
    rows = np.arange(5)
    np.testing.assert_allclose(found.log_probability, log_softmax(logits)[rows, targets], atol=1e-6)
    np.testing.assert_array_equal(found.rank, (logits > logits[rows, targets][:, None]).sum(1))


def test_ties_are_ranked_as_in_argmax():
    one = subject()
    for name in ("head.decoder.weight", "head.decoder.bias"):
        one.model.parameters[name] = 0.0
    found = score(one.model, np.full((1, 4), 9), np.array([0, 1, 2]), np.array([0, 1, 95]))
    assert found.rank.tolist() == [0, 1, 95]  # a model with equal scores is right once in 96 times
    np.testing.assert_allclose(found.log_probability, -np.log(96))


def test_many_positions_are_scored_in_parts(monkeypatch):
    one = subject()
    ids = np.random.default_rng(0).integers(5, 96, (4, 10))
    whole = score(one.model, ids, np.arange(40), ids.reshape(-1))
    monkeypatch.setattr("glassbert.evaluation.masked.SCORES_AT_ONCE", 96 * 7)
    parts = score(one.model, ids, np.arange(40), ids.reshape(-1))
    np.testing.assert_allclose(parts.log_probability, whole.log_probability, rtol=1e-6)
    np.testing.assert_array_equal(parts.rank, whole.rank)


def test_scoring_does_not_change_training_mode_and_dropout():
    one = subject(hidden_dropout=0.3)
    one.model.set_training(True)
    seed = one.model.dropout_seed
    ids = np.full((1, 6), 9)
    first, second = (score(one.model, ids, np.array([1]), np.array([9])) for _ in range(2))
    assert first.log_probability == second.log_probability
    assert one.model.training and one.model.dropout_seed == seed


def test_blocks_hold_every_row_once_and_no_padding():
    rows = [np.arange(n) for n in (3, 5, 3, 7, 5, 3)]
    found = list(blocks(rows, tokens=6))
    assert sorted(i for block in found for i in block.rows) == list(range(6))
    assert all(block.ids.shape[1] == len(rows[i]) for block in found for i in block.rows)
    assert all(len(block.rows) * block.ids.shape[1] <= 6 or len(block.rows) == 1 for block in found)


def test_pseudo_likelihood_masks_one_token_at_a_time():
    one = subject()
    sentences = [
        "the red house stands.",
        "a bird sings",
        "the red house stands.",
        "the old king sees a stone and a tree.",
    ]
    found = pseudo_likelihoods(one, sentences)
    for sentence, values in zip(sentences, found.tokens, strict=True):
        ids = np.array(one.tokenizer.encode(sentence).ids)
        for place in range(1, len(ids) - 1):
            hidden = ids.copy()
            hidden[place] = one.tokenizer.mask_id
            expected = log_softmax(one.model.predict(hidden[None])[0, place])[ids[place]]
            assert values[place - 1] == pytest.approx(expected, abs=1e-5)
    np.testing.assert_array_equal(found.tokens[0], found.tokens[2])


def test_empty_and_long_sentences_are_counted():
    found = pseudo_likelihoods(subject(), ["the " * 60, "", "a bird", "the " * 60])
    assert [values is None for values in found.tokens] == [True, True, False, True]
    assert found.too_long == 2 and found.empty == 1
    assert "2 sentences are longer than the model's input" in found.notes[0]
