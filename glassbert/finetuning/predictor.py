"""`Predictor`: a fine-tuned model with its tokenizer and task card.

    predictor = Predictor.load("runs/reviews")
    predictor.predict("A fine film.").answers()                      ["positive"]
    predictor.predict(["A fine film.", "Dull."]).probabilities()     [N], or [N, labels]
    predictor.predict(Path("reviews.csv")).save("answers.csv")

Inputs: a text or a list of texts; tuples of two texts for pairs; lists of words for token tasks; rows as dicts, a data
frame, or a file (a `Path`) for tables. The card holds the columns, the template and the window length.

A model that was fine-tuned with GlassBERT has a card. For other Hugging Face folders a card is made from the config: it
names the head, the loss and the labels (`id2label`).
"""

from __future__ import annotations

import difflib
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

from glassbert.checkpoints import load
from glassbert.checkpoints.locate import MODULES, open_checkpoint
from glassbert.errors import CheckpointError, InputError, TextError
from glassbert.export.runtime import graph_folder, open_onnx
from glassbert.finetuning.card import TASK, TaskCard
from glassbert.finetuning.examples import Examples, encode_examples, truth_of
from glassbert.finetuning.predictions import Predictions, cut_notes
from glassbert.finetuning.rows import Progress
from glassbert.finetuning.scoring import BATCH_TOKENS, compute_scores, score_examples
from glassbert.layers.registry import POSITIONS
from glassbert.metrics import Scores
from glassbert.models.model import Model
from glassbert.tasks import Table, TaskData, read_table
from glassbert.tasks.reading import LINES, ending_of, fitting, table_from_records
from glassbert.tasks.table import listed
from glassbert.text.loading import check_together, find_tokenizer
from glassbert.text.tokenizer import Tokenizer

ONNX_RUNTIME = "onnxruntime"  # in place of an engine
ROLES = ("text", "pair", "words")
HEAD_OF_LOSS = {  # of sequence heads
    "cross_entropy": "multiclass",
    "binary_cross_entropy": "multilabel",
    "mean_squared_error": "regression",
    "ordinal": "ordinal",
}
DEFAULT_COLUMNS = {"span": ("question", "context"), "embedding": ("text", "pair")}  # text and pair, by head
# URLs, mentions and hashtags; words with inner apostrophes, periods and hyphens (don't, U.S., well-known); or a single
# punctuation mark.
WORDS = re.compile(r"https?://\S+|[@#]\w+|\w+(?:['’.-]\w+)*(?:(?<=\b\w\.\w)\.)?|[^\w\s]", re.UNICODE)


@dataclass(frozen=True)
class Predictor:
    """A model with its tokenizer and task card."""

    model: Model
    tokenizer: Tokenizer
    card: TaskCard

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        engine: str = "auto",
        precision: str = "float32",
        threads: int | None = None,
        kernels: str = "fast",
    ) -> Self:
        """Open a fine-tuning run, its model folder, or a Hugging Face model with a task head.

        engine="onnxruntime" runs the graph that `glassbert export --format onnx` wrote, with the same numbers. The
        weights are read-only (`Model.read_only`), which makes predictions faster. kernels="plain" loads nothing that is
        compiled, for a single text.
        """
        return cls(*_load_parts(path, engine=engine, precision=precision, threads=threads, kernels=kernels))

    def predict(
        self, given: Any, *, batch_tokens: int = BATCH_TOKENS, progress: Progress | None = None, **options: Any
    ) -> Predictions:
        """Predictions for all inputs; `options` are those of `read`."""
        data = self.read(given, **options)
        start = time.perf_counter()
        examples = self.encode(data)
        outputs = score_examples(self.model, examples, batch_tokens=batch_tokens, progress=progress)
        seconds, cut = time.perf_counter() - start, examples.rows.cut if self.card.head == "embedding" else 0
        notes = (*_notes_with_empty_texts(data), *cut_notes(cut))
        return Predictions(examples.card, data, None, outputs, Scores(), seconds=seconds, notes=notes, cut=cut)

    def encode(self, data: TaskData) -> Examples:
        """The rows of tokens that the model reads."""
        return encode_examples(data, self.tokenizer, self._card_for(data), token_types=self._has_types)

    def judge(self, given: Any, *, resamples: int = 1000, **options: Any) -> Predictions:
        """Predictions and `scores` for examples with true answers."""
        if self.card.target is None and not self.card.embeds_pairs:
            raise InputError(f"the task card of {self.card.title} names no target column to score against")
        found = self.predict(given, with_targets=True, **options)
        truth = truth_of(found.data, found.card)
        scores = compute_scores(found.outputs, truth, found.card, resamples=resamples)
        return Predictions(found.card, found.data, truth, found.outputs, scores, found.seconds, found.notes)

    def read(self, given: Any, *, with_targets: bool = False, **options: Any) -> TaskData:
        """Convert inputs to `TaskData`. `options` for files: text, pair, words, format, and `ReadingOptions`."""
        if isinstance(given, TaskData):
            return given
        if isinstance(given, PathLike):
            return self._read_file(Path(given), with_targets, options)
        if isinstance(given, str) or (isinstance(given, tuple) and all(isinstance(part, str) for part in given)):
            given = [given]
        if hasattr(given, "dtype") and not hasattr(given, "columns"):  # a column of a data frame
            given = list(given)
        if isinstance(given, Mapping) and not any(isinstance(value, list) for value in given.values()):
            return self._read_row(given)
        if isinstance(given, Sequence):
            if not given:
                raise InputError("no texts to predict: the list is empty")
            if not isinstance(given[0], Mapping):
                return self._read_texts(given)
        return self._read_rows(given, with_targets, options)

    @property
    def _has_types(self) -> bool:
        return self.model.config.type_vocab_size > 1

    def _card_for(self, data: TaskData) -> TaskCard:
        """An embedding model trained on pairs also accepts single texts."""
        return self.card.replace(pair=None) if self.card.embeds_pairs and data.pairs is None else self.card

    def _read_texts(self, given: Sequence[Any]) -> TaskData:
        """Texts, pairs of texts or lists of words, each checked."""
        card = self.card
        if card.head == "token":
            sentences = [split_words(one) if isinstance(one, str) else [str(word) for word in one] for one in given]
            table = table_from_records([{"words": words} for words in sentences], "the sentences")
            return TaskData([" ".join(words) for words in sentences], table, words=sentences)
        paired = card.pair is not None and not (card.head == "embedding" and isinstance(given[0], str))
        for row, one in enumerate(given):
            if paired and (isinstance(one, str) or len(one) != 2):
                raise InputError(f"text {row + 1}: this model compares two texts; give a tuple (text, other text)")
            if not paired and not isinstance(one, str):
                raise InputError(f"text {row + 1} must be a string, got {type(one).__name__}: {str(one)[:60]!r}")
        if not paired:
            return TaskData(list(given), table_from_records([{"text": text} for text in given], "the texts"))
        table = table_from_records([{"text": first, "pair": second} for first, second in given], "the pairs")
        return TaskData([first for first, _ in given], table, [second for _, second in given])

    def _read_row(self, cells: Mapping[str, Any]) -> TaskData:
        """One table row. Missing cells count as unknown and are noted; an unknown column name is an error."""
        if self.card.template is None:
            return self._read_rows([cells], False, {})
        wanted = self.card.template.columns
        for name in cells:
            if name not in wanted:
                near = difflib.get_close_matches(name, wanted, 1, 0.5)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise InputError(f"this model reads no column {name!r}; it reads {', '.join(map(repr, wanted))}{meant}")
        left = [name for name in wanted if name not in cells]
        data = self._read_rows([dict.fromkeys(wanted) | dict(cells)], False, {})
        note = f"not given and taken as unknown: {', '.join(left)}"
        return replace(data, notes=(*data.notes, *([note] if left else [])))

    def _read_file(self, path: Path, with_targets: bool, options: dict[str, Any]) -> TaskData:
        if not path.exists() or path.is_dir():
            raise InputError(f"there is no file {path}")
        simple = self.card.pair is None and self.card.template is None and not with_targets
        kind = options.get("format") or self.card.reading.get("format")
        if kind == LINES or (kind is None and ending_of(path) == ".txt" and simple and set(options) <= {"encoding"}):
            table = read_table(path, **{**options, "format": LINES})
            return replace(self._read_texts(table.column("text")), notes=table.notes)
        return self._read_rows(path, with_targets, options)

    def _read_rows(self, given: Any, with_targets: bool, options: dict[str, Any]) -> TaskData:
        """Rows of a table. Raises if a column that the model reads is missing."""
        card = self.card
        named = {role: options.pop(role) for role in ROLES if options.get(role) is not None}
        columns = {role: name for role in ROLES if (name := named.get(role) or getattr(card, role))}
        wanted = card.template.columns if card.template else list(columns.values())
        wanted = [*wanted, *([card.target] if with_targets and card.target else [])]
        table = self._table(given, wanted, options)
        if card.embeds_pairs and columns["pair"] not in table.columns and not with_targets:
            card = card.replace(pair=None)  # single texts still have vectors
            wanted.remove(columns["pair"])
        missing = [name for name in wanted if name not in table.columns]
        if missing:
            remedy = "; name the text column with --text" if card.text in missing else ""
            raise InputError(
                f"{table.source} lacks the column{'s' if len(missing) > 1 else ''} {listed(missing)}, "
                f"which this model reads; its columns are {table.names()}{remedy}"
            )
        return card.read(table, with_targets=with_targets, **named)

    def _table(self, given: Any, wanted: Sequence[str], options: Mapping[str, Any]) -> Table:
        """Read the file with its own header if that names all columns, else with the reader options of training."""
        written = [] if self.card.target is None else [self.card.target]
        if not isinstance(given, PathLike):
            return read_table(given, as_written=written, **options)
        if self.card.reading:
            with suppress(TextError):
                plain = read_table(given, named=wanted, as_written=written, **options)
                if all(name in plain.columns for name in wanted):
                    return plain
        learned = fitting(given, {**self.card.reading, **{key: options[key] for key in options if key == "format"}})
        return read_table(given, named=wanted, as_written=written, **{**learned, **options})


def _notes_with_empty_texts(data: TaskData) -> tuple[str, ...]:
    empty = [row for row, text in enumerate(data.texts) if not text.strip()]
    if not empty:
        return data.notes
    return (
        *data.notes,
        f"{len(empty):,} texts are empty, the first in {data.where(empty[0])}; their predictions are not meaningful",
    )


def split_words(text: str) -> list[str]:
    """Split a text into words for token tasks; punctuation marks are words of their own, as in CoNLL files."""
    return WORDS.findall(text)


def _load_parts(
    path: str | Path,
    *,
    engine: str = "auto",
    precision: str = "float32",
    threads: int | None = None,
    kernels: str = "fast",
) -> tuple[Model, Tokenizer, TaskCard]:
    """Model, tokenizer and task card of a run, a saved model, or a Hugging Face folder."""
    if engine == ONNX_RUNTIME:
        exported = open_onnx(path, precision, threads)
        folder = graph_folder(path)
        card = TaskCard.load(folder) if (folder / TASK).exists() else card_of_model(exported, str(path))
        _check_fit(exported, card, folder)
        return exported, find_tokenizer(folder), card
    if Path(path).is_dir() and (Path(path) / "settings.json").exists() and not (Path(path) / "model").is_dir():
        raise InputError(f"the fine-tuning in {path} is not finished; run: glassbert resume {shlex.quote(str(path))}")
    folder = open_checkpoint(path).config_path.parent
    has_card = (folder / TASK).exists()
    sentences = not has_card and (folder / MODULES).exists()  # a sentence-transformers folder
    head = "embedding" if sentences else None
    model = load(folder, engine=engine, dtype=precision, threads=threads, kernels=kernels, head=head)
    card = TaskCard.load(folder) if has_card else card_of_model(model, str(path))
    _check_fit(model, card, folder)
    tokenizer = find_tokenizer(folder)  # last, because a model without a usable head is the clearer error
    check_together(model, tokenizer, folder)
    return model.read_only(), tokenizer, card


def card_of_model(model: Model, title: str) -> TaskCard:
    """A task card for a model without one, made from its config."""
    kind = model.head.kind if model.head is not None else "core"
    length = model.config.max_length
    if kind in DEFAULT_COLUMNS:
        text, pair = DEFAULT_COLUMNS[kind]
        return TaskCard(title=title, head=kind, text=text, pair=pair, max_length=length)
    if kind == "token":
        return TaskCard(title=title, head="token", words="words", labels=_labels_of_config(model), max_length=length)
    if kind != "sequence":
        what = "no head" if kind == "core" else f"a head of type {kind}"
        raise CheckpointError(
            f"{title} has {what}, so it cannot predict; fine-tune it first: "
            f"glassbert finetune --model {title} --train FILE --target COLUMN"
        )
    assert model.head is not None
    head, labels = HEAD_OF_LOSS[model.head.loss_name], _labels_of_config(model)
    if head == "regression":
        if len(labels) > 1:
            raise CheckpointError(f"{title} has {len(labels)} regression outputs; only one is supported")
        labels = ()
    if head == "multilabel" and len(labels) == 1:
        head, labels = "binary", (f"not {labels[0]}", labels[0])
    return TaskCard(title=title, head=head, text="text", labels=labels, max_length=length)


def _labels_of_config(model: Model) -> tuple[str, ...]:
    assert model.head is not None
    names = model.carried_fields.get("id2label")
    if isinstance(names, dict) and len(names) == model.head.num_labels:
        with suppress(ValueError, TypeError):  # keys that are no numbers
            return tuple(str(names[key]) for key in sorted(names, key=int))
    return tuple(f"LABEL_{number}" for number in range(model.head.num_labels))


def _check_fit(model: Model, card: TaskCard, folder: Path) -> None:
    if card.head == "forecast":
        raise InputError(
            f"{folder} forecasts a series and reads no text; use: glassbert forecast --model {folder} --series FILE"
        )
    if model.head is None:
        raise CheckpointError(f"{folder}: {TASK} names a {card.head} head, and the model has none")
    if POSITIONS[model.config.positions].limited and card.max_length > model.config.max_length:
        raise CheckpointError(
            f"{folder}: {TASK} has windows of {card.max_length} tokens, and the model reads at most "
            f"{model.config.max_length}; the files do not belong together"
        )
    outputs = model.head.num_labels
    named = ("multilabel", "multiclass", "token", "ordinal")
    wanted = len(card.labels) if card.head in named else 1 if card.head == "binary" else outputs
    if wanted != outputs or (card.head == "binary" and len(card.labels) != 2):
        raise CheckpointError(
            f"{folder}: {TASK} names {len(card.labels)} labels for a {card.head} head, and the model has "
            f"{outputs} outputs; the files do not belong together"
        )
