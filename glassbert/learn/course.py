"""The course: six phases, 18 lessons. Opening a lesson copies it into the user's folder; exporting writes them all."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glassbert.errors import InputError, needs
from glassbert.files import atomic_write, explain_write_errors
from glassbert.learn.exercise import exercises
from glassbert.learn.folders import data_folder
from glassbert.learn.progress import Progress

PHASES = (
    "Building blocks",
    "Attention",
    "The whole model",
    "Training",
    "Evaluation",
    "Mastery",
)
FOLDER = Path(__file__).parent / "lessons"
FORMATS = {"ipynb": ["--include-outputs"], "html": ["--no-include-code"]}  # and the options of marimo for them


@dataclass(frozen=True)
class Lesson:
    """`phase` counts from 1; `minutes` is how long the lesson takes with its exercises. Open lessons have no end."""

    number: int
    title: str
    phase: int
    minutes: int
    file: str

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    @property
    def is_open(self) -> bool:
        return self.phase == len(PHASES)

    @property
    def exercises(self) -> list[str]:
        return [name for name, exercise in exercises().items() if exercise.lesson == self.number]


LESSONS = tuple(
    Lesson(number, title, phase, minutes, f"lesson_{number:02}_{file}.py")
    for number, (phase, minutes, file, title) in enumerate(
        (
            (1, 40, "vectors", "Words are vectors, and a linear map mixes them"),
            (1, 30, "activations", "ReLU and GELU: why a curve is needed"),
            (1, 45, "layer_norm", "Layer norm, and one forward pass"),
            (2, 40, "scores", "Scores, scaling and softmax"),
            (2, 50, "heads", "Heads and masks"),
            (2, 40, "patterns", "What the heads of a trained model look at"),
            (3, 40, "block", "Residuals and the block"),
            (3, 45, "stack", "The stack: parameters, memory, a forward pass by hand"),
            (4, 50, "masking", "Masking and cross-entropy"),
            (4, 60, "chain_rule", "The chain rule, and the easy backwards"),
            (4, 75, "backward", "Softmax, layer norm and attention backwards; the gradient check"),
            (4, 50, "adamw", "AdamW and schedules"),
            (4, 50, "training", "The loop: overfit one batch, then train a Mini"),
            (5, 45, "probes", "Perplexity, probes and their controls"),
            (5, 50, "finetuning", "Fine-tuning, calibration, and what a head does"),
            (6, 60, "rotary", "RoPE and ModernBERT"),
            (6, 60, "family", "The family, and scaling laws"),
            (6, 90, "experiment", "The fast kernels, and an experiment of your own"),
        ),
        start=1,
    )
)


def get_lesson(number: int | str) -> Lesson:
    for lesson in LESSONS:
        if str(number) == str(lesson.number):
            return lesson
    listed = "; ".join(f"{lesson.number} {lesson.title}" for lesson in LESSONS)
    raise InputError(f"there is no lesson {number}. The lessons: {listed}")


def lesson_folder() -> Path:
    """Where a user's own copies of the lessons are."""
    return data_folder() / "lessons"


def own_copy(lesson: Lesson, folder: Path | None = None) -> tuple[Path, bool]:
    """The user's copy of a lesson, and whether it was made now. A copy that is there is never overwritten."""
    path = (folder or lesson_folder()) / lesson.file
    if path.exists():
        return path, False
    with atomic_write(path) as file:
        file.write(lesson.path.read_text(encoding="utf-8"))
    return path, True


def has_marimo() -> bool:
    from importlib.util import find_spec

    return find_spec("marimo") is not None


NO_MARIMO = needs("a lesson", "marimo")


def open_command(path: Path, port: int | None, browser: bool, token: bool = True) -> list[str]:
    """The command that opens a notebook in the browser.

    The server runs code, so its address holds a token that other users of the machine and other pages do not know.
    """
    options = [*(["--port", str(port)] if port else []), *([] if browser else ["--headless"])]
    options += [] if token else ["--no-token"]
    return [sys.executable, "-m", "marimo", "edit", str(path), *options, "--no-sandbox", "--skip-update-check"]


def open_environment() -> dict[str, str]:
    """Cells of our own lessons run when the notebook opens, not after a click on each."""
    return {**os.environ, "_MARIMO_CONFIG_OVERLOAD_RUNTIME_AUTO_INSTANTIATE": "true"}


def can_open_browser() -> bool:
    """Whether a browser can be opened from here: there is one, and a screen."""
    import webbrowser

    if sys.platform.startswith("linux") and not any(
        os.environ.get(v) for v in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    ):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def lesson_state(lesson: Lesson, progress: Progress) -> str:
    """What has been done of a lesson, in words."""
    names = lesson.exercises
    passed = sum(progress.has_passed(name) for name in names)
    if names and passed == len(names):
        return "done"
    if passed:
        return f"{passed} of {len(names)} exercises"
    return "opened" if str(lesson.number) in progress.lessons else ""


def export(folder: Path, kind: str, on_progress: Callable[[str], object] = lambda name: None) -> list[Path]:
    """Write every lesson as a Jupyter notebook ("ipynb") or as a static page ("html"), with its results.

    An export has a progress file of its own: it does not count as the user's.
    """
    if kind not in FORMATS:
        raise InputError(f"lessons are exported as {' or '.join(FORMATS)}, not as {kind!r}")
    if not has_marimo():
        raise InputError(NO_MARIMO)
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for lesson in LESSONS:
        on_progress(lesson.title)
        written.append(export_lesson(lesson, folder, kind))
    return written


def export_lesson(lesson: Lesson, folder: Path, kind: str) -> Path:
    """Run one lesson and write it with its results."""
    target = folder / f"{lesson.path.stem}.{kind}"
    part = target.with_name(f".{target.name}")
    command = [sys.executable, "-m", "marimo", "-q", "-y", "export", kind, str(lesson.path), "-o", str(part)]
    command += FORMATS[kind]
    package = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory() as data:
        environment = {**os.environ, "PYTHONPATH": paths, "XDG_DATA_HOME": data}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    if done.returncode or not part.is_file():
        part.unlink(missing_ok=True)
        raise InputError(f"lesson {lesson.number} could not be exported: {(done.stderr or done.stdout).strip()[-500:]}")
    os.replace(part, target)
    return target
