"""Spans from consistent and inconsistent tags, and their scores."""

import pytest

from glassbert.metrics import Span, broken_spans, count_spans, sentence_spans, span_f1, spans

CASES = [
    ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
    ("O I-PER I-PER", [("PER", 1, 3)]),
    ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
    ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
    ("B-PER I-PER E-PER S-LOC", [("PER", 0, 3), ("LOC", 3, 4)]),
    ("B-PER L-PER U-LOC", [("PER", 0, 2), ("LOC", 2, 3)]),
    ("E-PER E-PER I-PER", [("PER", 0, 1), ("PER", 1, 2), ("PER", 2, 3)]),
    ("B-creative-work I-creative-work", [("creative-work", 0, 2)]),
    ("O O", []),
    ("", []),
]


@pytest.mark.parametrize(("tags", "expected"), CASES)
def test_default_reading(tags, expected):
    assert spans(tags.split()) == [Span(*span) for span in expected]


def test_spans_do_not_cross_sentences():
    assert sentence_spans([["B-PER"], ["I-PER"], []]) == [[Span("PER", 0, 1)], [Span("PER", 0, 1)], []]


def test_strict_reading():
    assert spans(["O", "I-PER", "B-PER", "I-PER"], strict=True) == [Span("PER", 2, 4)]
    assert spans(["B-PER", "I-PER", "O", "B-LOC", "E-LOC", "S-PER"], strict=True) == [
        Span("LOC", 3, 5),
        Span("PER", 5, 6),
    ]
    assert broken_spans([["O", "I-PER"], ["B-PER"]]) == 1


def test_span_scores():
    truth = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-LOC"]]
    predicted = [["B-PER", "O", "O"], ["B-LOC", "O", "B-LOC"]]
    counts = count_spans(truth, predicted)
    assert counts.names == ("LOC", "PER") and counts.tp.tolist() == [2, 0]
    assert span_f1(truth, predicted) == pytest.approx(4 / 6)
    assert span_f1(truth, predicted, "macro") == 0.5
    assert span_f1(truth, predicted, weights=[0, 1]) == 1
