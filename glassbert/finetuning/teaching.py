"""The teacher of a fine-tuning: what other models answer for the training examples and for further texts.

    teacher = TaskTeacher.open("runs/minilm", card)
    answers = teacher.answers(data, folder)        in the form of the student's own outputs

Teacher and student each encode the texts with their own tokenizer, so these may differ. The answers are computed once
and stored under a name made from the teacher's weights and the examples: a resumed run, another seed, or another run
with the same `--teacher-scores` folder reads them again. Several teachers answer with the mean of their outputs, which
are logits where the student learns a distribution.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from glassbert.errors import ConfigError, InputError
from glassbert.files import atomic_write
from glassbert.finetuning.augmenting import replace_words
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import Examples
from glassbert.finetuning.outcome import Outcome, cosines
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.rows import Progress, Rows
from glassbert.finetuning.scoring import BATCH_TOKENS, compute_scores
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.models.model import Model
from glassbert.ops import IGNORED
from glassbert.tasks import TaskData
from glassbert.text.loading import load_with_tokenizer
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.workers import fingerprint

GPU_BATCH_TOKENS = 65_536  # of an engine that compiles
TAUGHT = ("binary", "multiclass", "ordinal", "multilabel", "regression", "token", "embedding")
SOFT = ("binary", "multiclass", "ordinal", "multilabel", "token")  # heads with a distribution to learn


@dataclass(frozen=True)
class TaskTeacher:
    """A fine-tuned model whose answers a student learns. `card` is that of the student.

    With `others` it answers as the mean of all of them; its texts are read as the first one reads them.
    """

    name: str
    predictor: Predictor
    card: TaskCard
    notes: tuple[str, ...] = ()
    others: tuple[TaskTeacher, ...] = ()

    @classmethod
    def open(cls, settings: FineTuningSettings, card: TaskCard) -> TaskTeacher:
        """Open the teachers on the engine of the run; raise if their answers do not fit the student's task."""
        if card.head not in TAUGHT:
            raise ConfigError(
                f"a {card.head} head cannot learn from a teacher; the heads that can are {', '.join(TAUGHT)}"
            )
        first, *others = (cls._open(name, settings, card) for name in (settings.teacher, *settings.further_teachers))
        notes = tuple(dict.fromkeys(note for one in (first, *others) for note in one.notes))
        return replace(first, notes=notes, others=tuple(others))

    @classmethod
    def _open(cls, name: str, settings: FineTuningSettings, card: TaskCard) -> TaskTeacher:
        """One teacher."""
        options: dict[str, Any] = {"engine": settings.engine, "threads": settings.threads}
        predictor = Predictor.load(name, precision=settings.precision, **options)
        convert(None, predictor.card, card)
        notes = []
        if predictor.card.labels and set(predictor.card.labels) != set(card.labels):
            notes.append(
                f"The labels of the teacher, {', '.join(predictor.card.label_names)}, are taken in the order of "
                f"{', '.join(card.label_names)}."
            )
        return cls(name, predictor, card, tuple(notes))

    @property
    def models(self) -> tuple[TaskTeacher, ...]:
        """This teacher and the others."""
        return (self, *self.others)

    @property
    def title(self) -> str:
        return ", ".join(one.name for one in self.models)

    @property
    def parameters(self) -> int:
        return sum(one.predictor.model.get_parameter_count() for one in self.models)

    def answers(self, data: TaskData, folder: Path, progress: Progress | None = None) -> Any:
        """The outputs for these examples, as the student's head has them; those of each teacher are in `folder`."""
        models = self.models
        found = [convert(one._outputs(data, folder, progress), one.predictor.card, self.card) for one in models]
        return found[0] if len(found) == 1 else mean_answers(found)

    def _outputs(self, data: TaskData, folder: Path, progress: Progress | None = None) -> Any:
        path = folder / f"{self._key(data)}.safetensors"
        found = _read_answers(path)
        if found is None:
            compiles = self.predictor.model.engine.compiles
            size = GPU_BATCH_TOKENS if compiles else BATCH_TOKENS
            found = self.predictor.predict(data, batch_tokens=size, progress=progress).outputs
            _write_answers(path, found)
            found = _read_answers(path)  # as a resumed run will find them
        return found

    def outcome(self, data: TaskData, truth: Any, folder: Path, resamples: int) -> Outcome:
        """The answers for examples with known targets, with scores and intervals."""
        if self.predictor.card.head == "embedding" and not self.others:
            outputs = self._outputs(data, folder)
        else:
            outputs = self.answers(data, folder)
            outputs = _as_pairs(outputs) if self.card.head == "embedding" else outputs
        card = self.card.uncalibrated
        return Outcome(card, data, truth, outputs, compute_scores(outputs, truth, card, resamples=resamples))

    def _key(self, data: TaskData) -> str:
        card = self.predictor.card
        asked = {name: card.as_json()[name] for name in ("head", "max_length", "stride", "max_windows", "template")}
        digest = hashlib.blake2b(fingerprint(self.predictor.model), digest_size=16)
        digest.update(self.predictor.tokenizer.fingerprint.encode())
        digest.update(json.dumps([asked, dict(card.details)], sort_keys=True, default=str).encode())
        digest.update(self.predictor.model.engine.dtype_name.encode())
        texts = [data.texts, data.pairs, data.words if card.head == "token" else None]
        digest.update(json.dumps(texts, ensure_ascii=True).encode())
        if card.reads_numbers:
            columns = {name: data.table.column(name) for name in card.template.columns}  # type: ignore[union-attr]
            digest.update(json.dumps(columns, ensure_ascii=True, default=str).encode())
        return digest.hexdigest()


def texts_per_second(predictor: Predictor, data: TaskData, seconds: float = 2.0) -> float:
    """How many of these examples a predictor reads per second, the tokenizer included; the first batch is not timed."""
    count, rate = min(64, len(data)), 0.0
    predictor.predict(data.select(range(count)))
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds and count <= len(data):
        start = time.perf_counter()
        predictor.predict(data.select(range(count)))
        rate = count / (time.perf_counter() - start)
        if count == len(data):
            break
        count = min(2 * count, len(data))
    return rate


def mean_answers(answers: Sequence[Any]) -> Any:
    """The mean of the answers of several teachers; those of a token task are lists of sentences."""
    if isinstance(answers[0], list):
        return [np.mean(one, 0) for one in zip(*answers, strict=True)]
    return np.mean(answers, 0)


# ---- answers in the form of the student ------------------------------------------------------------------------------


def convert(outputs: Any, theirs: TaskCard, ours: TaskCard) -> Any:
    """The outputs of a teacher as a student with the card `ours` would give them; None: only check that it is possible.

    binary      [N] logits of the student's second label      multiclass, multilabel    columns in the student's order
    ordinal     [N, L - 1] logits of the steps                regression                values
    token       per sentence [words, L]                       embedding                 [N] similarities of pairs
    """
    order = _order(theirs, ours) if ours.labels else []
    make = CONVERSIONS.get((theirs.head, ours.head))
    if make is None or (theirs.head == "ordinal" and order != sorted(order)):
        raise ConfigError(
            f"the teacher {theirs.title} has a {theirs.head} head, and this task is {ours.head}: its answers do not "
            f"fit; fine-tune the teacher on the same task"
        )
    return None if outputs is None else make(outputs, order, ours)


def _order(theirs: TaskCard, ours: TaskCard) -> list[int]:
    """For each label of the student, its index among the teacher's labels."""
    for known in (theirs.labels, theirs.label_names):
        for wanted in (ours.labels, ours.label_names):
            if set(known) == set(wanted):
                return [known.index(label) for label in wanted]
    unnamed = all(label == f"LABEL_{number}" for number, label in enumerate(theirs.labels))
    if len(theirs.labels) == len(ours.labels) and (unnamed or theirs.target is None):
        return list(range(len(ours.labels)))
    what = ", ".join(theirs.labels[:8]) or f"no labels (its head is {theirs.head})"
    raise ConfigError(
        f"the teacher {theirs.title} predicts {what}, and the labels here are "
        f"{', '.join(ours.labels[:8]) or f'none (the head is {ours.head})'}; a student learns the same labels"
    )


def _similarities(outputs: Any, order: list[int], card: TaskCard) -> np.ndarray:
    if np.ndim(outputs) != 3:
        raise InputError("the teacher compares pairs of texts, and these examples are single texts")
    return cosines(outputs)


def _scaled(outputs: Any, order: list[int], card: TaskCard) -> np.ndarray:
    """Scores of a model that reads both texts at once, as similarities between 0 and 1."""
    low, high = card.details.get("score_range", (0.0, 1.0))
    return np.clip((np.asarray(outputs) - low) / (high - low), 0.0, 1.0)


Conversion = Callable[[Any, list[int], TaskCard], Any]
CONVERSIONS: dict[tuple[str, str], Conversion] = {
    ("binary", "binary"): lambda z, order, card: z if order == [0, 1] else -z,
    ("multiclass", "binary"): lambda z, order, card: z[:, order[1]] - z[:, order[0]],
    ("binary", "multiclass"): lambda z, order, card: np.stack([-z / 2, z / 2], 1)[:, order],
    ("multiclass", "multiclass"): lambda z, order, card: z[:, order],
    ("multilabel", "multilabel"): lambda z, order, card: z[:, order],
    ("ordinal", "ordinal"): lambda z, order, card: z,
    ("token", "token"): lambda z, order, card: [scores[:, order] for scores in z],
    ("regression", "regression"): lambda z, order, card: np.asarray(z),
    ("embedding", "embedding"): _similarities,
    ("regression", "embedding"): _scaled,
}


def _as_pairs(similarities: np.ndarray) -> np.ndarray:
    """Vectors [N, 2, 2] of length 1 with these cosines, in the form of the outputs of an embedding head."""
    cosine = np.clip(similarities, -1.0, 1.0)
    first = np.stack([np.ones_like(cosine), np.zeros_like(cosine)], -1)
    return np.stack([first, np.stack([cosine, np.sqrt(1 - cosine**2)], -1)], 1)


# ---- further texts ---------------------------------------------------------------------------------------------------


def further_texts(
    teacher: TaskTeacher, settings: FineTuningSettings, train: TaskData, folder: Path, progress_bar: Any
) -> list[TaskData]:
    """Texts without labels: those of `settings.texts`, and the training texts with other words."""
    card = teacher.card
    reader = replace(teacher.predictor, card=card)
    found = [_paired(reader.read(Path(file)), card, settings.seed) for file in settings.texts]
    if not settings.augment:
        return found
    if card.template is not None:
        raise ConfigError("--augment replaces words of a text, and these examples are rows of a table; remove it")
    texts = [*train.texts, *(train.pairs or ())]
    model, tokenizer = load_with_tokenizer(
        settings.augment_model, head="mlm", engine=settings.engine, dtype=settings.precision,
        threads=settings.threads,
    )  # fmt: skip
    path = folder / f"words-{_augmentation_key(settings, model, tokenizer, texts)}.json"
    copies = _read_texts(path, len(texts), settings.augment)
    if copies is None:
        with progress_bar(f"Replacing words in {settings.augment} copies of {len(texts):,} texts") as progress:
            copies = replace_words(
                texts, settings.augment, model, tokenizer, seed=settings.seed, progress=progress
            )  # fmt: skip
        with atomic_write(path) as file:
            json.dump(copies, file)
    return [*found, *(_changed(train, copy) for copy in copies)]


def _changed(train: TaskData, texts: list[str]) -> TaskData:
    """The training examples with other texts, and without targets."""
    first, second = texts[: len(train)], texts[len(train) :]
    words = train.words
    if words is not None:
        new = [text.split(" ") for text in first]
        words = [two if len(two) == len(one) else one for one, two in zip(words, new, strict=True)]
        first = [" ".join(one) for one in words]
    return replace(train, texts=first, pairs=second or None, words=words, targets=None)


def _paired(data: TaskData, card: TaskCard, seed: int) -> TaskData:
    """Single texts for a model of pairs: each with another one, at random."""
    if not card.embeds_pairs or data.pairs is not None:
        return data
    order = np.random.default_rng(seed).permutation(len(data))
    data = data.select(order)
    return replace(data, pairs=[*data.texts[1:], data.texts[0]])


def _augmentation_key(settings: FineTuningSettings, model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> str:
    digest = hashlib.blake2b(fingerprint(model), digest_size=16)
    content = [tokenizer.fingerprint, model.engine.dtype_name, settings.augment, settings.seed, list(texts)]
    digest.update(json.dumps(content, ensure_ascii=True).encode())
    return digest.hexdigest()


def _read_texts(path: Path, count: int, copies: int) -> list[list[str]] | None:
    """Stored texts, or None if there are none or they are damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    fits = isinstance(content, list) and len(content) == copies
    return content if fits and all(isinstance(one, list) and len(one) == count for one in content) else None


# ---- examples with the teacher's answers -----------------------------------------------------------------------------


def taught(examples: Examples, answers: Any, soft: float) -> Examples:
    """Examples with the answers of a teacher: scores beside the labels, or mixed into them.

    Squared errors against the label y and the teacher's value t, with the weights 1 - a and a, have the gradient of one
    squared error against (1 - a) y + a t. So numbers and similarities need no second loss.
    """
    card, owners = examples.card, examples.rows.owners
    if card.head in SOFT:
        return replace(examples, scores=_scores(examples, answers))
    values = np.asarray(answers, np.float64)
    values = np.repeat(values, 2) if card.head == "embedding" else values[owners]
    if examples.labels is None or examples.truth is None:
        return replace(examples, labels=values)
    return replace(examples, labels=(1.0 - soft) * examples.labels + soft * values)


def _scores(examples: Examples, answers: Any) -> np.ndarray:
    """The scores of each row [rows, outputs]; of a token task those of each token, NaN where no word begins."""
    if examples.card.head != "token":
        values = np.asarray(answers, np.float32)
        return (values[:, None] if values.ndim == 1 else values)[examples.rows.owners]
    assert examples.pieces is not None
    words = np.concatenate(answers).astype(np.float32)  # [words, L]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in answers])])
    numbers = [np.arange(starts[i], starts[i + 1]) for i in range(len(answers))]
    index = np.concatenate(examples.pieces.labels(numbers))
    return np.where((index != IGNORED)[:, None], words[np.maximum(index, 0)], np.nan)


def joined(parts: Sequence[Examples]) -> Examples:
    """Several sets of examples as one; those without labels get -100, which the loss of the labels leaves out."""
    first, *others = parts
    if not others:
        return first
    sizes = np.cumsum([0, *(len(one.rows.ids) for one in parts)])
    counts = np.cumsum([0, *(len(one) for one in parts)])
    texts = np.cumsum([0, *(one.rows.texts for one in parts)])
    starts = [one.rows.starts[:-1] + begin for one, begin in zip(parts, sizes, strict=False)]
    owners = [one.rows.owners + begin for one, begin in zip(parts, texts, strict=False)]
    names = ("ids", "types", "fields", "values")
    columns: dict[str, Any] = {name: _stacked([getattr(one.rows, name) for one in parts]) for name in names}
    columns["starts"], columns["owners"] = np.concatenate([*starts, [sizes[-1]]]), np.concatenate(owners)
    labels = None
    if any(one.labels is not None for one in parts):
        labels = np.concatenate([_labels_or_ignored(one, first) for one in parts])
    rows, scores = Rows(**columns, texts=int(texts[-1])), _stacked([one.scores for one in parts])
    return replace(first, rows=rows, count=int(counts[-1]), labels=labels, scores=scores)


def _stacked(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    return None if arrays[0] is None else np.concatenate(arrays)  # type: ignore[arg-type]


def _labels_or_ignored(examples: Examples, like: Examples) -> np.ndarray:
    if examples.labels is not None:
        return examples.labels
    assert like.labels is not None
    count = len(examples.rows.ids) if examples.card.head == "token" else len(examples.rows)
    return np.full((count, *like.labels.shape[1:]), IGNORED, like.labels.dtype)


# ---- files -----------------------------------------------------------------------------------------------------------


def _write_answers(path: Path, outputs: Any) -> None:
    """Outputs in one file; those of sentences of different lengths as one array and the lengths."""
    sentences = isinstance(outputs, list)
    values = np.concatenate(outputs) if sentences else outputs
    arrays = {"values": np.ascontiguousarray(values, np.float32)}
    if sentences:
        arrays["counts"] = np.array([len(one) for one in outputs], np.int64)
    with atomic_write(path, "wb") as file:
        file.write(save(arrays))


def _read_answers(path: Path) -> Any:
    """Stored outputs, or None if there are none or they are damaged."""
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError):
        return None
    values = arrays["values"].astype(np.float64)
    return values if "counts" not in arrays else np.split(values, np.cumsum(arrays["counts"])[:-1])
