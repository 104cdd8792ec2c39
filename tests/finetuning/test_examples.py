"""Encoded examples and labels of every head."""

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import encode_examples
from glassbert.ops import IGNORED
from tests.finetuning.toy import make_tokenizer

TOKENIZER = make_tokenizer()


def encoded(rows, **card):
    made = TaskCard(**{"title": "toy", "max_length": 12, **card})
    return encode_examples(made.read(rows, with_targets=True), TOKENIZER, made)


def test_every_window_of_a_long_text_has_its_label():
    rows = [{"t": "bird " * 30, "y": "no"}, {"t": "king", "y": "yes"}]
    examples = encoded(rows, head="binary", text="t", target="y", labels=("no", "yes"), max_windows=3)
    assert examples.rows.owners.tolist() == [0, 0, 0, 1]
    batch = examples.inputs(np.arange(4))
    assert batch["labels"].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (4, 12)
    assert batch["attention_mask"][3].sum() == 3
    assert "token_type_ids" not in batch
    assert examples.inputs(np.array([3]), multiple=8)["input_ids"].shape == (1, 8)


def test_token_types_of_pairs():
    card = TaskCard(title="toy", head="regression", text="a", pair="b", target="y", max_length=12)
    data = card.read([{"a": "the bird", "b": "a king", "y": 0.5}], with_targets=True)
    with_types = encode_examples(data, TOKENIZER, card).inputs(np.array([0]))
    assert with_types["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    assert "token_type_ids" not in encode_examples(data, TOKENIZER, card, token_types=False).inputs(np.array([0]))


def test_labels_are_on_the_first_token_of_a_word():
    rows = [{"words": ["bird", "qqq", "king"], "tags": ["N", "X", "N"]}]
    examples = encoded(rows, head="token", words="words", target="tags", labels=("N", "X"))
    labels = examples.inputs(np.array([0]))["labels"][0]
    assert labels[0] == labels[-1] == IGNORED
    assert labels[labels != IGNORED].tolist() == [0, 1, 0]
    assert [tags.tolist() for tags in examples.truth] == [[0, 1, 0]]


def test_rows_of_an_embedding_pair_are_adjacent():
    rows = [{"a": "bird", "b": "a bird sings", "y": 5}, {"a": "king", "b": "road", "y": 0}]
    details = {"score_range": [0, 5]}
    examples = encoded(rows, head="embedding", text="a", pair="b", target="y", details=details)
    batch = examples.inputs(np.array([1, 0]))
    assert batch["input_ids"].shape[0] == 4 and batch["labels"].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert examples.lengths.tolist() == [5, 3] and len(examples) == 2


def test_pairs_without_scores_have_label_one():
    examples = encoded([{"a": "bird", "b": "king"}], head="embedding", text="a", pair="b")
    assert examples.truth is None and examples.inputs(np.array([0]))["labels"].tolist() == [1.0, 1.0]


def test_span_labels_are_the_answer_or_cls():
    context = "the road falls " * 4 + "a king sings"
    rows = [{"question": "who", "context": context, "answer": "king sings"}]
    examples = encoded(rows, head="span", text="question", pair="context", target="answer", stride=1)
    king, sings = (TOKENIZER.token_to_id(word) for word in ("king", "sings"))
    found = set()
    for row, (first, last) in enumerate(examples.labels):
        ids = examples.inputs(np.array([row]))["input_ids"][0]
        whole = king in ids and sings in ids
        assert (ids[first], ids[last]) == ((king, sings) if whole else (TOKENIZER.cls_id, TOKENIZER.cls_id))
        found.add((king in ids, sings in ids))
    assert found == {(False, False), (True, False), (True, True)}
    assert examples.truth == [["king sings"]]


def test_several_answers_no_answer_and_answer_start():
    rows = [
        {"question": "who", "context": "king and king", "answers": {"text": ["king"], "answer_start": [9]}},
        {"question": "who", "context": "nobody", "answers": {"text": [], "answer_start": []}},
        {"question": "who", "context": "a king", "answers": ["king", "a king"]},
    ]
    card = {"head": "span", "text": "question", "pair": "context", "target": "answers", "max_length": 20}
    examples = encoded(rows, **card)
    assert examples.truth == [["king"], [""], ["king", "a king"]]
    assert examples.labels[1].tolist() == [0, 0]
    offsets = examples.spans.windows.encodings[0].offsets
    assert offsets[examples.labels[0][0]][0] == 9


def test_error_for_an_answer_outside_its_context():
    rows = [{"question": "who", "context": "a king", "answer": "queen"}]
    with pytest.raises(InputError, match=r"row 1: the answer 'queen' is not in its context"):
        encoded(rows, head="span", text="question", pair="context", target="answer")


def test_error_for_an_unseen_label():
    rows = [{"t": "bird", "y": "yes"}, {"t": "bird", "y": "maybe"}]
    with pytest.raises(InputError, match=r"row 2: the label 'maybe' was not seen in training"):
        encoded(rows, head="binary", text="t", target="y", labels=("no", "yes"))


def test_targets_are_optional():
    card = TaskCard(title="toy", head="binary", text="t", target="y", labels=("0", "1"), max_length=12)
    examples = encode_examples(card.read([{"t": "a bird"}]), TOKENIZER, card)
    assert examples.labels is None and examples.truth is None
