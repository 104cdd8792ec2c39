"""Asking a fine-tuned model.

    predictor = Predictor.load("runs/reviews")
    predictor.predict("A fine film.").answers()                      ["positive"]
    predictor.predict(["A fine film.", "Dull."]).probabilities()     [N], or [N, labels]
    predictor.predict(Path("reviews.csv")).save("answers.csv")

What may be asked about: a text or a list of texts; for pairs, tuples of two; for token tasks, lists of words; for
tables, rows as dicts, a data frame, or a file (a `Path`). The card knows the columns, the template and where long texts
are cut.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

from glassbert.errors import InputError, TextError
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import encode_examples, truth_of
from glassbert.finetuning.predictor.opening import open_answering
from glassbert.finetuning.predictor.output import Predictions
from glassbert.finetuning.predictor.words import split_words
from glassbert.finetuning.rows import Progress
from glassbert.finetuning.scoring import BATCH_TOKENS, judge, score_examples
from glassbert.metrics import Scores
from glassbert.models.model import Model
from glassbert.tasks import Table, TaskData, read_table
from glassbert.tasks.reading import table_from_records
from glassbert.text.tokenizer import Tokenizer

LINES = "lines"  # a file that is one text a line
ROLES = ("text", "pair", "words")


@dataclass(frozen=True)
class Predictor:
    """A model with all that is needed to ask it."""

    model: Model
    tokenizer: Tokenizer
    card: TaskCard

    @classmethod
    def load(
        cls, path: str | Path, *, engine: str = "auto", precision: str = "float32", threads: int | None = None
    ) -> Self:
        """Open a fine-tuning run, its model folder, or a Hugging Face model with a head that answers."""
        return cls(*open_answering(path, engine=engine, precision=precision, threads=threads))

    def predict(
        self, given: Any, *, batch_tokens: int = BATCH_TOKENS, progress: Progress | None = None, **options: Any
    ) -> Predictions:
        """Answers for everything that is given; `options` are those of `read`."""
        data = self.read(given, **options)
        card = self._card_for(data)
        begun = time.perf_counter()
        examples = encode_examples(data, self.tokenizer, card, token_types=self._has_types)
        outputs = score_examples(self.model, examples, batch_tokens=batch_tokens, progress=progress)
        seconds = time.perf_counter() - begun
        return Predictions(card, data, None, outputs, Scores(), seconds=seconds, notes=_notes(data))

    def judge(self, given: Any, *, resamples: int = 1000, **options: Any) -> Predictions:
        """Answers for examples whose true answers are in the file as well, with `scores`."""
        if self.card.target is None and not self.card.embeds_pairs:
            raise InputError(f"the card of {self.card.title} names no column with the true answers")
        found = self.predict(given, with_targets=True, **options)
        truth = truth_of(found.data, found.card)
        scores = judge(found.outputs, truth, found.card, resamples=resamples)
        return Predictions(found.card, found.data, truth, found.outputs, scores, found.seconds, found.notes)

    def read(self, given: Any, *, with_targets: bool = False, **options: Any) -> TaskData:
        """What is given, as examples. `options` of files: format ("lines": one text a line), text, pair, and others."""
        if isinstance(given, TaskData):
            return given
        if isinstance(given, PathLike):
            return self._read_file(Path(given), with_targets, options)
        if isinstance(given, str) or (isinstance(given, tuple) and all(isinstance(part, str) for part in given)):
            given = [given]
        if isinstance(given, Mapping) and not any(isinstance(value, list) for value in given.values()):
            return self._of_row(given)
        if isinstance(given, Sequence):
            if not given:
                raise InputError("there is nothing to ask about: the list is empty")
            if not isinstance(given[0], Mapping):
                return self._of_texts(given)
        return self._checked(given, with_targets, options)

    @property
    def _has_types(self) -> bool:
        return self.model.config.type_vocab_size > 0

    def _card_for(self, data: TaskData) -> TaskCard:
        """Single texts may be given to a model that learned from pairs to make embeddings."""
        return self.card.replace(pair=None) if self.card.embeds_pairs and data.pairs is None else self.card

    def _of_texts(self, given: Sequence[Any]) -> TaskData:
        """Texts, pairs of texts or lists of words, checked one by one."""
        card = self.card
        if card.head == "token":
            sentences = [split_words(one) if isinstance(one, str) else [str(word) for word in one] for one in given]
            table = table_from_records([{"words": words} for words in sentences], "the sentences")
            return TaskData([" ".join(words) for words in sentences], table, words=sentences)
        paired = card.pair is not None and not (card.head == "embedding" and isinstance(given[0], str))
        for row, one in enumerate(given):
            if paired and (isinstance(one, str) or len(one) != 2):
                raise InputError(f"text {row + 1}: this model compares two texts; give (text, other text)")
            if not paired and not isinstance(one, str):
                raise InputError(f"text {row + 1} must be a string, got {type(one).__name__}: {str(one)[:60]!r}")
        if not paired:
            return TaskData(list(given), table_from_records([{"text": text} for text in given], "the texts"))
        table = table_from_records([{"text": first, "pair": second} for first, second in given], "the pairs")
        return TaskData([first for first, _ in given], table, [second for _, second in given])

    def _of_row(self, cells: Mapping[str, Any]) -> TaskData:
        """One row by hand: cells that are not given are unknown, which is noted; a name nobody knows is an error."""
        if self.card.template is None:
            return self._checked([cells], False, {})
        wanted = self.card.template.columns
        for name in cells:
            if name not in wanted:
                near = difflib.get_close_matches(name, wanted, 1, 0.5)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise InputError(f"this model reads no column {name!r}; it reads {', '.join(map(repr, wanted))}{meant}")
        left = [name for name in wanted if name not in cells]
        data = self._checked([dict.fromkeys(wanted) | dict(cells)], False, {})
        note = f"not given, and taken as unknown: {', '.join(left)}"
        return replace(data, notes=(*data.notes, *([note] if left else [])))

    def _read_file(self, path: Path, with_targets: bool, options: dict[str, Any]) -> TaskData:
        if not path.is_file():
            raise InputError(f"there is no file {path}")
        simple = self.card.pair is None and self.card.template is None and not with_targets
        kind = options.get("format") or self.card.reading.get("format")
        if kind == LINES or (kind is None and path.suffix == ".txt" and simple and not options):
            texts = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            if not texts:
                raise InputError(f"{path} holds no text")
            return self._of_texts(texts)
        return self._checked(path, with_targets, options)

    def _checked(self, given: Any, with_targets: bool, options: dict[str, Any]) -> TaskData:
        """Rows of a table, after all columns that the model reads were found in it."""
        card = self.card
        named = {role: options.pop(role) for role in ROLES if options.get(role) is not None}
        columns = {role: name for role in ROLES if (name := named.get(role) or getattr(card, role))}
        wanted = card.template.columns if card.template else list(columns.values())
        wanted = [*wanted, *([card.target] if with_targets and card.target else [])]
        table = self._table(given, wanted, options)
        if card.embeds_pairs and columns["pair"] not in table.columns and not with_targets:
            card = card.replace(pair=None)  # texts without partners still have vectors
            wanted.remove(columns["pair"])
        missing = [name for name in wanted if name not in table.columns]
        if missing:
            remedy = "; say with text=... or --text which column holds the text" if card.text in missing else ""
            raise InputError(
                f"{table.source} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}, "
                f"which this model reads; its columns are {', '.join(map(repr, table.columns))}{remedy}"
            )
        return card.read(table, with_targets=with_targets, **named)

    def _table(self, given: Any, wanted: Sequence[str], options: Mapping[str, Any]) -> Table:
        """A file that names all columns is read as it is, any other as the training files were."""
        if not isinstance(given, PathLike):
            return read_table(given)
        if self.card.reading:
            with suppress(TextError):
                plain = read_table(given, **options)
                if all(name in plain.columns for name in wanted):
                    return plain
        return read_table(given, **{**self.card.reading, **options})


def _notes(data: TaskData) -> tuple[str, ...]:
    empty = [row for row, text in enumerate(data.texts) if not text.strip()]
    if not empty:
        return data.notes
    return (
        *data.notes,
        f"{len(empty):,} texts are empty, the first in {data.where(empty[0])}; their answers mean little",
    )
