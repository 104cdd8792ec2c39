"""Predicted tags that make whole spans."""

from itertools import product

import numpy as np
import pytest

from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import choices
from glassbert.finetuning.tags import WHOLE_SPANS, best_tags, makes_whole_spans
from glassbert.metrics import broken_spans

BIO = ("B-X", "B-Y", "I-X", "I-Y", "O")
BIOES = ("O", "B-X", "I-X", "E-X", "S-X", "S-Y", "B-Y", "E-Y")


def consistent(tags, labels):
    """By the definition of the metrics; the second sentence says that ends are marked, where labels do so."""
    ends = [[label] for label in labels if label.startswith("S-")]
    return broken_spans([[labels[tag] for tag in tags], *ends]) == 0


@pytest.mark.parametrize("labels", [BIO, BIOES])
def test_the_best_of_all_consistent_sequences(labels):
    rng, changed = np.random.default_rng(0), 0
    for words in (1, 2, 3, 4, 4, 4):
        scores = 2 * rng.standard_normal((words, len(labels)))
        sequences = [one for one in product(range(len(labels)), repeat=words) if consistent(one, labels)]
        best = max(sequences, key=lambda tags: sum(scores[word, tag] for word, tag in enumerate(tags)))
        assert best_tags(scores, labels).tolist() == list(best)
        changed += list(best) != scores.argmax(-1).tolist()
    assert changed >= 2


def test_an_empty_sentence_and_consistent_tags_stay():
    assert best_tags(np.zeros((0, 5)), BIO).tolist() == []
    assert best_tags(np.eye(5)[[0, 2, 4, 1, 0]], BIO).tolist() == [0, 2, 4, 1, 0]


def test_only_tags_that_were_consistent_in_training_are_kept_so():
    card = TaskCard(title="toy", head="token", words="words", labels=BIO)
    assert makes_whole_spans(card, [np.array([0, 2, 4]), np.array([], np.int64)])
    assert not makes_whole_spans(card, [np.array([4, 2])])  # a span that begins with I
    assert not makes_whole_spans(card.replace(labels=("NOUN", "O", "X", "Y", "Z")), [np.array([0])])
    outputs = [np.array([[0, 0, 0, 0, 3.0], [0, 0, 2.0, 0, 1.5]])]  # O I-X
    assert choices(outputs, card)[0].tolist() == [4, 2]
    assert choices(outputs, card.replace(details={WHOLE_SPANS: True}))[0].tolist() == [4, 4]
