"""What a learner has done: a small JSON file in the data folder.

    {"version": 1,
     "exercises": {"linear": {"passed": "2026-01-31", "tries": 3, "hints": {"the bias is forgotten": 2}}},
     "lessons": {"1": {"opened": "2026-01-31"}}}

A file that cannot be read is put aside, not overwritten. Where nothing can be written, checking works all the same.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Self

from glassbert.errors import GlassBertError
from glassbert.files import write_json
from glassbert.learn.folders import data_folder
from glassbert.learn.verdict import Verdict

VERSION = 1


@dataclass
class Progress:
    """`problem` says why progress is not kept, if it is not."""

    path: Path | None = None
    exercises: dict[str, dict[str, Any]] = field(default_factory=dict)
    lessons: dict[str, dict[str, Any]] = field(default_factory=dict)
    problem: str = ""

    @classmethod
    def load(cls) -> Self:
        try:
            path = data_folder() / "progress.json"
        except GlassBertError as error:
            return cls(problem=str(error))
        progress = cls(path)
        progress._read()
        return progress

    def _read(self) -> None:
        assert self.path is not None
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["version"] != VERSION:
                raise ValueError(f"version {content['version']}")
            self.exercises = {str(name): {**entry} for name, entry in content["exercises"].items()}
            self.lessons = {str(name): {**entry} for name, entry in content["lessons"].items()}
        except FileNotFoundError:
            pass
        except OSError as error:
            self.problem = f"cannot read {self.path}: {error.strerror}"
        except (ValueError, KeyError, TypeError, AttributeError):
            aside = self.path.with_name(f"{self.path.name}.unreadable")
            try:
                os.replace(self.path, aside)
                self.problem = f"{self.path} could not be read and was put aside as {aside.name}"
            except OSError as error:
                self.problem = f"{self.path} cannot be read, and cannot be moved: {error.strerror}"

    def save(self) -> None:
        if self.path is None:
            return
        try:
            write_json(self.path, {"version": VERSION, "exercises": self.exercises, "lessons": self.lessons})
        except (GlassBertError, OSError) as error:
            self.problem = str(error)

    def remember(self, verdict: Verdict) -> Verdict:
        """Enter a verdict, and give it its next hint."""
        if not verdict.answered:
            return verdict
        entry = self.exercises.setdefault(verdict.exercise, {})
        entry["tries"] = int(entry.get("tries", 0)) + 1
        if verdict.passed:
            entry.setdefault("passed", date.today().isoformat())
            entry.pop("hints", None)
        else:
            hints = entry.setdefault("hints", {})
            topic = verdict.mistake or "unknown"
            verdict = verdict.with_hint(int(hints.get(topic, 0)))
            hints[topic] = int(hints.get(topic, 0)) + 1
        self.save()
        if self.problem:
            verdict = replace(verdict, note=f"{verdict.note} Your progress is not kept: {self.problem}.".strip())
        return verdict

    def saw_solution(self, exercise: str) -> None:
        self.exercises.setdefault(exercise, {})["solution"] = date.today().isoformat()
        self.save()

    def opened(self, lesson: int) -> None:
        self.lessons.setdefault(str(lesson), {})["opened"] = date.today().isoformat()
        self.save()

    def has_passed(self, exercise: str) -> bool:
        return "passed" in self.exercises.get(exercise, {})
