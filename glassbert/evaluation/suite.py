"""Suites: questions about a model, each a function that a decorator enters into the report.

    from glassbert.evaluation import SuiteResult, estimate, mean, suite

    @suite("length", title="How long are its sentences?")
    def length(subject, options):
        sentences = options.file("list of sentences", "sentences*.txt").read_text().splitlines()
        pieces = [len(encoding) for encoding in subject.tokenizer.encode_batch(sentences)]
        return SuiteResult(rows=[estimate("tokens a sentence", mean, pieces, higher_is_better=None)])

A single number needs less: `@measure("vocabulary used")` over a function that returns it; all such numbers make up the
suite "own". A suite that does not fit a model raises `DoesNotApply`, and the report gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.errors import ConfigError, GlassBertError, InputError
from glassbert.evaluation.measures import RESAMPLES, Measure, undefined
from glassbert.metrics import Undefined
from glassbert.tasks.checks import Finding
from glassbert.text.random_numbers import permutation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from glassbert.evaluation.subject import Subject

OWN = "own"


class DoesNotApply(GlassBertError):
    """The suite cannot be asked of this subject or with this data; the message is the reason."""


@dataclass(frozen=True)
class Table:
    """Things that are no measures: texts, lists, checks. `folded` hides it behind a click."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure that is drawn only if somebody looks; its numbers belong into measures or tables as well."""

    draw: Callable[[], Figure]
    caption: str


@dataclass
class SuiteResult:
    """What a suite found. Measures with a `group` are breakdowns; `notes` say what was left out, sampled or assumed."""

    name: str = ""
    title: str = ""
    rows: list[Measure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Picture] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    marks: dict[str, dict[str, float]] = field(default_factory=dict)  # by group: lines to hold its values against
    skipped_because: str = ""
    failed: bool = False  # it was skipped because it broke
    seconds: float = 0.0

    def __getitem__(self, name: str) -> Measure:
        """The measure of this name, "group/name" for those of a group."""
        for row in self.rows:
            if name in (row.name, f"{row.group}/{row.name}"):
                return row
        raise KeyError(f"{self.name} has no measure {name!r}; there are {', '.join(row.name for row in self.rows)}")

    @property
    def groups(self) -> dict[str, list[Measure]]:
        found: dict[str, list[Measure]] = {}
        for row in self.rows:
            if row.group:
                found.setdefault(row.group, []).append(row)
        return found

    @property
    def main(self) -> list[Measure]:
        return [row for row in self.rows if not row.group]

    @property
    def headlines(self) -> list[Measure]:
        """What stands for the suite at the top of the report."""
        return [row for row in self.main if row.headline] or self.main[:1]

    def as_json(self) -> dict[str, Any]:
        if self.skipped_because:
            return {"title": self.title, "skipped_because": self.skipped_because, "failed": self.failed}
        return {
            "title": self.title,
            "measures": [row.as_json() for row in self.rows],
            "tables": [
                {"title": t.title, "headers": list(t.headers), "rows": [list(map(_plain, row)) for row in t.rows]}
                for t in self.tables
            ],
            "findings": [finding.as_json() for finding in self.findings],
            "notes": self.notes,
            "seconds": round(self.seconds, 2),
        }


def _silent(done: int, total: int, what: str = "") -> None:
    pass


@dataclass(frozen=True)
class Options:
    """What all suites are told.

    quick       samples instead of everything; a suite says in its notes what it took
    data        a folder with evaluation data, searched by the patterns that suites name
    text        held-out text: a corpus folder or a text file; else that of the subject's own run
    pairs       minimal pairs: a file or a folder
    progress    told (done, total, what) while a suite works
    """

    quick: bool = False
    data: Path | None = None
    text: Path | None = None
    pairs: Path | None = None
    seed: int = 0
    resamples: int = RESAMPLES
    progress: Callable[..., None] = _silent

    def files(self, *patterns: str) -> list[Path]:
        """All files below the data folder whose path matches one of the patterns, in order."""
        if self.data is None:
            return []
        return sorted({p for pattern in patterns for p in self.data.rglob(pattern) if p.is_file()})

    def file(self, what: str, *patterns: str) -> Path:
        """The first of them; without one the suite does not apply."""
        found = self.files(*patterns)
        if not found:
            wanted = " or ".join(patterns)
            where = f"{self.data} has no file {wanted}" if self.data else f"give a folder with {wanted} by --data"
            raise DoesNotApply(f"there is no {what}: {where}")
        return found[0]

    def most(self, full: int | None, quick: int) -> int | None:
        """How many of something to take: None is all."""
        return quick if self.quick else full

    def sample(self, count: int, most: int | None, purpose: str) -> np.ndarray:
        """Up to `most` of `count` numbers, ascending; the same ones for every model."""
        if most is None or count <= most:
            return np.arange(count)
        return np.sort(permutation(self.seed, purpose, 0, count)[:most].astype(np.int64))


Function = Callable[["Subject", Options], Any]


@dataclass(frozen=True)
class Suite:
    """A question by its name. `quick` says whether a quick evaluation asks it."""

    name: str
    title: str
    function: Function
    quick: bool = True

    def __call__(self, subject: Subject, options: Options | None = None) -> SuiteResult:
        """Ask the question; what does not apply is told in the result."""
        try:
            found = self.function(subject, options or Options())
        except DoesNotApply as why:
            found = SuiteResult(skipped_because=str(why))
        if isinstance(found, list):
            found = SuiteResult(rows=found)
        if not isinstance(found, SuiteResult) or not all(isinstance(row, Measure) for row in found.rows):
            raise InputError(
                f"the suite {self.name!r} must return a SuiteResult or a list of Measure, got {type(found).__name__}"
            )
        return replace(found, name=self.name, title=found.title or self.title)


SUITES: dict[str, Suite] = {}
MEASURES: dict[str, tuple[Function, dict[str, Any]]] = {}


def suite(name: str, *, title: str, quick: bool = True) -> Callable[[Function], Suite]:
    """Enter a function `(subject, options) -> SuiteResult` into the report."""
    _check_name(name, SUITES, "suite")

    def register(function: Function) -> Suite:
        SUITES[name] = Suite(name, title, function, quick)
        return SUITES[name]

    return register


def measure(
    name: str, *, unit: str = "", higher_is_better: bool | None = True, reference: str = ""
) -> Callable[[Function], Function]:
    """Enter a function `(subject, options) -> number`, or `-> Measure`, as a row of the suite "own"."""
    if name in MEASURES:
        raise ConfigError(f"there is a measure {name!r} already")

    def register(function: Function) -> Function:
        MEASURES[name] = function, {"unit": unit, "higher_is_better": higher_is_better, "reference": reference}
        if OWN not in SUITES:
            suite(OWN, title="Your own measures")(own_measures)
        return function

    return register


def own_measures(subject: Subject, options: Options) -> list[Measure]:
    rows = []
    for name, (function, fields) in MEASURES.items():
        try:
            found = function(subject, options)
            rows.append(found if isinstance(found, Measure) else Measure(name, float(found), **fields))
        except (Undefined, DoesNotApply) as why:
            rows.append(undefined(name, str(why), **fields))
    return rows


def get_suites(names: Sequence[str] | None = None, quick: bool = False) -> list[Suite]:
    """Suites by name, in the order of the report; without names all that a quick, or a whole, evaluation asks."""
    if not names:
        return [one for one in SUITES.values() if one.quick or not quick]
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        raise ConfigError(f"there is no suite {unknown[0]!r}; there are {', '.join(SUITES)}")
    return [one for one in SUITES.values() if one.name in names]


def _check_name(name: str, known: dict[str, Any], kind: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ConfigError(f"a {kind} is called by a small word such as 'grammar', not {name!r}")
    if name in known:
        raise ConfigError(f"there is a {kind} {name!r} already")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
