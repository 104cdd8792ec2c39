"""Round trips of every head of every task: weights, pooling, loss and its options."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassbert
from glassbert.errors import CheckpointError
from tests.checkpoints.tiny import BERT, CONFIGS, assert_same, edit_config, load, tiny, weights

WEIGHTS = [0.5, 1.0, 2.0]
# name -> (head type, labels, options)
TASKS: dict[str, tuple[str, int | None, dict[str, Any]]] = {
    "binary": ("binary", None, {"positive_weights": [3.0]}),
    "binary, focal, max": ("binary", None, {"focal_gamma": 2.0, "pooling": "max"}),
    "multiclass": ("multiclass", 3, {"class_weights": WEIGHTS, "label_smoothing": 0.1}),
    "multiclass, attention": ("multiclass", 3, {"pooling": "attention", "focal_gamma": 1.5, "class_weights": WEIGHTS}),
    "multilabel, mean": ("multilabel", 3, {"pooling": "mean", "positive_weights": WEIGHTS}),
    "regression": ("regression", None, {"target_mean": [3.5], "target_scale": [1.25]}),
    "regression of two": ("regression", 2, {"target_mean": [3.5, 0.0], "target_scale": [1.25, 2.0]}),
    "ordinal": ("ordinal", 5, {}),
    "ordinal, attention": ("ordinal", 5, {"pooling": "attention"}),
    "token": ("token", 4, {"label_smoothing": 0.2}),
    "span": ("span", None, {}),
    "embedding": ("embedding", None, {}),
    "embedding, max": ("embedding", None, {"pooling": "max", "loss": "contrastive"}),
    "embedding, ranking": ("embedding", None, {"loss": "ranking", "temperature": 0.1}),
    "embedding, attention, contrastive": (
        "embedding", None, {"pooling": "attention", "loss": "contrastive", "temperature": 0.1},
    ),
}  # fmt: skip
THEIRS = {
    "bert": {
        "binary",
        "multiclass",
        "regression",
        "regression of two",
        "token",
        "span",
        "embedding",
        "embedding, max",
        "embedding, ranking",
    },
    "modernbert": {
        *("binary", "multiclass", "multilabel, mean", "regression", "regression of two", "token", "span"),
        *("embedding", "embedding, max", "embedding, ranking"),
    },
    "mini": set(),
}


def task_model(family: str, task: str) -> glassbert.Model:
    head_type, labels, options = TASKS[task]
    model = glassbert.create_model(
        "bert_with_head",
        head_type=head_type,
        num_labels=labels,
        config=CONFIGS[family],
        engine="numpy",
        threads=1,
        **options,
    )
    rng = np.random.default_rng(1)
    for name, value in model.parameters.items():
        model.parameters[name] = rng.standard_normal(value.shape)
    return model


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("family", CONFIGS)
def test_a_round_trip(family: str, task: str, tmp_path: Path) -> None:
    model = task_model(family, task)
    model.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = load(tmp_path)
    if "regression" in task and task in THEIRS[family]:  # written in the units of its labels: a digit may be rounded
        for name in ("head.classifier.weight", "head.classifier.bias"):
            np.testing.assert_allclose(again.parameters[name], model.parameters[name], rtol=1e-6, atol=1e-6)
            again.parameters[name] = model.parameters[name]
    assert_same(model, again)
    assert model.head is not None and again.head is not None
    assert again.head.loss_options == model.head.loss_options
    ids = np.arange(1, 9).reshape(2, 4)
    assert model.predict(ids).tobytes() == again.predict(ids).tobytes()
    fields = json.loads((tmp_path / "config.json").read_text())
    assert ("architectures" in fields) == (task in THEIRS[family])
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()


def test_without_options_a_checkpoint_is_written_as_before(tmp_path: Path) -> None:
    for family in CONFIGS:
        tiny(CONFIGS[family], "sequence", 3).save(tmp_path)
        fields = json.loads((tmp_path / "config.json").read_text())
        assert "loss_options" not in fields and "loss_options" not in fields.get("glassbert", {})


def test_another_pooling_is_initialised_and_keeps_the_classifier(tmp_path: Path) -> None:
    for family in CONFIGS:
        model = tiny(CONFIGS[family], "sequence", 3)
        model.save(tmp_path)
        with pytest.warns(UserWarning, match=r"no weights for head\.pool\.query"):
            other = load(tmp_path, pooling="attention")
        assert other.config.classifier_pooling == "attention" and not other.config.pooler
        for name, value in weights(other).items():
            assert name == "head.pool.query" or value.tobytes() == model.parameters[name].tobytes(), name


def test_any_head_on_a_pretrained_encoder(tmp_path: Path) -> None:
    for family in CONFIGS:
        tiny(CONFIGS[family], "mlm").save(tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            embedding = load(tmp_path, head="embedding")  # this head has no weights
        assert embedding.config.classifier_pooling == "mean"
        with pytest.warns(UserWarning, match=r"head\.classifier"):
            ranks = load(tmp_path, head="sequence", num_labels=5, loss="ordinal", pooling="mean")
        assert ranks.predict(np.array([[1, 2]])).shape == (1, 4)
        with pytest.warns(UserWarning, match=r"head\.classifier"):
            weighted = load(tmp_path, head="sequence", num_labels=3, loss_options={"class_weights": WEIGHTS})
        assert weighted.head is not None and weighted.head.loss_options.class_weights == tuple(WEIGHTS)


def test_pooling_of_a_head_that_has_none(tmp_path: Path) -> None:
    tiny(BERT, "mlm").save(tmp_path)
    for head in (None, "core", "token"):
        with pytest.raises(CheckpointError, match="does not use"):
            load(tmp_path, head=head, pooling="mean")


def test_options_stay_with_the_labels_and_the_loss_they_were_made_for(tmp_path: Path) -> None:
    task_model("bert", "multiclass").save(tmp_path)
    with pytest.warns(UserWarning, match=r"head\.classifier"):
        other = load(tmp_path, num_labels=4)
    assert other.head is not None and other.head.loss_options.class_weights is None
    same = load(tmp_path, loss="binary_cross_entropy")  # the same weights with another loss
    assert same.head is not None and same.head.loss_options.to_dict() == {}
    with pytest.warns(UserWarning, match=r"head\.classifier"):
        ranks = load(tmp_path, loss="ordinal")
    assert ranks.head is not None and ranks.head.outputs == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"class_weights": [1.0]}, "class_weights must be one number for each of the head's 3 outputs, got 1"),
        ({"class_weights": [1.0, -1.0, 2.0]}, "class_weights must be a number above 0, got -1"),
        ({"class_weight": [1.0, 1.0, 2.0]}, "did you mean 'class_weights'"),
        ({"temperature": 0.1}, "temperature belongs to contrastive, ranking; the loss of this head is cross_entropy"),
        ({"label_smoothing": "much"}, "label_smoothing must be a number in"),
        (["class_weights"], "loss_options must hold options by name"),
    ],
)
def test_impossible_options_in_a_file(options: Any, sentence: str, tmp_path: Path) -> None:
    tiny(BERT, "sequence", 3).save(tmp_path)
    edit_config(tmp_path, glassbert={"loss_options": options})
    with pytest.raises(CheckpointError, match=sentence):
        load(tmp_path)
