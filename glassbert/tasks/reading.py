"""One door for every kind of table: by the name of the file, by `format`, or straight from memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from glassbert.errors import TextError
from glassbert.tasks.conll import read_conll, read_conllu
from glassbert.tasks.delimited import read_delimited
from glassbert.tasks.minimal_pairs import read_minimal_pairs
from glassbert.tasks.records import of_object, read_json, read_parquet
from glassbert.tasks.table import Table
from glassbert.text.corpus.streams import SUFFIXES

FORMATS: dict[str, Callable[..., Table]] = {
    "csv": read_delimited,
    "tsv": partial(read_delimited, delimiter="\t"),
    "jsonl": read_json,
    "parquet": read_parquet,
    "conll": read_conll,
    "conllu": read_conllu,
    "minimal-pairs": read_minimal_pairs,
}
ENDINGS = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".conllu": "conllu",
}


def read_table(given: Any, format: str | None = None, **options: Any) -> Table:
    """A file, compressed or not, or anything `of_object` takes. `options` are those of the format's reader."""
    if not isinstance(given, str | os.PathLike):
        return of_object(given)
    path = Path(given)
    kind = format or ENDINGS.get(_ending(path))
    if kind not in FORMATS:
        known = ", ".join(FORMATS)
        raise TextError(
            f"{path}: say with `format` what this file is, one of {known}" + (f"; got {kind!r}" if kind else "")
        )
    try:
        return FORMATS[kind](path, **options)
    except TypeError as error:
        if options and "unexpected keyword" in str(error):
            raise TextError(f"{path}: {kind} files have no such option: {error}") from None
        raise


def _ending(path: Path) -> str:
    """The file's ending without that of its compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
