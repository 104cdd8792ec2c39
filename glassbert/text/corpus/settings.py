"""The settings of a build. Equal settings and equal input give equal shards."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from glassbert.errors import TextError
from glassbert.reading.options import ReadingOptions

LAYOUTS = {
    "paragraphs": "one paragraph per line, a blank line between documents",
    "lines": "one document per line",
    "file": "one document per file, one paragraph per line",
    "wrapped": "one document per file, paragraphs are wrapped lines with a blank line between them",
}
FORMATS = ("text", "markdown", "jsonl", "json", "csv", "tsv", "excel", "parquet")
MIN_CHARACTERS = 20  # of a document, if documents are cleaned
READING = ("encoding", "delimiter", "quoting", "header", "ragged", "sheet")  # options of `glassbert.reading`
ON_BAD_TEXT = {
    "error": "stop and report the line",
    "replace": "replace invalid bytes by U+FFFD",
    "skip": "leave the document out",
}


@dataclass(frozen=True)
class Settings:
    """How sources are read, cleaned, compared, split and stored."""

    layout: str = "paragraphs"  # of plain text, one of LAYOUTS
    format: str | None = None  # one of FORMATS for every source; None: by file name
    field: str | None = None  # the JSON field or column with the text; None: detect it
    encoding: str | None = None  # of all sources; None: by the bytes of each
    delimiter: str | None = None  # of CSV and TSV files; None: found in each, as are the next two
    quoting: bool | None = None  # whether double quotes enclose cells; None: found
    header: bool | None = None  # whether the first row has the names of the columns; None: found
    ragged: str = "error"  # rows with too few columns: "error" or "skip"
    sheet: str | None = None  # of Excel files; None: the first
    on_bad_text: str = "error"  # one of ON_BAD_TEXT
    clean: bool = True
    min_characters: int | None = None  # shorter documents are left out; None: 20, or 0 without cleaning
    exact_duplicates: bool = True  # remove exact duplicates
    near_duplicates: float | None = 0.8  # remove documents with this Jaccard similarity to an earlier one; None: keep
    validation: float = 0.01  # the share of documents to hold out
    seed: int = 0  # determines which documents are held out
    shard_tokens: int = 1 << 24  # maximum tokens per shard

    def __post_init__(self) -> None:
        if self.min_characters is None:
            object.__setattr__(self, "min_characters", MIN_CHARACTERS if self.clean else 0)
        read = ReadingOptions(**{name: getattr(self, name) for name in READING})
        object.__setattr__(self, "delimiter", read.delimiter)
        choices = {"layout": LAYOUTS, "format": (None, *FORMATS), "on_bad_text": ON_BAD_TEXT}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                choices_text = ", ".join(str(choice) for choice in allowed if choice)
                raise TextError(f"{name} must be one of {choices_text}; got {getattr(self, name)!r}")
        if self.near_duplicates is not None and not 0.2 <= self.near_duplicates < 1:
            raise TextError(
                f"near_duplicates must be a similarity from 0.2 to 0.99, or None to keep all documents; "
                f"got {self.near_duplicates!r}"
            )
        if not 0 <= self.validation < 1:
            raise TextError(f"validation must be a share of the documents, 0 <= share < 1; got {self.validation!r}")
        for name, least in (("min_characters", 0), ("shard_tokens", 1), ("seed", 0)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise TextError(f"{name} must be a whole number of at least {least}; got {getattr(self, name)!r}")
        if self.shard_tokens > 1 << 31:
            raise TextError(f"shard_tokens must be at most {1 << 31:,}; got {self.shard_tokens:,}")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Settings from keyword arguments; an unknown name raises TextError."""
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown:
            raise TextError(f"there is no build setting {unknown[0]!r}; use {', '.join(cls.__dataclass_fields__)}")
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


DEFAULTS = Settings().as_dict()
