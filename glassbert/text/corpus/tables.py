"""Read texts from tables: CSV, TSV, Parquet and Hugging Face datasets. One row is one document.

The column is the one given by --text, else the first of USUAL_FIELDS, else the only column.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from glassbert.errors import TextError, needs
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.streams import CHUNK, ByteCounter

USUAL_FIELDS = ("text", "content", "document", "body", "article", "sentence", "passage")


def choose_field(names: Sequence[str], wanted: str | None, where: str) -> str:
    """The name of the field with the text: `wanted`, or the usual name."""
    if wanted is not None:
        if wanted not in names:
            raise TextError(f"{where} has no field {wanted!r}; it has {', '.join(map(repr, names)) or 'none'}")
        return wanted
    lowered = {name.strip().lower(): name for name in reversed(names)}
    for usual in USUAL_FIELDS:
        if usual in lowered:
            return lowered[usual]
    if len(names) == 1:
        return names[0]
    known = ", ".join(map(repr, names)) or "none"
    raise TextError(f"{where}: no field with a usual name; set --text to the text field (fields: {known})")


def delimited_texts(stream: Any, name: str, kind: str, settings: Settings, longest: int) -> Iterator[str]:
    """The text column of a CSV or TSV file with a header row. Quotes are interpreted in CSV only."""
    options: dict[str, Any] = {"strict": True} if kind == "csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    before = csv.field_size_limit(longest)
    try:
        rows = csv.reader(_decoded_lines(stream, name, settings, longest), **options)
        header = next(rows, None)
        if not header:
            raise TextError(f"{name} is empty")
        column = header.index(choose_field(header, settings.field, name))
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                raise TextError(f"{name}, line {rows.line_num:,}: not {kind.upper()}: {error}") from error
            if not row:
                continue
            if len(row) <= column:
                raise TextError(
                    f"{name}, line {rows.line_num:,}: {len(row)} columns, but the text is in column {column + 1}"
                )
            yield row[column]
    finally:
        csv.field_size_limit(before)


def _decoded_lines(stream: Any, name: str, settings: Settings, longest: int) -> Iterator[str]:
    number = 0
    while line := stream.readline(longest + CHUNK):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if len(line) > longest:
            raise TextError(f"{name}, line {number:,}: longer than {longest:,} bytes; this is probably not a table")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            if settings.on_bad_text == "error":
                raise TextError(bad_utf8_message(name, number, error)) from error
            yield line.decode(errors="surrogateescape")  # the workers replace or skip it


def bad_utf8_message(name: str, line: int, error: UnicodeDecodeError) -> str:
    bad = error.object[error.start : error.start + 4].hex(" ")
    return (
        f"{name}, line {line:,}: bytes that are not UTF-8 ({bad}); convert the file, or use --on-bad-text replace "
        "or skip"
    )


def parquet_texts(path: Path, name: str, settings: Settings, counter: ByteCounter) -> Iterator[str]:
    """The text column of a Parquet file, read 256 rows at a time."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TextError(needs("reading Parquet files", "pyarrow")) from error
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            column = choose_field(table.schema_arrow.names, settings.field, name)
            kind = table.schema_arrow.field(column).type
            if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
                raise TextError(f"{name}: the column {column!r} contains {kind}, not text")
            for batch in table.iter_batches(batch_size=256, columns=[column]):
                yield from (text for text in batch.column(0).to_pylist() if text is not None)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TextError(f"{name} cannot be read as Parquet: {error}") from error
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
