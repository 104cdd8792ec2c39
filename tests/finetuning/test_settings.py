"""Validation of settings and the defaults that depend on model and data."""

import json

import pytest

from glassbert.errors import TrainingError
from glassbert.families.bert import MINI_BERT_CONFIG, BertConfig
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.preparing import default_learning_rate, default_patience, default_schedule, max_length
from glassbert.finetuning.settings import CHECKS, FineTuningSettings
from glassbert.tasks.file_settings import FileSettings


def settings(**changes):
    return FineTuningSettings.from_dict({"model": "mini", "train": "x.csv", **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "larger"}, "--from-scratch --preset larger"),
        ({"train": ""}, "--task, or a file with --train"),
        ({"task": "sst2"}, "has its own files"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"layer_decay": 1.1}, "layer_decay must be in"),
        ({"freeze": "everything"}, "freeze must be one of none, embeddings, encoder"),
        ({"head": "sentiment"}, "head must be one of binary"),
        ({"metric": "luck"}, "metric must be one of"),
        ({"physical_batch": 64}, "larger than the batch of 32"),
        ({"label_smoothing": 0.1, "focal_gamma": 2.0}, "cannot be combined"),
        ({"fold": 2, "folds": 2}, "--fold 2 needs --folds"),
        ({"folds": 3, "dev": "y.csv"}, "remove --dev"),
        ({"learning_rat": 1}, "did you mean 'learning_rate'"),
    ],
)
def test_invalid_settings(changes, message):
    with pytest.raises(TrainingError, match=message):
        settings(**changes)


def test_checks_and_json():
    assert set(CHECKS) == set(FineTuningSettings.fields()) - set(FileSettings.fields())
    given = settings(columns=["a", "b"], clip=0, patience=0, freeze=2)
    assert FineTuningSettings.from_dict(json.loads(json.dumps(given.to_dict()))) == given
    assert given.clip is None and given.freeze == "2"


def test_defaults_by_model_and_data():
    card = TaskCard(title="t", head="binary")

    def rate(config, examples=50_000, **changes):
        _, factor = default_schedule(card, examples)
        return default_learning_rate(settings(**changes), config, factor, False)

    assert rate(MINI_BERT_CONFIG) > 5 * rate(BertConfig()) and rate(MINI_BERT_CONFIG) > rate(MINI_BERT_CONFIG, 500)
    assert rate(BertConfig(), low_rank=4) > rate(BertConfig())
    assert rate(BertConfig(norm_position="pre")) == 2 * rate(BertConfig())
    assert rate(BertConfig(), learning_rate=0.5) == 0.5
    assert default_schedule(card, 500)[0] > default_schedule(card, 100_000)[0]
    pairs = card.replace(pair="b", details={"aligned": True})
    assert default_schedule(pairs, 5_000)[0] < default_schedule(card, 5_000)[0]
    assert default_patience(settings(), 20) == 10 and default_patience(settings(), 3) == 2
    assert default_patience(settings(patience=0), 20) == 0
    assert max_length(settings(), BertConfig(max_position_embeddings=8_192)) == 512
    assert max_length(settings(max_length=4_096), BertConfig(max_position_embeddings=64)) == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": "t.csv", "choose": "inner"}, "remove --choose"),
        ({"test": "t.csv", "inner": 0.2}, "remove --inner"),
        ({"folds": 3, "test": "t.csv"}, "remove --test"),
        ({"choose": "last", "inner": 0.2}, "--inner is the share"),
        ({"choose": "best"}, "choose"),
        ({"inner": 0.0}, "inner"),
        ({"pairs": "both"}, "pairs"),
        ({"numbers": "digits"}, "numbers"),
        ({"average": 0}, "average"),
        ({"token_dropout": 1.0}, "token_dropout"),
        ({"soup": True}, "--seeds 3"),
    ],
)
def test_choice_and_average_settings(changes, message):
    with pytest.raises(TrainingError, match=message):
        settings(**changes)
