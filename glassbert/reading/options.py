"""The options of reading a file: one table of names, defaults, help texts and the formats they belong to.

Each is an argument of `read_table`, `TaskData.of`, `Series.of`, `Predictor.predict`, `finetune` and `build_corpus` and,
with hyphens, a flag of their commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from glassbert.errors import TextError
from glassbert.reading.cells import shown
from glassbert.reading.decimals import check_decimal
from glassbert.reading.delimited import check_delimiter, check_ragged
from glassbert.reading.encodings import codec_name

DELIMITED = ("csv", "tsv")
TEXT = (*DELIMITED, "jsonl", "json", "conll", "conllu", "minimal-pairs", "text", "markdown", "lines")
OBJECTS = "objects"  # lists, dictionaries and data frames of Python
ANY = ()


def option(default: Any, text: str, formats: tuple[str, ...]) -> Any:
    return field(default=default, metadata={"help": text, "formats": formats})


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How a file is read. None: found in the file."""

    encoding: str | None = option(
        None, "The encoding: utf-8, utf-16, cp1252, shift_jis, ... Default: by the bytes of the file.", TEXT
    )
    delimiter: str | None = option(
        None, "The character between columns; also tab, comma, semicolon, bar, space. Default: found.", DELIMITED
    )
    quoting: bool | None = option(None, "Whether double quotes enclose cells. Default: found.", DELIMITED)
    header: bool | None = option(
        None, "Whether the first row names the columns. Default: found.", (*DELIMITED, "excel")
    )
    columns: tuple[str, ...] = option(
        (), "Names for all columns (repeat the flag).", (*DELIMITED, "excel", "conll", OBJECTS)
    )
    decimal: str | None = option(None, "The decimal mark of numbers, '.' or ','. Default: found by column.", ANY)
    drop: tuple[str, ...] = option((), "A column to leave out (repeat the flag).", ANY)
    ragged: str = option(
        "error", "Rows with another number of columns: error, skip, or cut (drop extra cells).", (*DELIMITED, "excel")
    )
    sheet: str | None = option(None, "The sheet of an Excel file, by name or number. Default: the first.", ("excel",))

    def __post_init__(self) -> None:
        for name in ("columns", "drop"):
            given: Any = getattr(self, name) or ()
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(map(str, given)))
        for name in ("encoding", "delimiter", "decimal", "sheet"):
            if not isinstance(getattr(self, name), str | None) and not (name == "sheet" and self.sheet is not None):
                raise TextError(f"{name} must be text, got {shown(getattr(self, name))}")
        object.__setattr__(self, "sheet", None if self.sheet is None else str(self.sheet))
        object.__setattr__(self, "delimiter", check_delimiter(self.delimiter))
        check_decimal(self.decimal)
        check_ragged(self.ragged)
        if self.encoding is not None:
            codec_name(self.encoding)

    def check_format(self, format: str, source: str) -> None:
        """Raise if an option is set that has no meaning for files of this format."""
        for name, one in OPTIONS.items():
            formats = one.metadata["formats"]
            if getattr(self, name) != one.default and formats and format not in formats:
                flag = f"--{name.replace('_', '-')}"
                what = "data in memory" if format == OBJECTS else f"{format} files"
                raise TextError(f"{source}: {flag} does not apply to {what}; it is for {', '.join(formats)}")


OPTIONS = {one.name: one for one in fields(ReadingOptions)}
DEFAULTS = ReadingOptions()


def applicable(options: Mapping[str, Any], format: str) -> dict[str, Any]:
    """The options that have a meaning for files of this format, and whatever is no option of reading."""
    return {
        name: value
        for name, value in options.items()
        if name not in OPTIONS or not (formats := OPTIONS[name].metadata["formats"]) or format in formats
    }
