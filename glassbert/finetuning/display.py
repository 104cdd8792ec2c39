"""Terminal display of a fine-tuning: loss, main metric, speed and remaining time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from glassbert.finetuning.rows import Progress as ProgressCallback
from glassbert.training.display import CURVE, Display, display_for, duration, framed, progress_rows, sparkline


@dataclass
class TuningStatus:
    """The current state of a fine-tuning run, for the display."""

    title: str = ""
    metric: str = ""
    seed: int = 0
    nth: int = 1
    seeds: int = 1
    epochs: int = 1
    step: int = 0
    progress: float = 0.0
    seconds: float = 0.0
    left: float | None = None
    loss: float | None = None
    smoothed: float | None = None
    curve: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)  # of every evaluation
    best: float | None = None
    examples_per_second: float | None = None
    learning_rate: float | None = None
    skipped: int = 0

    @property
    def epoch(self) -> float:
        return self.progress * self.epochs

    def update_loss(self, loss: float, smoothing: float) -> None:
        self.loss = loss
        self.smoothed = loss if self.smoothed is None else smoothing * self.smoothed + (1 - smoothing) * loss


def tuning_display(console: Console | None = None) -> Display:
    return display_for(console, panel, plain_line)


def plain_line(status: TuningStatus) -> str:
    parts = [f"{status.progress:4.0%}", f"epoch {status.epoch:.2f} of {status.epochs}"]
    if status.seeds > 1:
        parts.insert(0, f"seed {status.nth} of {status.seeds}")
    if status.smoothed is not None:
        parts.append(f"loss {status.smoothed:.3f}")
    if status.scores:
        parts.append(f"{status.metric} {status.scores[-1]:.4f}, best {status.best:.4f}")
    if status.examples_per_second:
        parts.append(f"{status.examples_per_second:,.0f} examples/s")
    if status.left is not None:
        parts.append(f"{duration(status.left)} left")
    return "  ".join(parts)


def panel(status: TuningStatus) -> Panel:
    seeds = f"seed {status.nth} of {status.seeds}   " if status.seeds > 1 else ""
    rows = progress_rows(status, f"{seeds}epoch {status.epoch:.2f} of {status.epochs}")
    loss = Text("–")
    if status.loss is not None and status.smoothed is not None:
        loss = Text.assemble((f"{status.smoothed:.3f}", "bold cyan"), f"   now {status.loss:.3f}")
        loss.append(f"   rate {status.learning_rate or 0.0:.1e}")
    rows.add_row("loss", loss)
    if status.curve:
        rows.add_row("", Text(sparkline(status.curve, CURVE), style="cyan"))
    score = Text("–")
    if status.scores:
        score = Text.assemble((f"{status.scores[-1]:.4f}", "bold green"), f"   best {status.best:.4f}   ")
        score.append(sparkline(status.scores, CURVE // 2), style="green")
    rows.add_row(status.metric, score)
    speed = "–" if not status.examples_per_second else f"{status.examples_per_second:,.0f} examples/s"
    rows.add_row("speed", speed)
    return framed(status, rows)


@contextmanager
def progress_bar(text: str, console: Console | None = None) -> Iterator[ProgressCallback]:
    """A progress bar on stderr; silent without a terminal."""
    console = console or Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
