"""Read texts from tables: CSV, TSV, Excel, JSON, Parquet and Hugging Face datasets. One row is one document.

The column is the one given by --text, else the first of USUAL_FIELDS, else the only column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from glassbert.errors import TextError, needs
from glassbert.reading.cells import shown
from glassbert.reading.delimited import SAMPLE_ROWS, find_dialect, guess_header, read_rows, with_sample
from glassbert.reading.encodings import decode, undecodable, utf8_stream
from glassbert.reading.excel import sheet_rows
from glassbert.reading.parquet import open_parquet
from glassbert.reading.records import json_records
from glassbert.reading.streams import CHUNK, ByteCounter, read_bytes
from glassbert.text.corpus.settings import Settings

USUAL_FIELDS = ("text", "content", "document", "body", "article", "sentence", "passage")
LISTED = 30  # fields in an error text


def choose_field(names: Sequence[str], wanted: str | None, where: str) -> str:
    """The name of the field with the text: `wanted`, or the usual name."""
    if wanted is not None:
        if wanted not in names:
            raise TextError(f"{where} has no field {shown(wanted)}; it has {_listed(names)}")
        return wanted
    lowered = {name.strip().lower(): name for name in reversed(names)}
    for usual in USUAL_FIELDS:
        if usual in lowered:
            return lowered[usual]
    if len(names) == 1:
        return names[0]
    raise TextError(f"{where}: no field with a usual name; set --text to the text field (fields: {_listed(names)})")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return (", ".join(map(shown, names[:LISTED])) or "none") + more


def utf8_source(stream: Any, name: str, settings: Settings, counter: ByteCounter) -> Any:
    """A source in UTF-8. Its encoding is set in the counter, if it is another one."""
    text, encoding = utf8_stream(stream, name, settings.encoding)
    counter.encoding = "" if encoding.name in ("utf-8", "utf-8-sig") else encoding.name
    return text


def delimited_texts(stream: Any, name: str, kind: str, settings: Settings, longest: int) -> Iterator[str]:
    """The text column of a CSV or TSV file. Delimiter, quoting and header are found as in task files."""
    first, lines = with_sample(_decoded_lines(stream, name, settings, longest))
    dialect = find_dialect(first, settings.delimiter or ("\t" if kind == "tsv" else None), settings.quoting)
    yield from column_texts(read_rows(lines, dialect, name, longest), name, settings)


def column_texts(rows: Iterable[tuple[int, list[Any]]], name: str, settings: Settings) -> Iterator[str]:
    """The text column of rows with their numbers."""
    given = iter(rows)
    first = list(islice(given, SAMPLE_ROWS))
    if not first:
        raise TextError(f"{name} is empty")
    cells = [[_as_text(cell) for cell in row] for _, row in first]
    header = settings.header
    if header is None:
        usual = (settings.field,) if settings.field else {cell for cell in cells[0] if _is_usual(cell)}
        header, _ = guess_header(cells, usual)
    names = [title.strip() or f"column {number}" for number, title in enumerate(cells[0], 1)]
    if not header:
        names = [f"column {number}" for number in range(1, len(names) + 1)]
    column = names.index(choose_field(names, settings.field, name))
    for line, row in chain(first[1:] if header else first, given):
        if len(row) > column:
            yield _as_text(row[column])
        elif settings.ragged == "error":
            raise TextError(
                f"{name}, line {line:,}: {len(row)} columns, but the text is in column {column + 1}; repair the row, "
                "or leave such rows out with --ragged skip"
            )


def _as_text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _is_usual(cell: str) -> bool:
    return cell.strip().lower() in USUAL_FIELDS


def json_texts(path: Path, name: str, settings: Settings, counter: ByteCounter) -> Iterator[str]:
    """The texts of a JSON file that is one value: a list of strings or objects, or an object of columns."""
    data = read_bytes(path)
    counter.add(data)
    text, encoding = decode(data, name, settings.encoding)
    counter.encoding = "" if encoding.name in ("utf-8", "utf-8-sig") else encoding.name
    for number, row in json_records(text, name):
        where = f"{name}, record {number:,}"
        value = row[choose_field(list(row), settings.field, where)] if isinstance(row, dict) else row
        if value is not None and not isinstance(value, str):
            raise TextError(f"{where}: expected a string or an object with a text field, got {type(value).__name__}")
        if value is not None:
            yield value


def excel_texts(path: Path, name: str, settings: Settings, counter: ByteCounter) -> Iterator[str]:
    """The text column of a sheet."""
    yield from column_texts(sheet_rows(path, settings.sheet), name, settings)
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            counter.add(data)


def _decoded_lines(stream: Any, name: str, settings: Settings, longest: int) -> Iterator[str]:
    number = 0
    while line := stream.readline(longest + CHUNK):
        number += 1
        if len(line) > longest:
            raise TextError(f"{name}, line {number:,}: longer than {longest:,} bytes; this is probably not a table")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            if settings.on_bad_text == "error":
                raise TextError(bad_text_message(name, number, error, settings)) from error
            yield line.decode(errors="surrogateescape")  # the workers replace or skip it


def bad_text_message(name: str, line: int, error: UnicodeDecodeError, settings: Settings) -> str:
    return undecodable(name, line, error, settings.encoding or "utf-8", "; or use --on-bad-text replace or skip")


def parquet_texts(path: Path, name: str, settings: Settings, counter: ByteCounter) -> Iterator[str]:
    """The text column of a Parquet file, read 256 rows at a time."""
    with open_parquet(path, name) as table:
        column = choose_field(table.schema_arrow.names, settings.field, name)
        kind = str(table.schema_arrow.field(column).type)
        if kind not in ("string", "large_string", "string_view"):
            raise TextError(f"{name}: the column {shown(column)} contains {kind}, not text; set --text to another one")
        for batch in table.iter_batches(batch_size=256, columns=[column]):
            yield from (text for text in batch.column(0).to_pylist() if text is not None)
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            counter.add(data)


def hub_texts(name: str, settings: Settings) -> Iterator[str]:
    """The texts of hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT, streamed: nothing is stored."""
    try:
        import datasets
    except ImportError as error:
        raise TextError(needs(name, "datasets")) from error
    path, config, split = [*name.removeprefix("hf:").split(":"), "", ""][:3]
    try:
        rows = iter(datasets.load_dataset(path, config or None, split=split or "train", streaming=True))
        field = None
        for row in rows:
            field = field or choose_field(list(row), settings.field, name)
            if not isinstance(row[field], str):
                raise TextError(f"{name}: the field {field!r} contains {type(row[field]).__name__}, not text")
            yield row[field]
    except TextError:
        raise
    except Exception as error:  # errors of the hub, the network or the dataset format
        raise TextError(f"{name} cannot be read: {type(error).__name__}: {error}") from error
