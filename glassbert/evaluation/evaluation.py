"""Run suites on subjects, and the result with its JSON and HTML report."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from glassbert.errors import GlassBertError, InputError
from glassbert.evaluation.comparison import Comparison, compare
from glassbert.evaluation.kept import KeptSuites
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import Options, Suite, SuiteResult, get_suites
from glassbert.files import write_json
from glassbert.training.run_folder import machine_facts, versions

FORMAT, VERSION = "glassbert-evaluation", 1
OnProgress = Callable[[str, str, int, int, str], None]  # subject, suite, done, total, what


def _ignore(subject: str, suite: str, done: int, total: int, what: str) -> None:
    pass


@dataclass
class Evaluation:
    """`results[subject][suite]`; with several subjects also `comparison` with the first."""

    subjects: list[Subject]
    results: dict[str, dict[str, SuiteResult]]
    options: Options
    seconds: float = 0.0
    command: str = ""
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def suites(self) -> list[str]:
        return list(next(iter(self.results.values())))

    @property
    def title(self) -> str:
        names = [subject.name for subject in self.subjects]
        return f"Evaluation of {names[0]}" if len(names) == 1 else "Comparison of " + " and ".join(names)

    @cached_property
    def comparison(self) -> list[Comparison]:
        return compare(list(self.results.items()), self.options)

    @property
    def failed(self) -> list[str]:
        """Suites that raised an error."""
        return [f"{name}: {one.name}" for name, suites in self.results.items() for one in suites.values() if one.failed]

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "made": self.made,
            "command": self.command,
            "seconds": round(self.seconds, 1),
            "quick": self.options.quick,
            "thorough": self.options.thorough,
            "resamples": self.options.resamples,
            "machine": machine_facts(),
            "versions": versions(),
            "subjects": [subject.as_json() for subject in self.subjects],
            "results": {
                name: {suite: one.as_json() for suite, one in suites.items()} for name, suites in self.results.items()
            },
            "comparison": [one.as_json() for one in self.comparison],
        }

    def write(self, folder: str | Path) -> Path:
        """Write FOLDER/evaluation.json and FOLDER/evaluation.html, and return the path of the HTML page."""
        from glassbert.evaluation.page import evaluation_page

        folder = Path(folder)
        page = evaluation_page(self)
        write_json(folder / "evaluation.json", self.as_json())
        return page.write(folder / "evaluation.html")


def evaluate(
    subjects: Sequence[Subject | str | Path],
    suites: Sequence[str | Suite] | None = None,
    *,
    quick: bool = False,
    progress: OnProgress = _ignore,
    options: Options | None = None,
    command: str = "",
    kept: KeptSuites | None = None,
    **more: Any,
) -> Evaluation:
    """Run suites (by name; all by default) on subjects. `more` are fields of `Options`: data, text, ...

    Finished suites are written to `kept`, and those that it has already are not run again.
    """
    opened = _named([one if isinstance(one, Subject) else Subject.open(one) for one in subjects])
    options = replace(options or Options(), quick=quick or bool(options and options.quick), **_paths(more))
    names = [one for one in suites or () if isinstance(one, str)]
    chosen = [one for one in suites or () if isinstance(one, Suite)]
    chosen = [*(get_suites(names, options.quick) if names or not chosen else []), *chosen]
    started = time.perf_counter()
    results: dict[str, dict[str, SuiteResult]] = {}
    for subject in opened:
        results[subject.name] = {one.name: _run_suite(one, subject, options, progress, kept) for one in chosen}
    return Evaluation(opened, results, options, time.perf_counter() - started, command)


def _run_suite(
    one: Suite, subject: Subject, options: Options, progress: OnProgress, kept: KeptSuites | None
) -> SuiteResult:
    """Run one suite, unless it is kept. An error becomes a failed result, so that the other suites still run."""
    finished = kept.find(one, subject, options) if kept is not None else None
    if finished is not None:
        progress(subject.name, one.title, 1, 1, "finished before")
        return finished

    def forward(done: int, total: int, what: str = "") -> None:
        progress(subject.name, one.title, done, total, what)

    progress(subject.name, one.title, 0, 0, "")
    started = time.perf_counter()
    try:
        result = one(subject, replace(options, progress=forward))
    except GlassBertError as error:
        result = SuiteResult(one.name, one.title, skipped_because=str(error), failed=True)
    except Exception as error:  # a suite may be user code
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
        result = SuiteResult(one.name, one.title, skipped_because=f"the suite raised an error: {where}", failed=True)
    result = replace(result, seconds=time.perf_counter() - started)
    if kept is not None:
        kept.keep(one, subject, options, result)
    return result


def _named(subjects: list[Subject]) -> list[Subject]:
    """The subjects with unique names."""
    if not subjects:
        raise InputError("the list of models is empty; give at least one model")
    names: list[str] = []
    for subject in subjects:
        name, number = subject.name, 2
        while name in names:
            name, number = f"{subject.name} ({number})", number + 1
        names.append(name)
    return [replace(subject, name=name) for subject, name in zip(subjects, names, strict=True)]


def _paths(more: dict[str, Any]) -> dict[str, Any]:
    return {key: Path(value) if key in ("data", "text", "pairs") and value else value for key, value in more.items()}
