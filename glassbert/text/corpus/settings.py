"""What a build may be asked to do differently. Two builds with equal settings and equal input give equal shards."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from glassbert.errors import TextError

LAYOUTS = {
    "paragraphs": "one paragraph a line, a blank line between documents",
    "lines": "one document a line",
    "file": "a file is a document, one paragraph a line",
    "wrapped": "a file is a document, paragraphs are wrapped lines with a blank line between them",
}
FORMATS = ("text", "markdown", "jsonl", "csv", "tsv", "parquet")
ON_BAD_TEXT = {
    "error": "stop and say where",
    "replace": "put U+FFFD in the place of what cannot be read",
    "skip": "leave the document out",
}


@dataclass(frozen=True)
class Settings:
    """How sources are read, cleaned, compared, split and stored."""

    layout: str = "paragraphs"  # of plain text, one of LAYOUTS
    format: str | None = None  # one of FORMATS for every source; None goes by the file's name
    field: str | None = None  # the JSON field or column that holds the text; None finds it
    on_bad_text: str = "error"  # one of ON_BAD_TEXT
    clean: bool = True
    min_characters: int = 20  # documents with fewer are left out
    exact_duplicates: bool = True  # remove them
    near_duplicates: float | None = 0.8  # remove documents at least so similar to an earlier one (Jaccard); None keeps
    validation: float = 0.01  # the share of documents held out
    seed: int = 0  # decides which
    shard_tokens: int = 1 << 24

    def __post_init__(self) -> None:
        choices = {"layout": LAYOUTS, "format": (None, *FORMATS), "on_bad_text": ON_BAD_TEXT}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                known = ", ".join(str(choice) for choice in allowed if choice)
                raise TextError(f"{name} must be one of {known}; got {getattr(self, name)!r}")
        if self.near_duplicates is not None and not 0.2 <= self.near_duplicates < 1:
            raise TextError(
                f"near_duplicates is the similarity from which documents count as the same, 0.2 to 0.99, "
                f"or None to keep all; got {self.near_duplicates!r}"
            )
        if not 0 <= self.validation < 1:
            raise TextError(f"validation is a share of the documents, from 0 to below 1; got {self.validation!r}")
        for name, least in (("min_characters", 0), ("shard_tokens", 1), ("seed", 0)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise TextError(f"{name} must be a whole number from {least} on; got {getattr(self, name)!r}")
        if self.shard_tokens > 1 << 31:
            raise TextError(f"shard_tokens can be at most {1 << 31:,}; got {self.shard_tokens:,}")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
