"""`FineTuningSettings`: all settings of a fine-tuning run.

    FineTuningSettings(train="reviews.csv", text="review", target="stars")
    FineTuningSettings(model="runs/mine", task="sst2", data="data")

A None is replaced by a default from the model and the data when the run starts (`glassbert.finetuning.preparing`).
The flags of `glassbert finetune` are generated from these fields. A run stores them in settings.json.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassbert.checkpoints.family import PRESETS
from glassbert.checkpoints.packaged import DEFAULT_MODEL, packaged_names
from glassbert.errors import TrainingError
from glassbert.finetuning.card import HEADS
from glassbert.metrics import METRICS
from glassbert.models.config import CHOICES
from glassbert.models.heads import HEADS as MODEL_HEADS
from glassbert.tasks.file_settings import FileSettings
from glassbert.training.optimizers import OPTIMIZERS
from glassbert.training.settings import ENGINES, PRECISIONS, SCHEDULES
from glassbert.training.settings_base import (
    Check,
    about,
    check_fields,
    document,
    is_between,
    is_flag,
    is_integer,
    is_number,
    is_text,
    one_in,
    one_of,
)

TAUGHT_ONLY = ("further_teachers", "hidden", "relations", "texts", "augment", "teacher_scores", "compare")
FREEZABLE = ("none", "embeddings", "encoder")


@dataclass(frozen=True, kw_only=True)
class FineTuningSettings(FileSettings):
    """The settings of a fine-tuning run. Lengths are in tokens, shares between 0 and 1."""

    model: str = about(
        DEFAULT_MODEL,
        "The model to fine-tune: a run, a saved model, a Hugging Face folder or hub id, or the model that ships with "
        "GlassBERT.",
        "Model",
    )
    from_scratch: bool = about(False, "Start from random weights of a --preset instead of a model.", "Model")
    preset: str = about("", "With --from-scratch: mini, larger, bert-base, ...", "Model")
    tokenizer: str = about("", "A tokenizer folder, if the model has none.", "Model")
    head: str | None = about(None, f"The kind of prediction: {', '.join(HEADS)}. Default: from the target.", "Model")
    pooling: str | None = about(None, "Pooling of the token vectors: cls, mean, max, attention or last.", "Model")
    dropout: float | None = about(None, "Rate of all dropouts. Default: as in pretraining.", "Model")
    token_dropout: float | None = about(
        None, "Share of the tokens that a training batch hides, for heads over whole texts.", "Model"
    )
    low_rank: int | None = about(None, "LoRA: the rank of the trained matrices; the other weights are frozen.", "Model")
    low_rank_alpha: float | None = about(None, "LoRA: the scaling alpha. Default: twice the rank.", "Model")
    low_rank_targets: tuple[str, ...] = about(
        ("query", "value"),
        "LoRA: the adapted matrices (repeat the flag): query, key, value, output, up, down.",
        "Model",
    )

    task: str = about("", "A ready task: sst2, stsb, wnut17, titanic, ...; its files are in --data.", "Examples")
    data: str = about("data", "The folder with the files of the ready tasks.", "Examples")
    train: str = about("", "The training file: CSV, TSV, Excel, JSON, Parquet or CoNLL.", "Examples")
    dev: str = about("", "The evaluation file. Default: a part of the training file is held out.", "Examples")
    test: str = about(
        "", "A third file, for the reported scores; the dev examples then only choose (epoch, calibration).", "Examples"
    )
    choose: str | None = about(
        None,
        "Without --test, what chooses the epoch: inner (examples split off from training), last (nothing: the last "
        "epoch counts) or reported (the reported examples). Default: last for few examples, else inner.",
        "Examples",
    )
    inner: float | None = about(
        None, "The share of the training examples that --choose inner splits off. Default: a tenth.", "Examples"
    )
    text: str | None = about(None, "The text column (for spans: the question).", "Examples")
    pair: str | None = about(None, "The column of the second text (for spans: the context).", "Examples")
    pairs: str | None = about(
        None,
        "How two texts are compared: aligned (word by word) or cross (both in one sequence). Default: cross if the "
        "encoder has token types.",
        "Model",
    )
    words: str | None = about(None, "The column of the words, for token tasks; 'words' in CoNLL files.", "Examples")
    target: str | None = about(None, "The target column.", "Examples")
    template: str | None = about(None, "Turn table rows into texts: auto, or 'a {sex} of {age}'.", "Examples")
    numbers: str | None = about(
        None,
        "The numbers of table rows: values (beside the text, as numbers) or text (as digits). Default: values.",
        "Examples",
    )
    separator: str | None = about(None, "The separator between several labels in one cell.", "Examples")
    label_prefix: str = about("", "A prefix to remove from every label, such as '__label__'.", "Examples")
    positive: str | None = about(
        None, "The positive of two classes, the one that AUC and F1 are about. Default: the second one.", "Examples"
    )
    drop_missing: bool = about(False, "Skip rows without a target instead of raising an error.", "Examples")
    held_out: float = about(0.1, "The share of held-out examples, if there is no dev file.", "Examples")
    folds: int | None = about(None, "Cross-validation: the number of folds.", "Examples")
    fold: int | None = about(None, "Cross-validation: run only this fold, counted from 0.", "Examples")
    limit: int | None = about(None, "The maximum number of training examples, drawn at random.", "Examples")
    max_length: int | None = about(None, "Tokens per row; longer texts are split into overlapping windows.", "Examples")
    stride: int | None = about(None, "Tokens from one window to the next. Default: half a window.", "Examples")
    max_windows: int = about(16, "The maximum number of windows per text (token and span tasks: all).", "Examples")

    teacher: str = about(
        "", "A model that was fine-tuned for the same task, whose answers are learned besides the labels.", "Teacher"
    )
    further_teachers: tuple[str, ...] = about(
        (), "Further teachers for the same task (repeat the flag): the mean of all answers is learned.", "Teacher"
    )
    soft: float = about(0.9, "The weight of the teacher's answers; the labels have the rest. 1: no labels.", "Teacher")
    temperature: float = about(2.0, "Softens the answers of teacher and student.", "Teacher")
    hidden: float = about(
        0.0, "The weight of the teacher's last hidden states; teacher and student must share a tokenizer.", "Teacher"
    )
    relations: float = about(0.0, "The weight of the relations between the teacher's tokens; likewise.", "Teacher")
    texts: tuple[str, ...] = about(
        (), "Further texts without labels, for which the teacher answers (repeat the flag).", "Teacher"
    )
    augment: int = about(
        0, "So many copies of each training text, with some words replaced; the teacher answers for them.", "Teacher"
    )
    augment_model: str = about(DEFAULT_MODEL, "The masked language model that replaces words.", "Teacher")
    teacher_scores: str = about(
        "", "A folder that keeps the teacher's answers for other runs too. Without it: RUN/teacher.", "Teacher"
    )
    compare: bool = about(
        False, "Also fine-tune without the teacher, in RUN/without-teacher, for the report.", "Teacher"
    )

    column_teacher: float | None = about(
        None,
        "Tables with numbers: the weight of the answers of simple models of the columns, which are learned besides the "
        "labels; each model answers for rows that it has not seen. 0: labels alone. Default: 0.8 for 100 to 3,000 rows "
        "with scikit-learn, but 0 for ranks.",
        "Teacher",
    )
    mixed_rows: int | None = about(
        None,
        "With the column teacher: so many copies of each row, with some cells of other rows, which it answers for. "
        "Default: by the number of rows, 2, 1 or none.",
        "Teacher",
    )

    epochs: int | None = about(None, "Passes over all examples. Default: by their number.", "Learning")
    metric: str | None = about(None, "The metric that selects the best epoch.", "Learning")
    patience: int | None = about(None, "Stop after this many evaluations without improvement; 0: never.", "Learning")
    evaluations: int = about(1, "Evaluations per epoch.", "Learning")
    seeds: int = about(1, "The number of seeds to train.", "Learning")
    seed: int = about(0, "The first seed.", "Learning")
    optimizer: str = about("adamw", "adamw, lion, sophia, muon or sgd.", "Learning")
    learning_rate: float | None = about(None, "The peak learning rate. Default: by the size of the model.", "Learning")
    layer_decay: float | None = about(
        None, "Factor on the learning rate from each layer to the one below, such as 0.9.", "Learning"
    )
    head_factor: float | None = about(None, "Factor on the learning rate of the head.", "Learning")
    freeze: str = about(
        "none", "Frozen parameters: none, embeddings, encoder, or a number of lowest layers.", "Learning"
    )
    unfreeze_every: int | None = about(
        None,
        "Gradual unfreezing: start with the head, and unfreeze one more layer from the top every N epochs.",
        "Learning",
    )
    weight_decay: float = about(0.01, "Decoupled weight decay, except for norms and biases.", "Learning")
    clip: float | None = about(1.0, "The maximum gradient norm; 0: no clipping.", "Learning")
    schedule: str = about("linear", "constant, linear, cosine, inverse-root or wsd.", "Learning")
    warmup: float = about(0.1, "The share of the run with rising learning rate.", "Learning")
    batch: int = about(32, "Examples per batch.", "Learning")
    batch_tokens: int = about(
        8_192, "The maximum number of tokens per batch; long texts make smaller batches.", "Learning"
    )
    physical_batch: int | None = about(None, "Rows computed at a time; gradients are accumulated.", "Learning")
    class_weights: str = about("none", "balanced: weight labels by their inverse frequency.", "Learning")
    label_smoothing: float | None = about(None, "The probability mass spread over all labels.", "Learning")
    focal_gamma: float | None = about(None, "The gamma of the focal loss; 2 is common.", "Learning")
    embedding_loss: str | None = about(
        None,
        "ranking (the order of scores), cosine (their values) or contrastive (pairs without scores). Default: ranking "
        "with scores, cosine with a teacher.",
        "Learning",
    )
    average: int | None = about(
        None, "Average the weights of up to so many of the best evaluations, if that is better; 1: never.", "Learning"
    )
    soup: bool = about(
        False, "Start all seeds from the same weights, and average their models if that is better.", "Learning"
    )
    ema: float | None = about(
        None, "Decay of a moving average of the weights, which is evaluated and saved.", "Learning"
    )

    baseline: bool = about(True, "Fit a simple model on the same examples for comparison.", "End")
    report: bool = about(True, "Write report.html.", "End")
    resamples: int = about(1_000, "The number of bootstrap resamples for intervals.", "End")

    engine: str = about("auto", "auto, numpy or mlx.", "Machine")
    precision: str = about("float32", "float32; bfloat16 (NumPy: with oneDNN); float64 on NumPy.", "Machine")
    threads: int | None = about(None, "Threads of the NumPy engine. Default: all cores.", "Machine")
    gradient_checkpointing: bool = about(False, "Use less memory and a third more time.", "Machine")

    def __post_init__(self) -> None:
        super().__post_init__()
        names: Any = self.low_rank_targets or ()
        object.__setattr__(self, "low_rank_targets", (names,) if isinstance(names, str) else tuple(names))
        teachers: Any = self.further_teachers or ()
        object.__setattr__(self, "further_teachers", (teachers,) if isinstance(teachers, str) else tuple(teachers))
        files: Any = self.texts or ()
        object.__setattr__(self, "texts", (files,) if isinstance(files, str) else tuple(files))
        object.__setattr__(self, "freeze", str(self.freeze))
        check_fields(self, CHECKS, OPTIONAL)
        if not self.model:
            object.__setattr__(self, "model", DEFAULT_MODEL)
        self._check_start()
        self._check_teacher()
        if bool(self.task) == bool(self.train):
            raise TrainingError(
                "no training data: give a ready task with --task, or a file with --train"
                if not self.task
                else f"--task {self.task} has its own files; remove --train or --task"
            )
        if self.fold is not None and (self.folds is None or self.fold >= self.folds):
            raise TrainingError(f"--fold {self.fold} needs --folds with a larger number")
        for name in ("dev", "test"):
            if self.folds is not None and getattr(self, name):
                raise TrainingError(f"--folds splits the training file; remove --{name}")
        for name in ("choose", "inner"):
            if self.test and getattr(self, name) is not None:
                raise TrainingError(f"with --test the dev examples choose; remove --{name}")
        if self.inner is not None and self.choose not in (None, "inner"):
            raise TrainingError(f"--inner is the share of --choose inner; remove it, or --choose {self.choose}")
        if self.soup and self.seeds < 2:
            raise TrainingError("--soup averages the models of several seeds; give --seeds 3, or remove --soup")
        if self.clip == 0:
            object.__setattr__(self, "clip", None)
        if self.label_smoothing and self.focal_gamma:
            raise TrainingError("label_smoothing and focal_gamma cannot be combined; choose one of them")
        if self.physical_batch is not None and self.physical_batch > self.batch:
            raise TrainingError(
                f"physical_batch {self.physical_batch} is larger than the batch of {self.batch} examples"
            )

    def _check_start(self) -> None:
        """Raise if it is unclear which weights the run starts from."""
        known = ", ".join(PRESETS)
        if self.from_scratch and self.preset not in PRESETS:
            given = f"there is no preset {self.preset!r}" if self.preset else "--from-scratch needs --preset"
            raise TrainingError(f"{given}; choose one of {known}")
        if self.preset and not self.from_scratch:
            raise TrainingError(f"--preset {self.preset} has random weights; add --from-scratch, or give a --model")
        if self.from_scratch and self.model != DEFAULT_MODEL:
            raise TrainingError(
                f"--from-scratch starts from random weights, so --model {self.model} does not go with it"
            )
        names_preset = self.model in PRESETS and self.model not in packaged_names()
        if names_preset and not self.from_scratch and not Path(self.model).exists():
            raise TrainingError(
                f"{self.model} is a preset without trained weights; for random weights give --from-scratch --preset "
                f"{self.model}, else a run, a saved model, a hub id, or {' or '.join(packaged_names())}"
            )

    def _check_teacher(self) -> None:
        """Raise if a setting needs a teacher and there is none, or if its answers would leak."""
        for name in TAUGHT_ONLY:
            if not self.teacher and getattr(self, name) != self.fields()[name].default:
                raise TrainingError(f"--{name.replace('_', '-')} needs a --teacher, whose answers the model learns")
        if (self.hidden or self.relations) and self.further_teachers:
            raise TrainingError("--hidden and --relations compare with one teacher; remove --further-teachers, or both")
        if (self.hidden or self.relations) and self.low_rank is not None:
            raise TrainingError("--hidden and --relations train the whole encoder; remove --low-rank, or both of them")
        if self.teacher and self.column_teacher:
            raise TrainingError("--teacher and --column-teacher both answer for the same rows; remove one of them")
        if self.mixed_rows and (self.teacher or self.column_teacher == 0):
            raise TrainingError("--mixed-rows are answered for by the column teacher; remove them, or give its weight")
        if self.teacher and self.folds is not None:
            raise TrainingError(
                "--folds does not go with a --teacher, which has seen the examples of every fold; give a --dev file, "
                "or leave the teacher out"
            )


def _is_freezable(value: Any) -> bool:
    return value in FREEZABLE or str(value).isdigit()


def is_head(value: Any) -> bool:
    """A kind of prediction, or a head of an extension that names the kind it makes (`Head.task`)."""
    return value in HEADS or (value in MODEL_HEADS and bool(MODEL_HEADS[value].task))


CHECKS: dict[str, Check] = {
    **dict.fromkeys(
        ("model", "preset", "tokenizer", "task", "data", "train", "dev", "test", "text", "pair", "words", "target",
         "template", "separator", "label_prefix", "positive", "teacher", "augment_model", "teacher_scores"),
        (is_text, "text"),
    ),
    **dict.fromkeys(
        ("from_scratch", "drop_missing", "gradient_checkpointing", "baseline", "report", "soup", "compare"),
        (is_flag, "true or false"),
    ),
    **dict.fromkeys(
        ("low_rank", "limit", "stride", "max_windows", "epochs", "evaluations", "seeds", "batch", "physical_batch",
         "unfreeze_every", "threads", "average"),
        (is_integer(1), "a whole number of at least 1"),
    ),
    **dict.fromkeys(
        ("seed", "patience", "resamples", "fold", "augment", "mixed_rows"),
        (is_integer(0), "a whole number of at least 0"),
    ),
    "folds": (is_integer(2), "a whole number of at least 2"),
    **dict.fromkeys(("max_length", "batch_tokens"), (is_integer(8), "a whole number of at least 8")),
    **dict.fromkeys(
        ("dropout", "token_dropout", "warmup", "label_smoothing"),
        (lambda v: is_number(v) and 0 <= v < 1, "in [0, 1)"),
    ),
    **dict.fromkeys(
        ("learning_rate", "low_rank_alpha", "head_factor"), (is_between(0, math.inf), "a number above 0")
    ),
    **dict.fromkeys(
        ("weight_decay", "clip", "focal_gamma", "hidden", "relations"),
        (lambda v: is_number(v) and v >= 0, "at least 0"),
    ),
    "column_teacher": (lambda value: is_number(value) and 0 <= value <= 1, "in [0, 1], such as 0.8"),
    "layer_decay": (lambda value: is_number(value) and 0 < value <= 1, "in (0, 1], such as 0.9"),
    "held_out": (is_between(0, 1), "between 0 and 1"),
    "inner": (is_between(0, 1), "between 0 and 1"),
    "choose": one_of("inner", "last", "reported"),
    "ema": (is_between(0, 1), "between 0 and 1, such as 0.999"),
    "head": (is_head, f"one of {', '.join(HEADS)}, or a head of your own with a task"),
    "pooling": one_of(*CHOICES["classifier_pooling"]),
    "metric": one_of(*METRICS),
    "freeze": (_is_freezable, f"one of {', '.join(FREEZABLE)}, or a number of layers"),
    "class_weights": one_of("none", "balanced"),
    "numbers": one_of("values", "text"),
    "pairs": one_of("aligned", "cross"),
    "embedding_loss": one_of("ranking", "cosine", "contrastive"),
    "optimizer": one_in(OPTIMIZERS),
    "schedule": one_of(*SCHEDULES),
    "engine": one_of(*ENGINES),
    "precision": one_of(*PRECISIONS),
    "soft": (lambda value: is_number(value) and 0 < value <= 1, "in (0, 1], such as 0.9"),
    "temperature": (is_between(0, math.inf), "a number above 0"),
    "further_teachers": (lambda value: all(isinstance(name, str) for name in value), "a list of models"),
    "texts": (lambda value: all(isinstance(name, str) for name in value), "a list of files"),
    "low_rank_targets": (lambda value: all(isinstance(name, str) for name in value), "a list of names"),
}  # fmt: skip
OPTIONAL = {name for name, f in FineTuningSettings.fields().items() if "None" in str(f.type)}

document(FineTuningSettings, FineTuningSettings)
