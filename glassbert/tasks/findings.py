"""Something about the data that the user should know: what, how we know, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["problem", "warning", "note"]
ORDER: tuple[Severity, ...] = ("problem", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """A problem spoils the result, a warning may, a note is worth reading."""

    severity: Severity
    problem: str
    evidence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.problem} {self.evidence} {self.remedy}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def gravest_first(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: ORDER.index(finding.severity))
