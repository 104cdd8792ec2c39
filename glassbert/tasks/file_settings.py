"""`FileSettings`: the options of reading a file as settings, so that commands and runs share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from glassbert.errors import TrainingError
from glassbert.reading.options import OPTIONS, ReadingOptions
from glassbert.training.settings_base import Settings, about

PANEL = "Files"


def _option(name: str) -> Any:
    return about(OPTIONS[name].default, OPTIONS[name].metadata["help"], PANEL)


@dataclass(frozen=True, kw_only=True)
class FileSettings(Settings):
    """How files are read; see `ReadingOptions`."""

    format: str | None = about(
        None,
        "The format, if the file name does not show it: csv, tsv, jsonl, json, parquet, excel, conll, conllu or lines "
        "(one text per line).",
        PANEL,
    )
    encoding: str | None = _option("encoding")
    delimiter: str | None = _option("delimiter")
    quoting: bool | None = _option("quoting")
    header: bool | None = _option("header")
    columns: tuple[str, ...] = _option("columns")
    decimal: str | None = _option("decimal")
    drop: tuple[str, ...] = _option("drop")
    ragged: str = _option("ragged")
    sheet: str | None = _option("sheet")

    def __post_init__(self) -> None:
        for name in ("columns", "drop"):
            names: Any = getattr(self, name) or ()
            object.__setattr__(self, name, (names,) if isinstance(names, str) else tuple(names))
            if not all(isinstance(one, str) for one in getattr(self, name)):
                raise TrainingError(f"{name} must be a list of names, got {getattr(self, name)!r}")
        for name in ("quoting", "header"):
            if not isinstance(getattr(self, name), bool | None):
                raise TrainingError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if not isinstance(self.format, str | None):
            raise TrainingError(f"format must be text, got {self.format!r}")
        ReadingOptions(**{name: getattr(self, name) for name in OPTIONS})

    def reading(self) -> dict[str, Any]:
        """The options that were set, with the format, for `read_table`."""
        options = {name: getattr(self, name) for name, one in OPTIONS.items() if getattr(self, name) != one.default}
        options = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        return options if self.format is None else {"format": self.format, **options}
