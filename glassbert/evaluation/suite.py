"""Suites: functions that measure a model, registered by a decorator, and their options and results.

    from glassbert.evaluation import SuiteResult, estimate, mean, suite

    @suite("length", title="Length of sentences")
    def length(subject, options):
        sentences = options.file("list of sentences", "sentences*.txt").read_text().splitlines()
        pieces = [len(encoding) for encoding in subject.tokenizer.encode_batch(sentences)]
        return SuiteResult(rows=[estimate("tokens a sentence", mean, pieces, higher_is_better=None)])

For a single number, put `@measure("vocabulary used")` on a function that returns it; all such numbers form the suite
"own". A suite that does not apply to a model raises `DoesNotApply`; the report shows the reason.
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
PARTS = 10_000  # in which the progress of a suite is counted


class DoesNotApply(GlassBertError):
    """The suite cannot run on this subject or this data; the message is the reason."""


@dataclass(frozen=True)
class Table:
    """A table of texts, lists or checks in the report. `folded` tables are collapsed."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure for the report. `draw` is called only when the page is written."""

    draw: Callable[[], Figure]
    caption: str


@dataclass
class SuiteResult:
    """The result of a suite. Measures with a `group` are breakdowns; `notes` say what was skipped or sampled."""

    name: str = ""
    title: str = ""
    rows: list[Measure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Picture] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    marks: dict[str, dict[str, float]] = field(default_factory=dict)  # by group: reference lines of its figure
    skipped_because: str = ""
    failed: bool = False  # it was skipped because of an error
    seconds: float = 0.0

    def __getitem__(self, name: str) -> Measure:
        """The measure with this name; "group/name" also works."""
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
        """The measures shown at the top of the report."""
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


def _ignore(done: int, total: int, what: str = "") -> None:
    pass


@dataclass(frozen=True)
class Options:
    """Options of all suites.

    quick       use small samples; the notes of a result give the size of every sample
    thorough    use all data, three seeds and more probes
    data        a folder with evaluation data, searched with the file patterns of the suites
    text        held-out text: a corpus folder or a text file; without it the corpus of the run
    pairs       minimal pairs: a file or a folder
    progress    called with (done, total, what) while a suite runs
    """

    quick: bool = False
    thorough: bool = False
    data: Path | None = None
    text: Path | None = None
    pairs: Path | None = None
    seed: int = 0
    resamples: int = RESAMPLES
    progress: Callable[..., None] = _ignore

    def part(self, begin: float, end: float) -> Options:
        """The same options for a part of a suite, whose progress goes from share `begin` to share `end` of it."""

        def progress(done: float, total: float, what: str = "") -> None:
            share = begin + (end - begin) * (min(done / total, 1.0) if total else 0.0)
            self.progress(round(PARTS * share), PARTS, what)

        return replace(self, progress=progress)

    def files(self, *patterns: str) -> list[Path]:
        """All files below the data folder that match one of the patterns, sorted."""
        if self.data is None:
            return []
        return sorted({p for pattern in patterns for p in self.data.rglob(pattern) if p.is_file()})

    def file(self, what: str, *patterns: str) -> Path:
        """The first file that matches; raises `DoesNotApply` if there is none. `what` names the data in the message."""
        found = self.files(*patterns)
        if not found:
            wanted = " or ".join(patterns)
            where = f"{self.data} has no file {wanted}" if self.data else f"name a folder with {wanted} by --data"
            raise DoesNotApply(f"there is no {what}: {where}")
        return found[0]

    def limit(self, usual: int | None, quick: int, thorough: int | None = None) -> int | None:
        """The sample size of a usual, a quick or a thorough evaluation; None means all."""
        return quick if self.quick else thorough if self.thorough else usual

    def sample(self, count: int, limit: int | None, purpose: str) -> np.ndarray:
        """At most `limit` indices below `count`, ascending; the same for every model."""
        if limit is None or count <= limit:
            return np.arange(count)
        return np.sort(permutation(self.seed, purpose, 0, count)[:limit].astype(np.int64))


Function = Callable[["Subject", Options], Any]


@dataclass(frozen=True)
class Suite:
    """A registered suite.

    quick    whether it is part of a quick evaluation
    effort   its usual share of the time of an evaluation, relative to the others; for the remaining time
    """

    name: str
    title: str
    function: Function
    quick: bool = True
    effort: float = 1.0

    def __call__(self, subject: Subject, options: Options | None = None) -> SuiteResult:
        """Run the suite. `DoesNotApply` becomes a skipped result."""
        try:
            found = self.function(subject, options or Options())
        except DoesNotApply as reason:
            found = SuiteResult(skipped_because=str(reason))
        if isinstance(found, list):
            found = SuiteResult(rows=found)
        if not isinstance(found, SuiteResult) or not all(isinstance(row, Measure) for row in found.rows):
            raise InputError(
                f"the suite {self.name!r} must return a SuiteResult or a list of Measure, got {type(found).__name__}"
            )
        return replace(found, name=self.name, title=found.title or self.title)


SUITES: dict[str, Suite] = {}
MEASURES: dict[str, tuple[Function, dict[str, Any]]] = {}


def suite(name: str, *, title: str, quick: bool = True, effort: float = 1.0) -> Callable[[Function], Suite]:
    """Decorator that registers a function `(subject, options) -> SuiteResult`."""
    _check_name(name, SUITES, "suite")

    def register(function: Function) -> Suite:
        SUITES[name] = Suite(name, title, function, quick, effort)
        return SUITES[name]

    return register


def measure(
    name: str, *, unit: str = "", higher_is_better: bool | None = True, reference: str = ""
) -> Callable[[Function], Function]:
    """Decorator that registers a function `(subject, options) -> number` (or `Measure`) in the suite "own"."""
    if name in MEASURES:
        raise ConfigError(f"there is already a measure {name!r}; choose another name")

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
        except (Undefined, DoesNotApply) as reason:
            rows.append(undefined(name, str(reason), **fields))
    return rows


def get_suites(names: Sequence[str] | None = None, quick: bool = False) -> list[Suite]:
    """Suites by name, in the order of the report; without names all suites of a quick or of a full evaluation."""
    if not names:
        return [one for one in SUITES.values() if one.quick or not quick]
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        raise ConfigError(f"there is no suite {unknown[0]!r}; there are {', '.join(SUITES)}")
    return [one for one in SUITES.values() if one.name in names]


def _check_name(name: str, known: dict[str, Any], kind: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ConfigError(f"the name of a {kind} must be one lower-case word such as 'grammar', got {name!r}")
    if name in known:
        raise ConfigError(f"there is already a {kind} {name!r}; choose another name")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
