"""`TaskData`: the examples of a task (texts, pairs or words) with their targets and the line each came from.

data = TaskData.of("reviews.csv", text="review", target="stars")
data = TaskData.of([("good film", 1), ("bad film", 0)], text="column 1", target="column 2")
data = TaskData.of("titanic.csv", template="auto", target="Survived")
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from glassbert.errors import InputError
from glassbert.tasks.labels import LabelMap
from glassbert.tasks.reading import read_table
from glassbert.tasks.table import Table, is_missing
from glassbert.tasks.targets import InferredKind, Kind, Targets, encode_targets, infer_kind, split_labels
from glassbert.tasks.template import Template, auto_template, parse_template


@dataclass(frozen=True)
class TaskData:
    """N examples. Token tasks have `words`; their `texts` are the words joined by spaces."""

    texts: list[str]
    table: Table
    pairs: list[str] | None = None
    words: list[list[str]] | None = None
    targets: list[Any] | None = None
    inferred: InferredKind | None = None
    template: Template | None = None
    names: dict[str, str] = field(default_factory=dict)  # role (text, pair, words, target) -> column
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        given: Any,
        *,
        text: str | None = None,
        pair: str | None = None,
        words: str | None = None,
        target: str | None = None,
        template: str | Template | None = None,
        kind: Kind | None = None,
        separator: str | None = None,
        label_prefix: str = "",
        drop_missing: bool = False,
        format: str | None = None,
        **options: Any,
    ) -> TaskData:
        """Read a table, choose the columns, infer the kind of target. `options` go to the reader of the format.

        template      "auto", a string with {column} in it, or a stored `Template`
        drop_missing  leave out rows without a target; otherwise they are an error
        separator     between the labels in one cell (multilabel)
        label_prefix  removed from every label, as in "__label__4"
        """
        table = read_table(given, format, **options)
        notes = list(table.notes)
        if target and drop_missing:
            known = [row for row, value in enumerate(table.column(target)) if not is_missing(value)]
            if len(known) < len(table):
                notes.append(f"{len(table) - len(known):,} rows without a target were left out")
            table = table.select(known)
        inferred, values = _read_targets(table, target, kind, separator, label_prefix, tokens=words is not None)
        if template is not None:
            used = _make_template(table, target, template)
            texts = used.apply(table)
        elif words is not None:
            used, texts = None, [" ".join(sentence) for sentence in table.column(words)]
        else:
            text = text or text_column(table, target)
            used, texts = None, _column_texts(table, text)
        data = cls(
            texts,
            table,
            _column_texts(table, pair) if pair else None,
            table.column(words) if words else None,
            values,
            inferred,
            used,
            {
                role: name
                for role, name in (("text", text), ("pair", pair), ("words", words), ("target", target))
                if name
            },
            tuple(notes),
        )
        data._check_words()
        return data

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def source(self) -> str:
        """The file, for messages."""
        return self.table.source

    @property
    def kind(self) -> Kind | None:
        """The kind of target."""
        return self.inferred.kind if self.inferred else None

    def where(self, row: int) -> str:
        """File and line of an example, for messages."""
        return self.table.where(row)

    def select(self, rows: Iterable[int]) -> TaskData:
        """The given examples, in the given order."""
        rows = [int(row) for row in rows]
        some: dict[str, Any] = {
            name: [values[row] for row in rows]
            for name in ("texts", "pairs", "words", "targets")
            if (values := getattr(self, name)) is not None
        }
        return replace(self, table=self.table.select(rows), **some)

    def encoded(self, labels: LabelMap | None = None) -> Targets:
        """The targets as numbers. For validation data pass the `labels` of the training data."""
        if self.targets is None or self.inferred is None:
            raise InputError(f"{self.source}: there are no targets; name their column with target=...")
        return encode_targets(self.targets, self.inferred.kind, self.where, labels)

    def _check_words(self) -> None:
        if self.words is None or self.targets is None:
            return
        for row, (sentence, tags) in enumerate(zip(self.words, self.targets, strict=True)):
            if len(sentence) != len(tags):
                raise InputError(f"{self.where(row)}: {len(sentence)} words and {len(tags)} tags")


def _column_texts(table: Table, name: str) -> list[str]:
    """A column as texts. None becomes an empty text, which `check_data` reports."""
    return ["" if value is None else str(value) for value in table.column(name)]


def text_column(table: Table, target: str | None) -> str:
    """The text column: the only column besides the target, or the only one with 3 words or more on average."""
    names = [name for name in table.columns if name != target]
    if len(names) == 1:
        return names[0]
    words = {name: sum(len(str(value).split()) for value in table.columns[name]) / max(1, len(table)) for name in names}
    long = [name for name in names if words[name] >= 3]
    if len(long) == 1:
        return long[0]
    listed = ", ".join(map(repr, names))
    raise InputError(
        f"{table.source}: name the text column with text=..., one of {listed}; "
        "or use all columns as the text with template='auto'"
    )


def _make_template(table: Table, target: str | None, template: str | Template) -> Template:
    if isinstance(template, Template):
        return template
    return auto_template(table, target) if template == "auto" else parse_template(template, table)


def _read_targets(
    table: Table, target: str | None, kind: Kind | None, separator: str | None, prefix: str, tokens: bool
) -> tuple[InferredKind | None, list[Any] | None]:
    if target is None:
        return None, None
    values = table.column(target)
    if prefix:
        values = [value.strip().removeprefix(prefix) if isinstance(value, str) else value for value in values]
    if tokens:
        return InferredKind("tokens", f"{target!r} has one tag for every word"), values
    inferred = InferredKind(kind, "it was given", separator) if kind else infer_kind(values, target)
    separator = separator or inferred.separator
    if inferred.kind == "multilabel":
        values = [split_labels(value, separator or ",") for value in values]
    return inferred, values
