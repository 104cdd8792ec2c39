"""Everything before the first training step: read and encode the examples, choose the head and the open settings.

Settings that are None get defaults from the model and the data. The default learning rate of a pretrained encoder is

    rate = RATE / (width · layers)

which gives about 4e-4 for Mini, 1e-4 for MiniLM, 3e-5 for BERT-base and 1e-5 for BERT-large. Small data sets of texts
get more epochs and a lower rate. Tables with numbers keep the rate, because much of what they need is new, and get
dropout in the encoder, which texts do not: on two folds of Titanic the AUC was 0.859 without (five epochs) and 0.867
with it (six). Small ones also have a teacher (`column_teacher.py`), and fewer epochs over more rows. Pairs that are
aligned need few epochs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import ConfigError
from glassbert.finetuning import column_teacher
from glassbert.finetuning.card import SEQUENCE_HEADS, TaskCard
from glassbert.finetuning.column_teacher import Answers
from glassbert.finetuning.examples import Examples, encode_examples, truth_of
from glassbert.finetuning.initial_model import (
    HeadChoice,
    TableNumbers,
    build_model,
    has_token_types,
    open_tokenizer,
)
from glassbert.finetuning.reading import TaskExamples, read_examples, require_files
from glassbert.finetuning.rows import Progress
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.finetuning.tags import WHOLE_SPANS, makes_whole_spans
from glassbert.finetuning.teaching import TaskTeacher, further_texts, joined, taught
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS as MODEL_HEADS
from glassbert.models.model import Model
from glassbert.models.numbers import NumbersConfig
from glassbert.tasks import Finding, TaskData
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.objectives import Objective, Objectives
from glassbert.training.objectives.distillation import GivenScores, HiddenStates, Relations
from glassbert.training.teacher import Teacher

MAX_CLASS_WEIGHT = 10.0
ProgressBar = Callable[[str], AbstractContextManager[Progress | None]]  # from a description to a progress callback

RATE = 0.24
OPTIMIZER_FACTORS = {"lion": 0.2, "sophia": 0.3, "muon": 5.0, "sgd": 100.0}  # on the rate of AdamW
LOW_RANK_FACTOR = 10.0
HEAD_ONLY_FACTOR = 10.0
FROM_SCRATCH_FACTOR = 2.0
PRE_NORM_FACTOR = 2.0  # deep encoders with the norm before the branches take larger steps
DEFAULT_MAX_LENGTH = 512  # tokens
# Up to this many examples: number of epochs, factor on the learning rate.
BY_EXAMPLES: dict[str, tuple[tuple[float, int, float], ...]] = {
    "text": ((3_000, 10, 0.4), (8_000, 8, 0.7), (30_000, 5, 1.0), (math.inf, 3, 1.0)),
    "table": ((3_000, 8, 0.85), (30_000, 10, 1.25), (math.inf, 5, 1.25)),
    "mixed": ((3_000, 5, 0.85), (30_000, 6, 1.25), (math.inf, 5, 1.25)),  # rows of a table, without their copies
    "aligned": ((3_000, 6, 0.85), (30_000, 3, 0.85), (math.inf, 2, 0.85)),
}
TABLE_DROPOUT = 0.1  # in the encoder
COMPARING_LOSSES = ("contrastive", "ranking")  # a batch that is cut into parts has fewer comparisons
# Changes for the run that a student is compared with.
WITHOUT_TEACHER: dict[str, Any] = {
    "teacher": "", "further_teachers": (), "hidden": 0.0, "relations": 0.0, "texts": (), "augment": 0,
    "teacher_scores": "", "compare": False, "baseline": False, "column_teacher": 0.0, "mixed_rows": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """Complete settings, encoded examples, tokenizer and head; the same for all seeds of a run.

    `dev` are the reported examples; `choice` those that choose, or None if the reported ones do.
    """

    settings: FineTuningSettings
    card: TaskCard
    train: TaskData
    dev: TaskData
    train_examples: Examples
    dev_examples: Examples
    tokenizer: Tokenizer
    head: HeadChoice
    findings: list[Finding]
    notes: list[str]
    numbers: TableNumbers | None = None
    choice: TaskData | None = None
    choice_examples: Examples | None = None
    teacher: TaskTeacher | None = None
    scores_folder: Path = Path()  # of the teacher's answers
    without_teacher: FineTuningSettings | None = None  # of the run to compare with

    def objective(self, model: Model) -> Objectives | None:
        """What a model is trained on; None: the loss of its head."""
        settings = self.settings
        states = [(HiddenStates(), settings.hidden), (Relations(), settings.relations)]
        if self.teacher is None and self.train_examples.scores is None:
            return None
        ((labels, weight),) = Objectives.of(model.head).terms
        terms: list[tuple[Objective, float]] = [(labels, weight)]
        if self.train_examples.scores is not None:
            soft, temperature = settings.column_teacher or 0.0, 1.0
            if self.teacher is not None:
                soft, temperature = settings.soft, settings.temperature
            terms = [(labels, 1.0 - soft), (GivenScores(labels.part, temperature), soft)]
        found = Objectives([(objective, weight) for objective, weight in [*terms, *states] if weight > 0])
        if self.teacher is None or not (settings.hidden or settings.relations):
            return found
        return found.with_teacher(Teacher(self.teacher.predictor.model))

    @property
    def choosing(self) -> tuple[TaskData, Examples]:
        """The examples that choose epoch, seed, calibration and thresholds."""
        if self.choice is None or self.choice_examples is None:
            return self.dev, self.dev_examples
        return self.choice, self.choice_examples

    def model(self, seed: int) -> Model:
        """The model before training. Seeds differ in the new head (unless for a soup) and in dropout."""
        settings = self.settings
        dropout_seed, seed = seed, settings.seed if settings.soup else seed
        model, _ = build_model(settings, self.head, self.tokenizer, seed, self.numbers)
        names = self.card.label_names
        if self.card.head == "binary":  # its single output is the logit of the second label
            names = names[1:]
        if names:
            model.carried_fields["id2label"] = {str(number): name for number, name in enumerate(names)}
        model.dropout_seed = dropout_seed
        objective = self.objective(model)
        if objective is not None:
            model = objective.prepared_student(model)
        if settings.low_rank is None:
            return model
        from glassbert.finetuning.low_rank import LowRank

        alpha = settings.low_rank_alpha or 2.0 * settings.low_rank
        return LowRank(model, settings.low_rank, alpha, settings.low_rank_targets, seed)

    @property
    def fingerprint(self) -> str:
        """Checksum of the encoded training and held-out examples; a resumed run must find the same."""
        digest = hashlib.blake2b(digest_size=16)
        for one in (self.train_examples, self.dev_examples, self.choice_examples):
            if one is None:
                continue
            digest.update(one.rows.ids.tobytes() + one.rows.starts.tobytes())
            digest.update(b"" if one.rows.values is None else one.rows.values.tobytes())
            digest.update(b"" if one.labels is None else np.ascontiguousarray(one.labels).tobytes())
            digest.update(b"" if one.scores is None else np.ascontiguousarray(one.scores).tobytes())
        return digest.hexdigest()


def prepare(
    settings: FineTuningSettings, progress_bar: ProgressBar, run: Path | None = None, resumed: bool = True
) -> Prepared:
    """Read the examples, open the model to get its config, fill in the open settings, and encode the examples.

    `run` is the folder of the run, which stores a teacher's answers; a `resumed` run has its tokenizer in it.
    """
    if run is not None and resumed:
        require_files(settings, run)
    asked, task_examples = settings, read_examples(settings)
    card = task_examples.card
    texts = [*task_examples.train.texts, *(task_examples.train.pairs or ())]
    tokenizer = open_tokenizer(settings, texts, run / "tokenizer" if run is not None and resumed else None)
    if card.pair is not None and card.head in SEQUENCE_HEADS:
        settings = settings.replace(pairs=choose_pairs(settings))
        card = card.replace(details={**card.details, "aligned": settings.pairs == "aligned"})
    elif settings.pairs is not None:
        raise ConfigError("--pairs is for a prediction about two texts: name the column of the second one with --pair")
    if settings.token_dropout and card.head in ("token", "span"):
        raise ConfigError(f"--token-dropout hides tokens that the {card.head} head must answer for; use --dropout")
    head = choose_head(settings, replace(task_examples, card=card))
    if card.head == "token" and makes_whole_spans(card, truth_of(task_examples.train, card) or ()):
        card = card.replace(details={**card.details, WHOLE_SPANS: True})
    numbers = None
    if card.reads_numbers:
        assert card.template is not None
        knots = NumbersConfig.of(card.template.numbers(task_examples.train.table))
        numbers = TableNumbers(knots, tuple(card.template.number_names))
    if numbers is not None and settings.dropout is None:
        settings = settings.replace(dropout=TABLE_DROPOUT)
    model, notes = build_model(settings, head, tokenizer, settings.seed, numbers)
    config = model.config
    card = card.replace(max_length=max_length(settings, config))
    teacher = TaskTeacher.open(settings, card) if settings.teacher else None
    scores_folder = Path(settings.teacher_scores or (run or Path()) / "teacher")
    further: list[TaskData] = []
    if teacher is not None:
        check_tokens(teacher, settings, card, tokenizer)
        further = further_texts(teacher, settings, task_examples.train, scores_folder, progress_bar)
    folder = scores_folder if run is not None else None
    settings, column_answers = ask_columns(settings, card, task_examples.train, folder, notes, progress_bar)
    if column_answers is not None:
        further = column_answers.mixed
    count = len(task_examples.train) + (sum(map(len, further)) if column_answers is None else 0)
    default_epochs, factor = default_schedule(card, count, mixed=column_answers is not None and bool(further))
    epochs = settings.epochs or default_epochs
    settings = settings.replace(
        learning_rate=default_learning_rate(settings, config, factor, settings.from_scratch),
        epochs=epochs,
        patience=default_patience(settings, epochs),
        max_length=card.max_length,
    )
    examples = []
    named = [(task_examples.train, "training"), (task_examples.dev, "held-out"), (task_examples.choice, "choosing")]
    named += [(data, "further") for data in further]
    for data, name in named:
        if data is not None:
            with progress_bar(f"Encoding {len(data):,} {name} examples") as progress:
                types = config.type_vocab_size > 1
                examples.append(encode_examples(data, tokenizer, card, token_types=types, progress=progress))
    train, dev = examples[:2]
    choice = examples[2] if task_examples.choice is not None else None
    notes += [note for one in examples for note in one.notes]
    windows = len(train.rows) // train.group
    if card.head != "embedding" and windows > len(train):
        notes.append(f"Long texts are split into windows of {card.max_length} tokens: {windows:,} from {len(train):,}.")
    if head.loss in COMPARING_LOSSES and (settings.physical_batch or settings.batch) < settings.batch:
        notes.append(
            f"The {head.loss} loss compares the pairs of a batch with each other: with --physical-batch "
            f"{settings.physical_batch} only those that are computed together."
        )
    smoothing = settings.label_smoothing
    if smoothing and train.labels is not None and card.head in ("binary", "multilabel"):  # may be soft
        train = replace(train, labels=train.labels * (1 - smoothing) + smoothing / 2)
    without = None
    if teacher is not None:
        without = asked.replace(**WITHOUT_TEACHER)
        notes += teacher.notes
        if further:
            notes.append(f"The teacher also answers for {sum(map(len, further)):,} texts without labels.")
        parts = zip([task_examples.train, *further], [train, *examples[len(examples) - len(further) :]], strict=True)
        train = joined([ask(teacher, data, one, settings.soft, scores_folder, progress_bar) for data, one in parts])
    elif column_answers is not None:
        weight = settings.column_teacher or 0.0
        answers = [column_answers.answers, *column_answers.mixed_answers]
        rows = [train, *examples[len(examples) - len(further) :]]
        train = joined([taught(one, found, weight) for one, found in zip(rows, answers, strict=True)])
    return Prepared(
        settings,
        card,
        task_examples.train,
        task_examples.dev,
        train,
        dev,
        tokenizer,
        head,
        task_examples.findings,
        task_examples.notes + notes,
        numbers,
        task_examples.choice,
        choice,
        teacher,
        scores_folder,
        without,
    )


def check_tokens(teacher: TaskTeacher, settings: FineTuningSettings, card: TaskCard, tokenizer: Tokenizer) -> None:
    """Raise if hidden states are to be compared, and teacher and student do not read the same tokens."""
    if not (settings.hidden or settings.relations):
        return
    advice = "remove --hidden and --relations; the answers of the teacher (--soft) need no common tokens"
    if teacher.predictor.tokenizer.vocabulary != tokenizer.vocabulary:
        raise ConfigError(
            f"hidden states belong to tokens, and {settings.teacher} has another tokenizer than the student: {advice}"
        )
    if card.aligned or card.reads_numbers or teacher.predictor.card.reads_numbers:
        what = "aligned pairs" if card.aligned else "numbers beside the text"
        raise ConfigError(f"hidden states of {what} cannot be compared: {advice}")
    longest = teacher.predictor.model.config.max_length
    if card.max_length > longest:
        raise ConfigError(
            f"{settings.teacher} reads rows of at most {longest} tokens, and the student's have {card.max_length}; "
            f"give --max-length {longest}, or {advice}"
        )


def ask_columns(
    settings: FineTuningSettings,
    card: TaskCard,
    train: TaskData,
    folder: Path | None,
    notes: list[str],
    progress_bar: ProgressBar,
) -> tuple[FineTuningSettings, Answers | None]:
    """The settings with the weight of the column teacher, and its answers; None if the weight is 0."""
    weight = 0.0 if settings.teacher else settings.column_teacher
    if weight is None and settings.head in MODEL_HEADS:  # a head of an extension may have a loss of its own
        weight = 0.0
    if weight is None:
        weight, note = column_teacher.default_weight(card, len(train))
        notes += [note] if note else []
        if settings.mixed_rows and not weight:
            column_teacher.check(card)
    elif weight:
        column_teacher.check(card)
    copies = settings.mixed_rows
    if copies is None:
        copies = column_teacher.default_copies(len(train)) if weight else 0
    settings = settings.replace(column_teacher=weight, mixed_rows=copies)
    if not weight:
        return settings, None
    with progress_bar("Fitting simple models of the columns"):
        found = column_teacher.teach(train, card, copies, settings.seed, folder)
    notes.append(found.note)
    return settings, found


def ask(
    teacher: TaskTeacher, data: TaskData, examples: Examples, soft: float, folder: Path, progress_bar: ProgressBar
) -> Examples:
    """Examples with the teacher's answers."""
    with progress_bar(f"The teacher answers for {len(data):,} examples") as progress:
        return taught(examples, teacher.answers(data, folder, progress), soft)


def choose_pairs(settings: FineTuningSettings) -> str:
    """How two texts are compared. An encoder with token types has learned to read both in one sequence.

    STS-B dev, Spearman, encoders without token types, one seed: from 4.4 M parameters 0.817 by the differences and
    products of two pooled vectors, 0.840 aligned; from an earlier one of 2.9 M 0.565 in one sequence (three seeds).
    """
    if settings.pairs is not None:
        return settings.pairs
    own_head = settings.head in MODEL_HEADS
    return "cross" if own_head or has_token_types(settings) else "aligned"


def choose_head(settings: FineTuningSettings, task_examples: TaskExamples) -> HeadChoice:
    """The head and the options of its loss, computed from the training data."""
    card, train = task_examples.card, task_examples.train
    truth = truth_of(train, card)
    options: dict[str, Any] = {}
    loss = None
    if card.head == "regression":
        options = {"target_mean": [float(truth.mean())], "target_scale": [float(truth.std())]}
    elif card.head == "embedding":
        loss = settings.embedding_loss or default_embedding_loss(truth is not None, bool(settings.teacher))
        if loss == "contrastive" and (truth is not None or settings.teacher):
            given = "--target" if truth is not None else "--teacher"
            raise ConfigError(f"--embedding-loss contrastive learns from matching pairs without scores: remove {given}")
        if loss != "contrastive" and truth is None and not settings.teacher:
            raise ConfigError(f"--embedding-loss {loss} needs scores of similarity: name their column with --target")
    if settings.class_weights == "balanced":
        options |= _balanced_weights(card, truth)
    if settings.focal_gamma:
        options["focal_gamma"] = settings.focal_gamma
    if settings.label_smoothing and card.head not in ("binary", "multilabel"):
        options["label_smoothing"] = settings.label_smoothing
    name = settings.head if settings.head in MODEL_HEADS else card.head
    labels = len(card.labels) or (1 if card.head == "regression" else None)
    return HeadChoice(name or card.head, labels, loss, options, kind="aligned" if card.aligned else None)


def default_embedding_loss(scored: bool, taught: bool) -> str:
    """Scores are learned by their order. A teacher's similarities are mixed into them as values (`teaching.taught`).

    STS-B dev, Spearman, from 4.4 M parameters: 0.792 by values (two seeds, a higher rate), 0.813 by order (three).
    """
    if taught:
        return "cosine"
    return "ranking" if scored else "contrastive"


def _balanced_weights(card: TaskCard, truth: Any) -> dict[str, Any]:
    """Class weights inverse to label frequency, clipped to `MAX_CLASS_WEIGHT`."""
    count = len(card.labels)
    if card.head in ("multiclass", "token"):
        counts = np.bincount(np.concatenate(truth) if card.head == "token" else truth, minlength=count)
        weights = counts.sum() / (count * np.maximum(counts, 1))
        return {"class_weights": np.clip(weights, 1 / MAX_CLASS_WEIGHT, MAX_CLASS_WEIGHT).tolist()}
    if card.head in ("binary", "multilabel"):
        positive = np.asarray(truth, np.float64).reshape(len(truth), -1).sum(0)
        weights = (len(truth) - positive) / np.maximum(positive, 1)
        return {"positive_weights": np.clip(weights, 1 / MAX_CLASS_WEIGHT, MAX_CLASS_WEIGHT).tolist()}
    raise ConfigError(f"--class-weights does not apply to the {card.head} head; it needs labels without an order")


def default_schedule(card: TaskCard, examples: int, mixed: bool = False) -> tuple[int, float]:
    """The number of epochs, and a factor on the learning rate. `mixed`: rows of a table have mixed copies."""
    kind = "mixed" if mixed else "table" if card.reads_numbers else "aligned" if card.aligned else "text"
    return next((epochs, factor) for most, epochs, factor in BY_EXAMPLES[kind] if examples <= most)


def default_learning_rate(
    settings: FineTuningSettings, config: EncoderConfig, factor: float, from_scratch: bool
) -> float:
    if settings.learning_rate is not None:
        return settings.learning_rate
    rate = factor * RATE / (config.hidden_size * max(1, config.num_hidden_layers))
    rate *= OPTIMIZER_FACTORS.get(settings.optimizer, 1.0)
    if settings.low_rank is not None:
        rate *= LOW_RANK_FACTOR
    elif settings.freeze == "encoder":
        rate *= HEAD_ONLY_FACTOR
    elif from_scratch:
        rate *= FROM_SCRATCH_FACTOR
    elif config.norm_position == "pre":
        rate *= PRE_NORM_FACTOR
    return float(f"{rate:.2g}")


def default_patience(settings: FineTuningSettings, epochs: int) -> int:
    """Half of all evaluations, at least two, because scores on few examples are noisy.

    With a quarter, one Titanic fold stopped at its first epoch, where the model predicted "no" for every example.
    """
    if settings.patience is not None:
        return settings.patience
    return max(2, epochs * settings.evaluations // 2)


def max_length(settings: FineTuningSettings, config: EncoderConfig) -> int:
    return min(settings.max_length or DEFAULT_MAX_LENGTH, config.max_length)
