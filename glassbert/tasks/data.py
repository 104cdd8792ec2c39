"""`TaskData`: the examples of a task (texts, pairs or words) with their targets and the line each came from.

data = TaskData.of("reviews.csv", text="review", target="stars")
data = TaskData.of([("good film", 1), ("bad film", 0)], text="column 1", target="column 2")
data = TaskData.of("titanic.csv", template="auto", target="Survived")
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from glassbert.errors import InputError
from glassbert.reading.cells import is_missing, shown
from glassbert.reading.decimals import COMMA, POINT
from glassbert.tasks.labels import LabelMap
from glassbert.tasks.reading import read_table
from glassbert.tasks.table import Table, listed
from glassbert.tasks.targets import (
    InferredKind,
    Kind,
    Targets,
    column_numbers,
    encode_targets,
    infer_kind,
    is_nested,
    split_labels,
)
from glassbert.tasks.template import FIELD, Template, auto_template, parse_template


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
        drop = options.get("drop") or ()
        named = [name for name in (text, pair, words, target, *([drop] if isinstance(drop, str) else drop)) if name]
        fields = FIELD.findall(template) if isinstance(template, str) else []
        as_written = [] if target is None else [target]
        table = read_table(given, format, named=(*named, *fields), as_written=as_written, **options)
        notes = list(table.notes)
        if target and drop_missing:
            known = [row for row, value in enumerate(table.column(target)) if not is_missing(value)]
            if len(known) < len(table):
                notes.append(f"{len(table) - len(known):,} rows without a target were left out")
            if not known:
                raise InputError(
                    f"{table.source}: no row has a target in the column {shown(target)}; set another --target"
                )
            table = table.select(known)
        given_mark = options.get("decimal")
        marks = [given_mark] if given_mark else list(dict.fromkeys([table.decimal or POINT, POINT, COMMA]))
        inferred, values = _read_targets(table, target, kind, separator, label_prefix, words is not None, marks)
        if template is not None:
            used = _make_template(table, target, template)
            texts = used.apply(table)
        elif words is not None:
            used, texts = None, [" ".join(sentence) for sentence in _word_lists(table, words)]
        else:
            text = text or text_column(table, target, pair)
            used, texts = None, _column_texts(table, text)
        data = cls(
            texts,
            table,
            _column_texts(table, pair) if pair else None,
            _word_lists(table, words) if words else None,
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
            raise InputError(f"{self.source}: there are no targets; name their column with --target")
        return encode_targets(self.targets, self.inferred.kind, self.where, labels)

    def _check_words(self) -> None:
        if self.words is None or self.targets is None:
            return
        for row, (sentence, tags) in enumerate(zip(self.words, self.targets, strict=True)):
            if len(sentence) != len(tags):
                raise InputError(f"{self.where(row)}: {len(sentence)} words and {len(tags)} tags")


def _column_texts(table: Table, name: str) -> list[str]:
    """A column as texts. None becomes an empty text, which `check_data` reports; lists and objects are an error."""
    values = table.column(name)
    for row, value in enumerate(values):
        if isinstance(value, list | dict):
            what = "a list" if isinstance(value, list) else "an object"
            raise InputError(
                f"{table.where(row)}: the column {shown(name)} holds {what}, not a text; name another column with "
                "--text"
            )
    return ["" if value is None else str(value) for value in values]


def _word_lists(table: Table, name: str) -> list[list[str]]:
    """A column of lists of words. A string of words between spaces is split."""
    values = [value.split() if isinstance(value, str) else value for value in table.column(name)]
    for row, value in enumerate(values):
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise InputError(
                f"{table.where(row)}: the column {shown(name)} must hold a list of words, got {shown(value)}; name "
                "another column with --words"
            )
    return values


def long_columns(table: Table, *others: str | None) -> list[str]:
    """The columns besides `others` with 3 words or more on average."""
    names = [name for name in table.columns if name not in others]
    return [name for name in names if _mean_words(table.columns[name]) >= 3]


def _mean_words(values: list[Any]) -> float:
    return sum(len(value.split()) for value in values if isinstance(value, str)) / max(1, len(values))


def text_column(table: Table, *others: str | None) -> str:
    """The text column: the only column besides `others` (target and pair), or the only one of `long_columns`."""
    names = [name for name in table.columns if name not in others]
    if len(names) == 1:
        return names[0]
    long = long_columns(table, *others)
    if len(long) == 1:
        return long[0]
    if len(long) == 2:
        raise InputError(
            f"{table.source} has two text columns, {shown(long[0])} and {shown(long[1])}; read them as a pair with "
            "--text and --pair, or use all columns as the text with --template auto"
        )
    raise InputError(
        f"{table.source}: name the text column with --text, one of {listed(names)}; "
        "or use all columns as the text with --template auto"
    )


def _make_template(table: Table, target: str | None, template: str | Template) -> Template:
    if isinstance(template, Template):
        return template
    return auto_template(table, target) if template == "auto" else parse_template(template, table)


def _read_targets(
    table: Table,
    target: str | None,
    kind: Kind | None,
    separator: str | None,
    prefix: str,
    tokens: bool,
    marks: Sequence[str],
) -> tuple[InferredKind | None, list[Any] | None]:
    if target is None:
        return None, None
    values = table.column(target)
    if prefix:
        values = [value.strip().removeprefix(prefix) if isinstance(value, str) else value for value in values]
    if tokens:
        return InferredKind("tokens", f"{shown(target)} has one tag for every word"), _tags(table, target, values)
    inferred = InferredKind(kind, "it was given", separator) if kind else infer_kind(values, target, marks)
    _check_labels(table, target, values, inferred.kind)
    separator = separator or inferred.separator
    if inferred.kind == "multilabel":
        values = [split_labels(value, separator or ",") for value in values]
    elif inferred.kind in ("regression", "series"):
        numbers = column_numbers(values, marks)
        values = [value if number is None else number for value, number in zip(values, numbers, strict=True)]
    return inferred, values


def _tags(table: Table, target: str, values: list[Any]) -> list[list[Any]]:
    """The tags of every sentence; a string of tags between spaces is split."""
    tags = [value.split() if isinstance(value, str) else value for value in values]
    for row, value in enumerate(tags):
        if not isinstance(value, list) or any(isinstance(tag, list | dict) for tag in value):
            raise InputError(
                f"{table.where(row)}: the column {shown(target)} must hold a list of tags, got {shown(value)}; name "
                "another column with --target"
            )
    return tags


def _check_labels(table: Table, target: str, values: list[Any], kind: str) -> None:
    """Raise for a target that is an object, or a list where one label is expected."""
    for row, value in enumerate(values):
        if isinstance(value, dict) or (isinstance(value, list) and kind != "multilabel") or is_nested(value):
            raise InputError(
                f"{table.where(row)}: the target {shown(value)} is no label or number; name another column with "
                "--target"
            )
