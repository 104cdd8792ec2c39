"""Checks: a name, what was measured, and where it failed what is the matter, why, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glassbert.tasks.checks import Finding


@dataclass(frozen=True)
class Check:
    """One thing that must hold. `finding` is there if it does not, `skipped` says why nobody could tell."""

    name: str
    measured: str = ""
    finding: Finding | None = None
    skipped: str = ""

    @property
    def passed(self) -> bool:
        return self.finding is None and not self.skipped

    @property
    def verdict(self) -> str:
        if self.skipped:
            return "not asked"
        return "ok" if self.finding is None else self.finding.severity


def failed(
    name: str,
    problem: str,
    evidence: str,
    cause: str,
    remedy: str,
    severity: Literal["problem", "warning", "note"] = "problem",
) -> Check:
    return Check(name, evidence, Finding(severity, problem, evidence, f"Likely cause: {cause} Remedy: {remedy}"))
