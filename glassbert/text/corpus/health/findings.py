"""Findings: the measures that lie beyond their limits, in sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from glassbert.text.corpus.health.card import Health
from glassbert.text.corpus.health.checks import CHECKS, LEVELS

# Measures of which a source has its part, so that one can be named.
ADDS_UP = ("unknown_share", "noise_share", "few_letters_share", "giant_share", "markup_per_1000_tokens")


@dataclass(frozen=True)
class Finding:
    """Something the reader should know, with the evidence and the remedy."""

    level: str
    name: str
    text: str
    evidence: str
    remedy: str
    samples: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def judge(health: Health) -> list[Finding]:
    """The findings, gravest first."""
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
    """The source that has most of it, where one has more than half."""
    rows = [row for row in health.sources if row["tokens"]]
    if len(rows) < 2 or measure not in rows[0]:
        return ""
    amounts = [row[measure] * row["tokens"] for row in rows]
    most = max(range(len(rows)), key=amounts.__getitem__)
    if measure not in ADDS_UP or amounts[most] <= sum(amounts) / 2:
        return ""
    return f" Most of it is in {rows[most]['name']}."
