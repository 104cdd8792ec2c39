"""Everything that can be chosen about a fine-tuning, in one frozen dataclass.

    FineTuningSettings(model="runs/mini", task="sst2", data="data")
    FineTuningSettings(model="mini", train="reviews.csv", text="review", target="stars")

What is None is chosen from the model and the data when the run begins (`glassbert.finetuning.choosing`), and said. The
flags of `glassbert finetune` are made from these fields, and a run keeps them in its settings.json.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from glassbert.errors import TrainingError
from glassbert.finetuning.card import HEADS
from glassbert.metrics import METRICS
from glassbert.models.config import CHOICES
from glassbert.training.settings import ENGINES, LEARNING_RATES, PRECISIONS, SCHEDULES
from glassbert.training.settings_base import (
    Check,
    Settings,
    about,
    check_fields,
    is_between,
    is_flag,
    is_integer,
    is_number,
    is_text,
    one_of,
)

FREEZABLE = ("none", "embeddings", "encoder")


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings(Settings):
    """The settings of a fine-tuning. Lengths are in tokens, shares between 0 and 1."""

    model: str = about(
        "",
        "What to begin with: a run, a saved model, a Hugging Face folder or hub id; or mini, larger, bert-base, ... "
        "for weights from scratch.",
        "Model",
    )
    tokenizer: str = about("", "A tokenizer folder, where the model brings none.", "Model")
    head: str | None = about(None, f"What is answered: {', '.join(HEADS)}. Without it: by the target.", "Model")
    pooling: str | None = about(None, "One vector of a text: cls, mean, max or attention.", "Model")
    dropout: float | None = about(None, "One rate for every dropout; without it as in pretraining.", "Model")
    low_rank: int | None = about(None, "LoRA: train matrices of this rank beside frozen weights.", "Model")
    low_rank_alpha: float | None = about(None, "LoRA: how much they count; twice the rank unless said.", "Model")
    low_rank_targets: tuple[str, ...] = about(
        ("query", "value"), "LoRA: which matrices (repeat it): query, key, value, output, up, down.", "Model"
    )

    task: str = about("", "A ready task: sst2, stsb, wnut17, titanic, ...; its files lie below --data.", "Examples")
    data: str = about("data", "The folder with the files of the ready tasks.", "Examples")
    train: str = about("", "A file to learn from: CSV, TSV, JSON lines, Parquet, CoNLL.", "Examples")
    dev: str = about("", "A file to measure with. Without it a part of the training file is held out.", "Examples")
    text: str | None = about(None, "The column with the text (for a span: the question).", "Examples")
    pair: str | None = about(None, "The column with the second text (for a span: the text searched).", "Examples")
    words: str | None = about(None, "The column with the words, for tags; 'words' in CoNLL files.", "Examples")
    target: str | None = about(None, "The column with the answer.", "Examples")
    template: str | None = about(None, "Make a text of a table row: auto, or 'a {sex} of {age}'.", "Examples")
    separator: str | None = about(None, "What separates several labels in one cell.", "Examples")
    label_prefix: str = about("", "What to take off every label, as '__label__'.", "Examples")
    format: str | None = about(None, "The format of the files, where their names do not tell.", "Examples")
    columns: tuple[str, ...] = about((), "Names of the columns of files without a header (repeat it).", "Examples")
    drop_missing: bool = about(False, "Leave out rows without a target instead of refusing them.", "Examples")
    held_out: float = about(0.1, "The share held out where there is no dev file.", "Examples")
    folds: int | None = about(None, "Cross-validation: so many parts, each of them held out once.", "Examples")
    fold: int | None = about(None, "Of a cross-validation only this part, counted from 0.", "Examples")
    limit: int | None = about(None, "Learn from so many examples at most, drawn at random.", "Examples")
    max_length: int | None = about(None, "Tokens a row; longer texts are cut into windows that overlap.", "Examples")
    stride: int | None = about(None, "Tokens from one window to the next; half a window unless said.", "Examples")
    max_windows: int = about(16, "Windows of one text at most (tags and spans: all).", "Examples")

    epochs: int | None = about(None, "How often all examples are seen.", "Learning")
    metric: str | None = about(None, "What decides which epoch is the best.", "Learning")
    patience: int | None = about(None, "Stop after so many evaluations without a gain; 0: never.", "Learning")
    evaluations: int = about(1, "Evaluations in every epoch.", "Learning")
    seeds: int = about(1, "How many times to fine-tune, each with other random numbers.", "Learning")
    seed: int = about(0, "The first of these seeds.", "Learning")
    optimizer: str = about("adamw", "adamw, lion, sophia, muon or sgd.", "Learning")
    learning_rate: float | None = about(None, "The highest learning rate; without it by the model's size.", "Learning")
    layer_decay: float | None = about(None, "Each layer below learns slower by this factor, as 0.9.", "Learning")
    head_factor: float | None = about(None, "The new head learns faster by this factor.", "Learning")
    freeze: str = about("none", "What stands still: none, embeddings, encoder, or a number of layers.", "Learning")
    unfreeze_every: int | None = about(
        None, "Gradual unfreezing: the head first, then a layer more every so many epochs, from the top.", "Learning"
    )
    weight_decay: float = about(0.01, "Decoupled decay of weights; norms and biases have none.", "Learning")
    clip: float | None = about(1.0, "Gradients of a larger norm are scaled down to it; 0 turns it off.", "Learning")
    schedule: str = about("linear", "constant, linear, cosine, inverse-root or wsd.", "Learning")
    warmup: float = about(0.1, "The share of the run in which the learning rate rises.", "Learning")
    batch: int = about(32, "Examples of a batch.", "Learning")
    batch_tokens: int = about(8_192, "Tokens of a batch at most: long texts make smaller ones.", "Learning")
    physical_batch: int | None = about(None, "Rows computed at a time; their gradients add up.", "Learning")
    class_weights: str = about("none", "balanced: rare labels count more, by how rare they are.", "Learning")
    label_smoothing: float | None = about(None, "The share of every answer spread over all labels.", "Learning")
    focal_gamma: float | None = about(None, "How little counts what is known already; 2 is usual.", "Learning")
    embedding_loss: str | None = about(None, "cosine (pairs with scores) or contrastive (without).", "Learning")
    ema: float | None = about(None, "Keep a moving average of the weights with this decay, and save it.", "Learning")

    baseline: bool = about(True, "Fit a simple model on the same examples, to compare.", "End")
    report: bool = about(True, "Write report.html.", "End")
    resamples: int = about(1_000, "Resamples of the bootstrap intervals.", "End")

    engine: str = about("auto", "auto, numpy or mlx.", "Machine")
    precision: str = about("float32", "float32; bfloat16 on MLX; float64 on NumPy.", "Machine")
    threads: int | None = about(None, "Threads of the NumPy engine; without it every core.", "Machine")
    gradient_checkpointing: bool = about(False, "Less memory for a third more time.", "Machine")

    def __post_init__(self) -> None:
        for name in ("columns", "low_rank_targets"):
            names: Any = getattr(self, name) or ()
            object.__setattr__(self, name, (names,) if isinstance(names, str) else tuple(names))
        object.__setattr__(self, "freeze", str(self.freeze))
        check_fields(self, CHECKS, OPTIONAL)
        if not self.model:
            raise TrainingError("say with --model what to begin with: a run, a saved model, a hub id, or mini")
        if bool(self.task) == bool(self.train):
            raise TrainingError(
                "say what to learn: a ready task with --task, or a file with --train"
                if not self.task
                else f"--task {self.task} brings its own files; leave --train out, or --task"
            )
        if self.fold is not None and (self.folds is None or self.fold >= self.folds):
            raise TrainingError(f"fold {self.fold} is one of how many? Say --folds, a number above it")
        if self.folds is not None and self.dev:
            raise TrainingError("folds are parts of the training file, each held out once; leave --dev out")
        if self.clip == 0:
            object.__setattr__(self, "clip", None)
        if self.label_smoothing and self.focal_gamma:
            raise TrainingError("label_smoothing and focal_gamma work against each other; choose one of them")
        if self.physical_batch is not None and self.physical_batch > self.batch:
            raise TrainingError(
                f"physical_batch {self.physical_batch} is larger than the batch of {self.batch} examples"
            )


def _freezes(value: Any) -> bool:
    return value in FREEZABLE or str(value).isdigit()


CHECKS: dict[str, Check] = {
    **dict.fromkeys(
        ("model", "tokenizer", "task", "data", "train", "dev", "text", "pair", "words", "target", "template",
         "separator", "label_prefix", "format"),
        (is_text, "text"),
    ),
    **dict.fromkeys(("drop_missing", "gradient_checkpointing", "baseline", "report"), (is_flag, "true or false")),
    **dict.fromkeys(
        ("low_rank", "limit", "stride", "max_windows", "epochs", "evaluations", "seeds", "batch", "physical_batch",
         "unfreeze_every", "threads"),
        (is_integer(1), "a whole number of at least 1"),
    ),
    **dict.fromkeys(("seed", "patience", "resamples", "fold"), (is_integer(0), "a whole number of at least 0")),
    "folds": (is_integer(2), "a whole number of at least 2"),
    **dict.fromkeys(("max_length", "batch_tokens"), (is_integer(8), "a whole number of at least 8")),
    **dict.fromkeys(("dropout", "warmup", "label_smoothing"), (lambda v: is_number(v) and 0 <= v < 1, "in [0, 1)")),
    **dict.fromkeys(
        ("learning_rate", "low_rank_alpha", "head_factor"), (is_between(0, math.inf), "a number above 0")
    ),
    **dict.fromkeys(("weight_decay", "clip", "focal_gamma"), (lambda v: is_number(v) and v >= 0, "at least 0")),
    "layer_decay": (lambda value: is_number(value) and 0 < value <= 1, "in (0, 1], as 0.9"),
    "held_out": (is_between(0, 1), "between 0 and 1"),
    "ema": (is_between(0, 1), "between 0 and 1, like 0.999"),
    "head": one_of(*HEADS),
    "pooling": one_of(*CHOICES["classifier_pooling"]),
    "metric": one_of(*METRICS),
    "freeze": (_freezes, f"one of {', '.join(FREEZABLE)}, or how many layers"),
    "class_weights": one_of("none", "balanced"),
    "embedding_loss": one_of("cosine", "contrastive"),
    "optimizer": one_of(*LEARNING_RATES),
    "schedule": one_of(*SCHEDULES),
    "engine": one_of(*ENGINES),
    "precision": one_of(*PRECISIONS),
    **dict.fromkeys(
        ("columns", "low_rank_targets"),
        (lambda value: all(isinstance(name, str) for name in value), "a list of names"),
    ),
}  # fmt: skip
OPTIONAL = {name for name, f in FineTuningSettings.fields().items() if "None" in str(f.type)}
