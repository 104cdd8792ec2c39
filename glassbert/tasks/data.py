"""Examples of a task: texts (or words, or pairs of texts) with their targets, and where each came from.

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
from glassbert.tasks.targets import Kind, Recognised, Targets, encode_targets, recognise, split_labels
from glassbert.tasks.template import Template, auto_template, parse_template


@dataclass(frozen=True)
class TaskData:
    """N examples. `words` is there for token tasks, where `texts` are the words with spaces between them."""

    texts: list[str]
    table: Table
    pairs: list[str] | None = None
    words: list[list[str]] | None = None
    targets: list[Any] | None = None
    recognised: Recognised | None = None
    template: Template | None = None
    names: dict[str, str] = field(default_factory=dict)  # which column became the text, the pair, the target
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
        """Read, choose columns, recognise the target. `options` go to the reader of the file's format.

        template      "auto", a string with {column} in it, or the template a model was trained with
        drop_missing  leave out rows without a target instead of refusing them
        separator     between the labels of one cell (multilabel)
        label_prefix  taken off every label, as in "__label__4"
        """
        table = read_table(given, format, **options)
        notes = list(table.notes)
        if target and drop_missing:
            known = [row for row, value in enumerate(table.column(target)) if not is_missing(value)]
            if len(known) < len(table):
                notes.append(f"{len(table) - len(known):,} rows without a target were left out")
            table = table.select(known)
        found, values = _read_targets(table, target, kind, separator, label_prefix, tokens=words is not None)
        if template is not None:
            made = _make_template(table, target, template)
            texts = made.apply(table)
        elif words is not None:
            made, texts = None, [" ".join(sentence) for sentence in table.column(words)]
        else:
            text = text or text_column(table, target)
            made, texts = None, _texts(table, text)
        data = cls(
            texts,
            table,
            _texts(table, pair) if pair else None,
            table.column(words) if words else None,
            values,
            found,
            made,
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
        return self.table.source

    @property
    def kind(self) -> Kind | None:
        return self.recognised.kind if self.recognised else None

    def where(self, row: int) -> str:
        return self.table.where(row)

    def select(self, rows: Iterable[int]) -> TaskData:
        """Some of the examples, in the order given."""
        rows = [int(row) for row in rows]
        some: dict[str, Any] = {
            name: [values[row] for row in rows]
            for name in ("texts", "pairs", "words", "targets")
            if (values := getattr(self, name)) is not None
        }
        return replace(self, table=self.table.select(rows), **some)

    def encoded(self, labels: LabelMap | None = None) -> Targets:
        """The targets as numbers; `labels` are those of training."""
        if self.targets is None or self.recognised is None:
            raise InputError(f"{self.source}: there are no targets; say which column holds them")
        return encode_targets(self.targets, self.recognised.kind, self.where, labels)

    def _check_words(self) -> None:
        if self.words is None or self.targets is None:
            return
        for row, (sentence, tags) in enumerate(zip(self.words, self.targets, strict=True)):
            if len(sentence) != len(tags):
                raise InputError(f"{self.where(row)}: {len(sentence)} words and {len(tags)} tags")


def _texts(table: Table, name: str) -> list[str]:
    """A cell that is missing is an empty text; `check_data` tells how many there are."""
    return ["" if value is None else str(value) for value in table.column(name)]


def text_column(table: Table, target: str | None) -> str:
    """The only column that is left, or the one with the longest texts of a table that has a text at all."""
    names = [name for name in table.columns if name != target]
    if len(names) == 1:
        return names[0]
    words = {name: sum(len(str(value).split()) for value in table.columns[name]) / max(1, len(table)) for name in names}
    long = [name for name in names if words[name] >= 3]
    if len(long) == 1:
        return long[0]
    listed = ", ".join(map(repr, names))
    raise InputError(
        f"{table.source}: say which column holds the text, text=..., one of {listed}; "
        "or make a text of all columns with template='auto'"
    )


def _make_template(table: Table, target: str | None, template: str | Template) -> Template:
    if isinstance(template, Template):
        return template
    return auto_template(table, target) if template == "auto" else parse_template(template, table)


def _read_targets(
    table: Table, target: str | None, kind: Kind | None, separator: str | None, prefix: str, tokens: bool
) -> tuple[Recognised | None, list[Any] | None]:
    if target is None:
        return None, None
    values = table.column(target)
    if prefix:
        values = [value.strip().removeprefix(prefix) if isinstance(value, str) else value for value in values]
    if tokens:
        return Recognised("tokens", f"every word of {target!r} has a tag of its own"), values
    found = Recognised(kind, "as you said", separator) if kind else recognise(values, target)
    separator = separator or found.separator
    if found.kind == "multilabel":
        values = [split_labels(value, separator or ",") for value in values]
    return found, values
