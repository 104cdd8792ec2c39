"""Outputs of models, decoding, and scores."""

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.families.bert import MINI_BERT_CONFIG, BertWithHead
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import encode_examples
from glassbert.finetuning.outcome import Outcome, answers, choices, cosines, probabilities, true_names
from glassbert.finetuning.scoring import (
    batches_longest_first,
    compute_scores,
    cross_fitted_labels,
    score_examples,
)
from glassbert.finetuning.spans import SpanAnswer
from glassbert.finetuning.tags import marks_spans
from tests.finetuning.toy import make_tokenizer

TOKENIZER = make_tokenizer()
CONFIG = MINI_BERT_CONFIG.replace(
    vocab_size=TOKENIZER.vocab_size, hidden_size=16, num_attention_heads=2, intermediate_size=32,
    num_hidden_layers=1, max_position_embeddings=24, initializer_range=0.5,
)  # fmt: skip


def model(head, labels=0, **options):
    return BertWithHead(CONFIG, head, labels, engine="numpy", dtype="float64", threads=1, **options)


def card(head, **changes):
    labels = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c"), "ordinal": ("low", "mid", "high")}.get(head, ())
    return TaskCard(**{"title": "toy", "head": head, "text": "t", "target": "y", "labels": labels, "max_length": 12,
                       **changes})  # fmt: skip


# ---- outputs --------------------------------------------------------------------------------------------------------


def test_outputs_are_independent_of_batches_and_averaged_over_windows():
    made = card("multiclass")
    rows = [{"t": "bird king " * n, "y": "abc"[n % 3]} for n in range(1, 12)]
    examples = encode_examples(made.read(rows, with_targets=True), TOKENIZER, made)
    subject = model("sequence", 3)
    subject.set_training(True)  # scoring must turn dropout off
    outputs = score_examples(subject, examples)
    assert outputs.shape == (11, 3) and subject.training
    np.testing.assert_allclose(outputs, score_examples(subject, examples, batch_tokens=12), atol=1e-12)
    own = np.flatnonzero(examples.rows.owners == 10)
    assert len(own) > 1
    by_hand = [
        subject.predict(**{k: v for k, v in examples.inputs(np.array([row])).items() if k != "labels"})[0]
        for row in own
    ]
    np.testing.assert_allclose(outputs[10], np.mean(by_hand, 0), atol=1e-12)


def test_token_outputs_have_one_row_per_word():
    made = card("token", text=None, words="w", labels=("N", "V"))
    rows = [{"w": ["bird", "sings"] * n, "y": ["N", "V"] * n} for n in (1, 9)]
    examples = encode_examples(made.read(rows, with_targets=True), TOKENIZER, made)
    outputs = score_examples(model("token", 2), examples)
    assert [one.shape for one in outputs] == [(2, 2), (18, 2)]


def test_regression_is_in_the_units_of_the_target():
    made = card("regression")
    examples = encode_examples(made.read([{"t": "bird", "y": 1.0}], with_targets=True), TOKENIZER, made)
    plain = score_examples(model("sequence", 1, loss="mean_squared_error"), examples)
    options = {"target_mean": 100.0, "target_scale": 10.0}
    scaled = score_examples(model("sequence", 1, loss="mean_squared_error", loss_options=options), examples)
    np.testing.assert_allclose(scaled, 100 + 10 * plain)


def test_batches_respect_the_token_budget():
    lengths = np.array([3, 9, 4, 4, 20, 1])
    batches = batches_longest_first(lengths, 12)
    assert sorted(np.concatenate(batches).tolist()) == list(range(6))
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= 12 for batch in batches)


# ---- decoding --------------------------------------------------------------------------------------------------------


def test_answers_of_every_head():
    assert answers(np.array([-1.0, 2.0]), card("binary")) == ["no", "yes"]
    assert answers(np.array([[0, 3, 1.0]]), card("multiclass")) == ["b"]
    assert answers(np.array([[9.0, -9.0], [-9.0, 0.0], [9.0, 9.0]]), card("ordinal")) == ["mid", "low", "high"]
    many = card("multilabel", labels=("a", "b"), thresholds=(0.1, 0.9))
    assert answers(np.array([[0.0, 0.0]]), many) == [["a"]]
    assert answers([np.array([[0, 1.0], [1.0, 0]])], card("token", labels=("O", "B-X"))) == [["B-X", "O"]]
    assert answers([[SpanAnswer("Ada", 3, 6, 1.0)]], card("span")) == ["Ada"]
    assert true_names(np.array([1, 0]), card("binary")) == ["yes", "no"]


def test_temperature_changes_only_probabilities():
    outputs = np.array([[0.0, 3.0, 1.0], [2.0, 1.0, 0.0]])
    hot, cold = card("multiclass", temperature=10.0), card("multiclass", temperature=None)
    assert probabilities(outputs, hot).max() < probabilities(outputs, cold).max()
    assert answers(outputs, hot) == answers(outputs, cold)
    np.testing.assert_allclose(probabilities(outputs, hot).sum(1), 1)


def test_binary_threshold():
    outputs = np.array([-0.5, 0.5])
    assert choices(outputs, card("binary")).tolist() == [0, 1]
    assert choices(outputs, card("binary", thresholds=(0.9,))).tolist() == [0, 0]


def test_cosines_of_pairs():
    outputs = np.array([[[1.0, 0], [2.0, 0]], [[1.0, 0], [0, 1.0]], [[0.0, 0], [1.0, 1.0]]])
    np.testing.assert_allclose(cosines(outputs), [1, 0, 0])


# ---- scores ----------------------------------------------------------------------------------------------------------


def test_main_metric_comes_first():
    scores = compute_scores(
        np.array([-1.0, 2.0, 1.0, -3.0]), np.array([0, 1, 0, 0]), card("binary", metric="f1"), resamples=20
    )
    assert next(iter(scores)) == "f1" and scores["accuracy"].value == 0.75 and scores["auc"].value == 1.0
    assert scores["accuracy"].low is not None


def test_auc_of_one_class_is_undefined():
    scores = compute_scores(np.array([1.0, 2.0]), np.array([1, 1]), card("binary"))
    assert scores["auc"].value is None and "both classes" in scores["auc"].reason


def test_token_metrics():
    made = card("token", labels=("B-X", "I-X", "O"), metric="span_f1")
    truth = [np.array([0, 1, 2]), np.array([2])]
    outputs = [np.eye(3)[[0, 1, 2]], np.eye(3)[[0]]]
    scores = compute_scores(outputs, truth, made, resamples=20)
    assert marks_spans(made) and not marks_spans(card("token", labels=("NOUN", "VERB")))
    assert scores["accuracy"].value == 0.75 and scores["span_recall"].value == 1.0
    assert scores["span_precision"].value == 0.5


def test_macro_f1_over_words():
    made = card("token", labels=("N", "V"), metric="macro_f1")
    scores = compute_scores([np.eye(2)[[0, 1, 1]]], [np.array([0, 1, 0])], made, resamples=10)
    assert scores["macro_f1"].value == pytest.approx(2 / 3)


def test_multilabel_thresholds_are_cross_fitted():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, (40, 3))
    noise = rng.random((40, 3))  # uninformative scores
    made = card("multilabel", labels=("a", "b", "c"))
    crossed = cross_fitted_labels(truth, noise)
    changed = truth.copy()
    changed[0] = 1 - changed[0]  # row 0 must not influence the labels of even rows
    np.testing.assert_array_equal(cross_fitted_labels(changed, noise)[::2], crossed[::2])
    perfect = compute_scores(np.where(truth, -3.0, -5.0), truth, made)  # all probabilities are below 0.5
    assert perfect["micro_f1"].value == 1.0


def test_retrieval_accuracy_of_pairs_without_scores():
    vectors = np.array([[[1.0, 0], [1.0, 0.1]], [[0, 1.0], [0.1, 1.0]]])
    made = card("embedding", pair="p", metric="accuracy")
    assert compute_scores(vectors, None, made)["accuracy"].value == 1.0
    with pytest.raises(InputError, match="no targets to score"):
        compute_scores(np.array([1.0]), None, card("binary"))


def test_error_for_a_metric_that_does_not_fit():
    with pytest.raises(InputError, match="needs probabilities"):
        compute_scores(np.array([1.0]), np.array([1.0]), card("regression", metric="auc"))


def test_outcome_rows():
    made = card("binary")
    data = made.read([{"t": "bird", "y": "no"}, {"t": "king", "y": "yes"}], with_targets=True)
    truth, outputs = np.array([0, 1]), np.array([-2.0, -1.0])
    outcome = Outcome(made, data, truth, outputs, compute_scores(outputs, truth, made))
    assert outcome.answers() == ["no", "no"] and outcome.true_answers() == ["no", "yes"] and len(outcome) == 2
    row = outcome.rows()[1]
    assert row["text"] == "king" and row["truth"] == "yes" and sum(row["probabilities"].values()) == pytest.approx(1)
    assert outcome.main.value == 1.0
