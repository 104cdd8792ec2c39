"""Health: what was found in a corpus, as plain numbers and texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.text.corpus.health.scan import Lengths

if TYPE_CHECKING:
    from glassbert.text.corpus.health.findings import Finding


@dataclass
class Health:
    """A health card. `measures` is flat, so that a check needs only a name and a limit."""

    folder: str
    splits: dict[str, dict[str, int]]  # documents, sentences and tokens of each
    sources: list[dict[str, Any]]
    builder: dict[str, int]  # what the builder counted: documents read, repaired, left out
    measures: dict[str, Any]  # numbers; None where a measure cannot be taken
    document_lengths: Lengths
    sentence_lengths: Lengths
    word_lengths: Lengths
    token_counts: np.ndarray  # [vocabulary]
    characters: dict[str, int]  # how many of each kind
    top_tokens: list[tuple[str, int]]
    excerpts: dict[str, list[str]]
    findings: list[Finding] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The gravest level among the findings, or "good"."""
        levels = {finding.level for finding in self.findings}
        return next((level for level in ("problem", "warning", "note") if level in levels), "good")

    def largest_sources(self) -> list[tuple[str, dict[str, Any]]]:
        """The sources, largest first, under names without the folder they have in common."""
        folders = [source["name"].split("/")[:-1] for source in self.sources]
        shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))
        common = sum(len(parts[0]) + 1 for parts in shared) if len(folders) > 1 else 0
        ordered = sorted(self.sources, key=lambda source: -source["tokens"])
        return [(source["name"][common:], source) for source in ordered]

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        lengths = {"documents": self.document_lengths, "sentences": self.sentence_lengths, "words": self.word_lengths}
        return {
            "folder": self.folder,
            "verdict": self.verdict,
            "findings": [finding.as_dict() for finding in self.findings],
            "splits": self.splits,
            "sources": self.sources,
            "builder": self.builder,
            "measures": self.measures,
            "lengths": {name: one.summary() for name, one in lengths.items()},
            "characters": self.characters,
            "top_tokens": self.top_tokens,
            "excerpts": self.excerpts,
        }
