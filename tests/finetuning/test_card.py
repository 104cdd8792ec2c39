"""The task card: files, defaults, errors, and reading examples."""

import json

import pytest

from glassbert.errors import CheckpointError, ConfigError
from glassbert.finetuning.card import TASK, TaskCard, head_of
from glassbert.tasks import TaskData


def card(**changes):
    given = {"title": "Reviews", "head": "multilabel", "text": "body", "target": "tags", "separator": ";"}
    return TaskCard(**{**given, "labels": ("a", "b"), "thresholds": (0.25, 0.75), "temperature": 1.5, **changes})


def test_save_and_load(tmp_path):
    template = TaskData.of([{"sex": "f", "age": 3, "y": 1}] * 3, template="{sex} of {age}", target="y").template
    written = card(template=template, details={"score_range": [0, 5]}, reading={"header": False})
    written.save(tmp_path / "model")
    assert TaskCard.load(tmp_path / "model") == written
    assert TaskCard.load(tmp_path) == written  # of the run


def test_defaults():
    assert card(metric="").metric == "micro_f1"
    assert TaskCard(title="x", head="binary", labels=("0", "1")).label_names == ("0", "1")
    assert head_of("tokens") == "token"


def test_error_for_a_folder_without_card(tmp_path):
    with pytest.raises(CheckpointError, match="glassbert finetune --model"):
        TaskCard.load(tmp_path)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"format": 99}', '{"format": 1, "head": "binary"}', '{"format": 1, "title": "x", "head": "?"}'],
)
def test_error_for_a_broken_card(tmp_path, content):
    (tmp_path / TASK).write_text(content)
    with pytest.raises(CheckpointError, match=r"task\.json cannot be used"):
        TaskCard.load(tmp_path)


def test_invalid_cards():
    with pytest.raises(ConfigError, match="no head 'sentiment'"):
        card(head="sentiment")
    with pytest.raises(ConfigError, match="no metric"):
        card(metric="luck")
    with pytest.raises(ConfigError, match="2 labels and 1 names"):
        card(label_names=("only",))


def test_reading_examples():
    rows = [{"body": "one", "tags": "a;b"}, {"body": "two", "tags": ""}]
    data = card().read(rows, with_targets=True)
    assert data.texts == ["one", "two"] and data.targets == [["a", "b"], []]
    assert card().read(rows).targets is None


def test_json_serialisable():
    json.dumps(card().as_json())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1), ("temperature", 0), ("temperature", "1.5"), ("temperature", float("nan")),
        ("temperature", float("inf")), ("temperature", True), ("thresholds", [0.5, 2.0]), ("thresholds", [0.5]),
        ("thresholds", 0.5), ("bias", [float("nan"), 1.0]), ("bias", [1.0]), ("labels", ["a", "a"]),
        ("labels", ["a", 3]), ("labels", "ab"), ("label_names", [None, "b"]), ("max_length", 0), ("max_length", 8.5),
        ("max_length", "8"), ("stride", 0), ("stride", 10**6), ("max_windows", -1), ("title", None),
        ("head", ["binary"]),
        ("text", 3), ("target", {}), ("reading", []), ("details", None), ("baseline", 1), ("examples", "x"),
        ("template", {"parts": 3}), ("template", []), ("chosen_on", "luck"), ("metric", {}), ("separator", 0),
    ],
)  # fmt: skip
def test_every_field_is_checked(tmp_path, field, value):
    """A temperature of -1 would swap the classes without a word."""
    (tmp_path / TASK).write_text(json.dumps({**card().as_json(), field: value}))
    with pytest.raises(CheckpointError, match=r"task\.json cannot be used"):
        TaskCard.load(tmp_path)
