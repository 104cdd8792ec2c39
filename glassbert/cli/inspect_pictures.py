"""The pictures of `glassbert inspect`: what to read, whom to compare with, and a bar while it lasts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from glassbert.insight import Opened, Scene, draw_pictures, get_insights, open_model, read_texts, untrained
from glassbert.insight.pictures import Drawn
from glassbert.training.settings import MASK_SENTENCE

UNTRAINED = "untrained"


def make_pictures(
    opened: Opened, folder: Path, text: str, on: Path | None, against: str | None, only: Sequence[str], most: int,
    engine: str,
) -> list[Drawn]:  # fmt: skip
    """Draw everything, or only what was named, into a folder."""
    from glassbert.tasks.conll import read_conllu

    insights = get_insights(only)
    models = [opened, *_other(opened, against, engine)]
    texts = [] if on is None else read_texts(on, most)
    annotated = read_conllu(on) if on is not None and ".conllu" in on.suffixes else None
    with Bar("", len(insights)) as bar:
        scene = Scene(models, texts, annotated, text or _sentence(opened), bar.pulse)
        return draw_pictures(scene, folder, insights, began=bar.begin)


def _other(opened: Opened, against: str | None, engine: str) -> list[Opened]:
    if against is None:
        return []
    other = untrained(opened) if against == UNTRAINED else open_model(against, engine)
    return [dataclasses.replace(other, name=f"{other.name} (2)") if other.name == opened.name else other]


def _sentence(opened: Opened) -> str:
    """The sentence that a run was asked again and again, or the usual one."""
    settings = {} if opened.run is None else opened.run.read_settings()["settings"]
    return settings.get("sentence") or MASK_SENTENCE


def show_pictures(console: Console, drawn: Sequence[Drawn]) -> None:
    for one in drawn:
        state = Text("drawn", "green") if one.view else Text(f"left out: {one.skipped_because}", "yellow")
        console.print(Text.assemble((f"{one.insight.name:11}", "bold"), state), soft_wrap=True)


class Bar:
    """A progress bar on the error stream, if that is a screen: so many parts, and passes within a part."""

    def __init__(self, name: str, parts: int):
        screen = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:11}"), BarColumn(), TextColumn("{task.fields[passes]}"), TimeElapsedColumn(),
            console=screen, transient=True, disable=not screen.is_terminal,
        )  # fmt: skip
        self._task = self._progress.add_task(name, total=parts, passes="")
        self._begun = self._passes = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, name: str) -> None:
        """The next part, by its name."""
        self._progress.update(self._task, description=name, completed=self._begun, passes="")
        self._begun, self._passes = self._begun + 1, 0

    def pulse(self) -> None:
        """One more pass within the part."""
        self._passes += 1
        self._progress.update(self._task, passes=f"{self._passes} passes")

    def tick(self) -> None:
        """One more part is done."""
        self._progress.advance(self._task)
