"""The files of a job and their pieces.

A folder, a glob, an address or one file gives `Inputs`: files of one format, with their rows and one schema. A row is
named by its file and its number in it. Parquet files are read piece by piece, through the row groups that hold it.
Other files are read whole by each worker that gets a piece of them, since their dialect is that of the whole file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from glassbert.bulk.storage import (
    MAGIC,
    QUERY,
    Found,
    Storage,
    arrow,
    check_encodable,
    is_remote,
    leading,
    matching,
)
from glassbert.errors import InputError
from glassbert.finetuning.predictor import Predictor
from glassbert.reading.cells import shown
from glassbert.tasks import TaskData, read_table
from glassbert.tasks.reading import ENDINGS, FORMATS, ending_of

ROLES = ("text", "pair", "words")
SAMPLE_ROWS = 100  # of the first file, read before any worker starts


@dataclass(frozen=True)
class InputFile:
    name: str
    bytes: int
    rows: int
    modified: int = 0  # nanoseconds since 1970


@dataclass(frozen=True)
class Piece:
    """Rows start to stop of a file."""

    number: int
    file: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def name(self) -> str:
        return f"part-{self.number:06d}.parquet"


@dataclass(frozen=True)
class Inputs:
    """The files of a job: format, schema of the rows (Arrow), and options of the reader."""

    storage: Storage
    format: str
    files: tuple[InputFile, ...]
    schema: Any
    options: Mapping[str, Any]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def pieces(self, rows: int) -> list[Piece]:
        """Pieces of at most this many rows, in the order of the files; a piece is in one file."""
        found: list[Piece] = []
        for number, file in enumerate(self.files):
            for start in range(0, file.rows, rows):
                found.append(Piece(len(found), number, start, min(start + rows, file.rows)))
        return found


class Reader:
    """Reads pieces for one model."""

    def __init__(self, inputs: Inputs, predictor: Predictor):
        self.inputs, self.predictor = inputs, predictor
        self.last: tuple[int, TaskData] | None = None  # a file that is no Parquet file, and its examples

    def read(self, piece: Piece) -> tuple[TaskData, Any]:
        """The examples of a piece, and its rows as a table of Arrow with the schema of the inputs."""
        inputs, name = self.inputs, self.inputs.files[piece.file].name
        if inputs.format == "parquet":
            rows = read_parquet_rows(inputs.storage, name, piece.start, piece.stop)
            return _examples(rows, name, piece.start, self.predictor, inputs.options), rows
        if self.last is None or self.last[0] != piece.file:
            self.last = piece.file, _read_whole(inputs.storage, name, self.predictor, inputs.options)
        data = self.last[1].select(range(piece.start, piece.stop))
        return data, _as_arrow(data.table.columns, inputs.schema)


def find_inputs(
    given: str | Path, predictor: Predictor, options: Mapping[str, Any], output: Storage | None = None
) -> Inputs:
    """The files of a folder, a glob, an address or a single file. Raises if the model cannot read them.

    Files below the folder `output`, where it is below that of the inputs, are left out.
    """
    storage, found = _find_files(str(given))
    inside = None if output is None else storage.holds(output)
    if inside is not None:
        found = [one for one in found if not one.name.startswith(f"{inside}/")]
    kind, found = _of_one_format(str(given), found, options.get("format"))
    for one in found:
        check_encodable(one.name)
    if kind == "parquet" and options.get("decimal") is not None:
        raise InputError(
            f"--decimal does not apply to the Parquet files of {given}, whose numbers have types; remove it"
        )
    inputs = Inputs(storage, kind, (), None, dict(options))
    inputs = _survey_parquet(inputs, found) if kind == "parquet" else _survey_others(inputs, found, predictor)
    if not inputs.rows:
        raise InputError(f"{given} has no rows: {_counted(len(inputs.files))} were read, and all are empty")
    if kind == "parquet":  # is the text where the model looks for it?
        first = next(number for number, file in enumerate(inputs.files) if file.rows)
        Reader(inputs, predictor).read(Piece(0, first, 0, min(SAMPLE_ROWS, inputs.files[first].rows)))
    return inputs


# ---- finding ---------------------------------------------------------------------------------------------------------


def _find_files(given: str) -> tuple[Storage, list[Found]]:
    """The folder that all names are relative to, and the files. What exists is no glob, whatever its name."""
    query = QUERY.search(given) if is_remote(given) else None
    path, query_text = (given[: query.start()], query.group()) if query else (given, "")
    folder, pattern = _split_glob(path)
    if pattern:
        storage, regex = Storage(folder + query_text), matching(pattern)
        found = [one for one in storage.files(_accepting(leading(pattern))) if regex.fullmatch(one.name)]
        if not found:
            raise InputError(f"no file matches {given}")
        return storage, found
    whole = Storage(given)
    one = whole.file("")
    if one is not None:
        parent, _, name = path.rstrip("/").rpartition("/")
        folder = parent or ("/" if given.startswith("/") else ".")
        return Storage(folder + query_text), [replace(one, name=name)]
    found = [one for one in whole.files(_is_plain) if _is_plain(one.name)]
    if not found and not (whole.local is not None and whole.local.is_dir()):
        raise InputError(f"there is no file or folder {given}")
    return whole, found


def _split_glob(path: str) -> tuple[str, str]:
    """The folder in which a glob begins, and the glob below it, which is empty for a path without one."""
    names, remote = path.split("/"), is_remote(path)
    for number, name in enumerate(names):
        if MAGIC.search(name) and (remote or not os.path.lexists(os.path.expanduser("/".join(names[: number + 1])))):
            folder = "/".join(names[:number])
            return folder or ("/" if path.startswith("/") else "."), "/".join(names[number:])
    return path, ""


def _accepting(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda name: bool(pattern.fullmatch(name))


def _is_plain(name: str) -> bool:
    """Whether neither a file nor a folder above it is hidden, or a mark of another program such as _SUCCESS."""
    return not any(part[0] in "._" for part in PurePosixPath(name).parts)


def _of_one_format(given: str, found: list[Found], format: str | None) -> tuple[str, list[Found]]:
    """The files that hold rows, and their common format."""
    if format is not None and format not in FORMATS:
        raise InputError(f"there is no format {shown(format)}; set --format to one of {', '.join(FORMATS)}")
    by_format: dict[str, list[Found]] = {}
    for one in found:
        kind = format or ENDINGS.get(ending_of(PurePosixPath(one.name)))
        if kind is not None:
            by_format.setdefault(kind, []).append(one)
    if not by_format:
        raise InputError(f"{given} holds no files to read: names must end in {' '.join(ENDINGS)}, or set --format")
    if len(by_format) > 1:
        raise InputError(
            f"{given} holds files of several formats ({', '.join(sorted(by_format))}); "
            f"choose some by a glob in quotes, as in '{given.rstrip('/')}/*{ending_of(PurePosixPath(found[0].name))}'"
        )
    return next(iter(by_format.items()))


def _counted(files: int) -> str:
    return "1 file" if files == 1 else f"{files:,} files"


# ---- Parquet ---------------------------------------------------------------------------------------------------------


def _survey_parquet(inputs: Inputs, found: Sequence[Found]) -> Inputs:
    """Rows and schema from the footers. All files must have the same columns of the same types."""
    files, first = [], None
    for one in found:
        with _parquet(inputs.storage, one.name) as file:
            schema, rows = file.schema_arrow.remove_metadata(), file.metadata.num_rows
        if first is None:
            first = schema
        elif not schema.equals(first):
            raise InputError(f"{one.name} has other columns than {files[0].name}: {_difference(first, schema)}")
        files.append(InputFile(one.name, one.bytes, rows, one.modified))
    return replace(inputs, files=tuple(files), schema=first)


def _difference(first: Any, other: Any) -> str:
    """What differs between two schemas, in words."""
    missing = [name for name in first.names if name not in other.names]
    added = [name for name in other.names if name not in first.names]
    if missing or added:
        said = [f"it lacks {', '.join(map(shown, missing))}"] if missing else []
        said += [f"it also has {', '.join(map(shown, added))}"] if added else []
        return " and ".join(said)
    for name in first.names:
        if first.field(name).type != other.field(name).type:
            return f"{shown(name)} is {other.field(name).type} there and {first.field(name).type} here"
    return "their order differs"


def _parquet(storage: Storage, name: str) -> Any:
    pyarrow = arrow("reading Parquet files")
    try:
        return pyarrow.parquet.ParquetFile(storage.open(name))
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{storage.path(name)} cannot be read as Parquet: {reason}") from error


def read_parquet_rows(storage: Storage, name: str, start: int, stop: int) -> Any:
    """Rows start to stop of a Parquet file; only the row groups that hold them are read."""
    pyarrow = arrow("reading Parquet files")
    with _parquet(storage, name) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        edges = list(accumulate(sizes, initial=0))
        groups = [group for group, (low, high) in enumerate(pairwise(edges)) if low < stop and high > start]
        try:
            read = file.read_row_groups(groups)
        except (pyarrow.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{storage.path(name)} cannot be read as Parquet: {reason}") from error
    return read.slice(start - edges[groups[0]], stop - start).replace_schema_metadata(None)


def _examples(rows: Any, name: str, start: int, predictor: Predictor, options: Mapping[str, Any]) -> TaskData:
    """The examples of some rows; messages name the file and the row in it."""
    reading = {key: value for key, value in options.items() if key not in (*ROLES, "format")}
    roles = {key: value for key, value in options.items() if key in ROLES}
    table = read_table(rows, as_written=[*rows.column_names, *reading.get("columns", ())], **reading)
    lines = range(start + 1, start + len(table) + 1)
    return predictor.read(replace(table, source=name, lines=lines, unit="row"), **roles)


# ---- other formats ---------------------------------------------------------------------------------------------------


def _survey_others(inputs: Inputs, found: Sequence[Found], predictor: Predictor) -> Inputs:
    """Rows and columns of files that have to be read for that. Types that differ become text."""
    files, first, types = [], "", dict[str, Any]()
    for one in found:
        data = _read_whole(inputs.storage, one.name, predictor, inputs.options)
        columns = data.table.columns
        if types and set(columns) != set(types):
            raise InputError(
                f"{one.name} has the columns {', '.join(map(shown, columns))}, and {first} has "
                f"{', '.join(map(shown, types))}; files of one job have the same columns"
            )
        first = first or one.name
        for name, values in columns.items():
            types[name] = _common_type(types.get(name), values)
        files.append(InputFile(one.name, one.bytes, len(data.texts), one.modified))
    pyarrow = arrow("writing Parquet files")
    schema = pyarrow.schema([(name, pyarrow.string() if str(one) == "null" else one) for name, one in types.items()])
    return replace(inputs, files=tuple(files), schema=schema)


def _common_type(before: Any, values: Sequence[Any]) -> Any:
    pyarrow = arrow("writing Parquet files")
    try:
        found = pyarrow.array(values).type
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        return pyarrow.string()
    if "struct<>" in str(found):  # an object without fields, which Parquet does not have
        return pyarrow.string()
    if before is None or str(before) == "null" or found == before:
        return found
    return before if str(found) == "null" else pyarrow.string()


def _as_arrow(columns: Mapping[str, Sequence[Any]], schema: Any) -> Any:
    pyarrow = arrow("writing Parquet files")
    text = pyarrow.string()
    made = {
        field.name: pyarrow.array(
            _texts(columns[field.name]) if field.type == text else columns[field.name], field.type
        )
        for field in schema
    }
    return pyarrow.table(made)


def _texts(values: Sequence[Any]) -> list[str | None]:
    return [value if isinstance(value, str | None) else _written(value) for value in values]


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _read_whole(storage: Storage, name: str, predictor: Predictor, options: Mapping[str, Any]) -> TaskData:
    """The examples of a file; one in an object store is copied to the disk first."""
    if storage.local is not None:
        return predictor.read(storage.local / name, **options)
    with tempfile.TemporaryDirectory(prefix="glassbert-") as folder:
        copy = Path(folder) / PurePosixPath(name).name
        copy.write_bytes(storage.read(name))
        return predictor.read(copy, **options)
