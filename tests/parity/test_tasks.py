"""Fine-tuned models in both directions: every head that transformers has a class for scores every example the same.

Here: trained a few steps, saved with the names of its labels, opened by transformers' Auto classes. There: made by
transformers, opened here with head, pooling, loss and names, and trained further.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import glassbert
from glassbert.checkpoints import label_names
from glassbert.errors import CheckpointError
from glassbert.text import WordPieceTokenizer
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from tests.parity.reference import CLASSES, random_batch, reference_model
from tests.parity.test_exchange import SIZES

CLASSES["bert", "span"] = transformers.BertForQuestionAnswering
CLASSES["modernbert", "span"] = transformers.ModernBertForQuestionAnswering
AUTO = {
    "sequence": transformers.AutoModelForSequenceClassification,
    "token": transformers.AutoModelForTokenClassification,
    "span": transformers.AutoModelForQuestionAnswering,
}
CONFIGS = {
    "bert": glassbert.BertConfig(**SIZES),
    "modernbert": glassbert.ModernBertConfig(**SIZES, local_window=5),
}
LENGTHS = [9, 4, 2, 7, 9, 1, 5, 8]
NAMES = ["never", "perhaps", "always"]
# head type -> (labels, options, names)
TASKS: dict[str, tuple[int | None, dict[str, Any], list[str] | None]] = {
    "binary": (None, {}, ["no", "yes"]),
    "multiclass": (3, {"label_smoothing": 0.1}, NAMES),
    "multilabel": (3, {"positive_weights": [1.0, 2.0, 3.0]}, NAMES),
    "regression": (None, {"target_mean": [2.5], "target_scale": [1.5]}, ["score"]),
    "token": (3, {}, NAMES),
    "span": (None, {}, None),
}
CASES = [("bert", task, "cls") for task in TASKS] + [
    ("modernbert", task, pooling)
    for task in TASKS
    for pooling in (("cls", "mean") if task not in ("token", "span") else ("cls",))
]


def targets(task: str, batch: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    mask = batch["attention_mask"]
    rows = len(mask)
    return {
        "binary": lambda: rng.integers(0, 2, rows),
        "multiclass": lambda: rng.integers(0, 3, rows),
        "multilabel": lambda: rng.integers(0, 2, (rows, 3)),
        "regression": lambda: rng.uniform(0, 5, rows),
        "token": lambda: np.where(mask == 1, rng.integers(0, 3, mask.shape), -100),
        "span": lambda: np.sort(rng.integers(0, np.array(LENGTHS)[:, None], (rows, 2)), 1),
    }[task]()


def scores(reference: Any, batch: dict[str, np.ndarray]) -> np.ndarray:
    with torch.no_grad():
        result = reference(**{name: torch.from_numpy(values) for name, values in batch.items()})
    if "logits" in result:
        return result.logits.numpy()
    return torch.stack([result.start_logits, result.end_logits], 1).numpy()


def real_places(task: str, batch: dict[str, np.ndarray]) -> Any:
    """Where scores mean something: not at padding."""
    real = batch["attention_mask"] == 1
    if task == "token":
        return real
    return np.broadcast_to(real[:, None], (len(real), 2, real.shape[1])) if task == "span" else slice(None)


@pytest.mark.parametrize(("family", "task", "pooling"), CASES)
def test_what_is_fine_tuned_here_scores_every_example_the_same_there(
    family: str, task: str, pooling: str, tmp_path: Path
) -> None:
    labels, options, names = TASKS[task]
    chosen = {"pooling": pooling} if task not in ("token", "span") else {}
    model = glassbert.create_model(
        "bert_with_head", head_type=task, num_labels=labels, config=CONFIGS[family], engine="numpy", **chosen, **options
    )
    rng = np.random.default_rng(5)
    batch = random_batch(rng, 61, LENGTHS)
    answers = targets(task, batch, rng)
    step = TrainingStep(model, AdamW(model, 3e-3))
    model.set_training(True)
    for _ in range(6):
        step(batch["input_ids"], answers, batch["attention_mask"])
    model.set_training(False)
    words = WordPieceTokenizer.train(["the old tree stands in the night"] * 3, vocab_size=40)
    model.save(tmp_path, labels=names, tokenizer=words)
    assert model.head is not None
    reference, info = AUTO[model.head.kind].from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    found, expected = model.predict(**batch), scores(reference.eval(), batch)
    if task == "regression":
        found = model.head.decode(found)  # both in the units of the labels
    assert found.shape == expected.shape
    assert np.abs(found - expected)[real_places(task, batch)].max() <= 1e-5
    if names is not None:
        assert list(reference.config.id2label.values()) == (names[1:] if task == "binary" else names)
    texts = transformers.AutoTokenizer.from_pretrained(tmp_path)("the old tree")["input_ids"]
    assert texts == words.encode("the old tree").ids
    reference.save_pretrained(tmp_path / "theirs")
    again = glassbert.load(tmp_path / "theirs", engine="numpy")
    assert again.head is not None and again.head.loss_options == model.head.loss_options
    assert again.config == model.config and again.head.loss_name == model.head.loss_name
    assert np.abs(again.predict(**batch) - model.predict(**batch))[real_places(task, batch)].max() <= 1e-5


PROBLEMS = {
    "multiclass": ("sequence", "single_label_classification", "cross_entropy"),
    "multilabel": ("sequence", "multi_label_classification", "binary_cross_entropy"),
    "regression": ("sequence", "regression", "mean_squared_error"),
    "token": ("token", None, "cross_entropy"),
    "span": ("span", None, "cross_entropy"),
}


@pytest.mark.parametrize(("family", "task", "pooling"), [case for case in CASES if case[1] in PROBLEMS])
def test_what_is_made_there_opens_here_with_head_pooling_and_names_and_goes_on_learning(
    family: str, task: str, pooling: str, tmp_path: Path
) -> None:
    head, problem, loss = PROBLEMS[task]
    count = {"regression": 1, "span": 2}.get(task, 3)
    config: dict[str, Any] = {"id2label": dict(enumerate(NAMES[:count])), **SIZES}
    config |= {"problem_type": problem} if problem else {}
    config |= {"classifier_pooling": pooling} if family == "modernbert" else {}
    reference = reference_model(family, head, **config)
    reference.save_pretrained(tmp_path)
    model = glassbert.load(tmp_path, engine="numpy")
    assert model.head is not None and (model.head.kind, model.head.loss_name) == (head, loss)
    assert model.config.classifier_pooling == pooling and label_names(model) == NAMES[:count]
    rng = np.random.default_rng(6)
    batch = random_batch(rng, 61, LENGTHS)
    found = model.predict(**batch)
    assert np.abs(found - scores(reference, batch))[real_places(task, batch)].max() <= 1e-5
    answers = targets(task, batch, rng)
    step = TrainingStep(model, AdamW(model, 3e-3))
    losses = [float(step(batch["input_ids"], answers, batch["attention_mask"]).loss) for _ in range(8)]
    assert losses[-1] < losses[0]


def test_a_pipeline_of_transformers_reads_the_names(tmp_path: Path) -> None:
    """A binary head has one score, whose sigmoid is the probability of "yes", for transformers as well."""
    words = WordPieceTokenizer.train(["the old tree stands in the night"] * 3, vocab_size=40)
    model = glassbert.create_model("bert_with_head", head_type="binary", config=CONFIGS["bert"], engine="numpy")
    model.save(tmp_path, labels=["no", "yes"], tokenizer=words)
    answer = transformers.pipeline("text-classification", model=str(tmp_path), device="cpu")("the old tree")
    assert model.head is not None
    expected = float(model.head.decode(model.predict(**words.batch(["the old tree"])))[0, 0])
    assert answer[0]["label"] == "yes" and answer[0]["score"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("task", "labels", "pooling", "sentence"),
    [
        ("ordinal", 4, "cls", "there is no loss 'ordinal' there"),
        ("multiclass", 3, "max", "classifier_pooling is 'max'"),
        ("multiclass", 3, "attention", "no tensor for the parameter head.pool.query"),
    ],
)
def test_what_has_no_class_there_is_kept_in_our_own_layout(
    task: str, labels: int, pooling: str, sentence: str, tmp_path: Path
) -> None:
    model = glassbert.create_model(
        "bert_with_head", head_type=task, num_labels=labels, pooling=pooling, config=CONFIGS["bert"], engine="numpy"
    )
    with pytest.raises(CheckpointError, match="Hugging Face has no class for this model") as caught:
        model.to_huggingface()
    assert sentence in str(caught.value)
    model.save(tmp_path)
    with pytest.raises(ValueError, match="glassbert"):
        transformers.AutoConfig.from_pretrained(tmp_path)
