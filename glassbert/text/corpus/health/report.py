"""`Health`: the report on a corpus, and `examine`, which makes it: statistics -> measures -> findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from glassbert.errors import TextError
from glassbert.text.corpus.health.checks import CHECKS, LEVELS
from glassbert.text.corpus.health.measures import empty_sources, measure, source_rows
from glassbert.text.corpus.health.scan import Lengths
from glassbert.text.corpus.health.statistics import CorpusStatistics
from glassbert.text.corpus.health.vocabulary_tables import KINDS, character_kind
from glassbert.text.corpus.reader import Corpus

TOP_TOKENS = 40
# Measures that add up over the sources, so that the main source can be named.
ADDITIVE = ("unknown_share", "noise_share", "few_letters_share", "giant_share", "markup_per_1000_tokens")


@dataclass(frozen=True)
class Finding:
    """A measure beyond one of its limits, with evidence, remedy and text samples."""

    level: str
    name: str
    text: str
    evidence: str
    remedy: str
    samples: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Health:
    """The report on a corpus. `measures` is a flat dictionary, so a check needs only a name and limits."""

    folder: str
    splits: dict[str, dict[str, int]]  # documents, sentences and tokens of each
    sources: list[dict[str, Any]]
    builder: dict[str, int]  # counts of the build: documents read, cleaned, left out
    measures: dict[str, Any]  # numbers; None if a measure cannot be computed
    document_lengths: Lengths
    sentence_lengths: Lengths
    word_lengths: Lengths
    token_counts: np.ndarray  # [vocabulary]
    characters: dict[str, int]  # kind of character -> count
    top_tokens: list[tuple[str, int]]
    excerpts: dict[str, list[str]]
    findings: list[Finding] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The most severe level of the findings, or "good"."""
        levels = {finding.level for finding in self.findings}
        return next((level for level in LEVELS if level in levels), "good")

    def largest_sources(self) -> list[tuple[str, dict[str, Any]]]:
        """The sources, largest first, with names relative to their common folder."""
        folders = [source["name"].split("/")[:-1] for source in self.sources]
        shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))
        common = sum(len(parts[0]) + 1 for parts in shared) if len(folders) > 1 else 0
        ordered = sorted(self.sources, key=lambda source: -source["tokens"])
        return [(source["name"][common:], source) for source in ordered]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of `glassbert corpus report --json`."""
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


def examine(corpus: Corpus, progress: Callable[[int], None] | None = None) -> Health:
    """Measure a corpus and check the measures. `progress` is called with the number of tokens of each block read."""
    if not sum(split.tokens for split in corpus.splits.values()):
        raise TextError(f"the corpus in {corpus.folder} has no tokens: it cannot be checked")
    statistics = CorpusStatistics(corpus)
    statistics.run(progress or (lambda tokens: None))
    characters = statistics.vocabulary.character_counts(statistics.counts)
    kinds = dict.fromkeys(KINDS, 0)
    for character, count in characters.items():
        kinds[character_kind(character)] += count
    top = np.argsort(-statistics.counts, kind="stable")[:TOP_TOKENS]
    health = Health(
        folder=str(corpus.folder),
        splits={
            name: {"documents": split.documents, "sentences": split.sentences, "tokens": split.tokens}
            for name, split in corpus.splits.items()
        },
        sources=source_rows(statistics),
        builder={**corpus.manifest["cleaning"], **corpus.manifest["counts"]},
        measures=measure(statistics, np.array(list(characters.values())), kinds),
        document_lengths=statistics.documents,
        sentence_lengths=statistics.sentences,
        word_lengths=statistics.words,
        token_counts=statistics.counts,
        characters=kinds,
        top_tokens=[
            (corpus.tokenizer.id_to_token(int(id)), int(statistics.counts[id])) for id in top if statistics.counts[id]
        ],
        excerpts={**statistics.excerpts(), "empty_sources": empty_sources(corpus.manifest)},
    )
    health.findings = find_problems(health)
    return health


def find_problems(health: Health) -> list[Finding]:
    """The findings of all checks, most severe first."""
    findings = []
    for check in CHECKS:
        value = health.measures[check.measure]
        level = None if value is None else check.level(value)
        if level:
            evidence = check.evidence.format(value=check.write(value)) + _where(check.measure, health)
            samples = health.excerpts.get(check.samples, [])[: check.show]
            findings.append(Finding(level, check.measure, check.text, evidence, check.remedy, samples))
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def _where(measure: str, health: Health) -> str:
    """A sentence that names the source with more than half of the amount, or ""."""
    rows = [row for row in health.sources if row["tokens"]]
    if len(rows) < 2 or measure not in rows[0]:
        return ""
    amounts = [row[measure] * row["tokens"] for row in rows]
    most = max(range(len(rows)), key=amounts.__getitem__)
    if measure not in ADDITIVE or amounts[most] <= sum(amounts) / 2:
        return ""
    return f" Most of it is in {rows[most]['name']}."
