"""The display of a run: a live panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from glassbert.training.history import LossForecast

BARS = "▁▂▃▄▅▆▇█"
CURVE = 48  # columns
ANSWERS = 5
PLAIN_INTERVAL = 0.05  # progress between two plain lines


@dataclass
class Status:
    """The current numbers of a run."""

    title: str = ""
    step: int = 0
    progress: float = 0.0
    seconds: float = 0.0
    left: float | None = None
    tokens: int = 0
    loss: float | None = None
    smoothed: float | None = None
    curve: list[float] = field(default_factory=list)
    held_out: list[tuple[float, float]] = field(default_factory=list)  # loss and accuracy of every evaluation
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)  # the same by objective, of the last one
    tokens_per_second: float | None = None
    matmul_share: float | None = None
    gradient_norm: float | None = None
    learning_rate: float | None = None
    sentence: str = ""
    answers: list[tuple[str, float]] = field(default_factory=list)
    history: list[tuple[float, str]] = field(default_factory=list)  # progress and the most probable word
    forecast: LossForecast | None = None
    skipped: int = 0


class Display(Protocol):
    """Shows the status of a run and messages."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: Any) -> None: ...

    def update(self, status: Any, *, last: bool = False) -> None: ...

    def say(self, text: str) -> None: ...


def display_for(
    console: Console | None = None, draw: Callable[[Any], Any] | None = None, line: Callable[[Any], str] | None = None
) -> Display:
    """A live panel if there is a terminal, else plain lines.

    `draw` and `line` make the panel and the line from a status; the defaults are for pretraining.
    """
    console = console or Console(stderr=True)
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveDisplay(console, draw) if live else PlainDisplay(console, line)


class NoDisplay:
    """Shows nothing; for all workers except worker 0, and for tests."""

    def __enter__(self) -> NoDisplay:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def update(self, status: Any, *, last: bool = False) -> None:
        pass

    def say(self, text: str) -> None:
        pass


class PlainDisplay(NoDisplay):
    """Prints a line for every twentieth of the run."""

    def __init__(self, console: Console, line: Callable[[Any], str] | None = None):
        self.console = console
        self._line = line or plain_line
        self._next = 0.0

    def update(self, status: Any, *, last: bool = False) -> None:
        if status.progress >= self._next or last:
            self._next = (int(status.progress / PLAIN_INTERVAL) + 1) * PLAIN_INTERVAL
            self.say(self._line(status))

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveDisplay(NoDisplay):
    """A panel that is redrawn in place, only by `update` and never by a background thread."""

    def __init__(self, console: Console, draw: Callable[[Any], Any] | None = None):
        self.console = console
        self._draw = draw or picture
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.stop()

    def update(self, status: Any, *, last: bool = False) -> None:
        self._live.update(self._draw(status), refresh=True)

    def say(self, text: str) -> None:
        self.console.print(Text(text))


def plain_line(status: Status) -> str:
    """The plain line of a pretraining run."""
    words = [f"{status.progress:4.0%}", f"step {status.step:,}"]
    if status.smoothed is not None:
        words.append(f"loss {status.smoothed:.3f}")
    if status.held_out:
        words.append(f"held-out {status.held_out[-1][0]:.3f}, accuracy {status.held_out[-1][1]:.1%}")
    words += [f"{name} {loss:.3f} ({accuracy:.1%})" for name, (loss, accuracy) in status.parts.items()]
    if status.tokens_per_second:
        words.append(f"{status.tokens_per_second:,.0f} tokens/s")
    if status.answers:
        words.append(f"[MASK] = {status.answers[0][0]} ({status.answers[0][1]:.0%})")
    if status.forecast:
        words.append(f"forecast {status.forecast.low:.2f} to {status.forecast.high:.2f}")
    if status.skipped:
        words.append(f"{status.skipped} steps skipped")
    if status.left is not None:
        words.append(f"{duration(status.left)} left")
    return "  ".join(words)


def progress_rows(status: Any, where: str) -> Table:
    """The first rows of every live panel: progress bar, position (`where`), step and time."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True, min_width=9)
    rows.add_column()
    left = "" if status.left is None else f"   {duration(status.left)} left"
    rows.add_row("progress", ProgressBar(total=1.0, completed=status.progress, width=CURVE))
    rows.add_row("", f"{where}   step {status.step:,}   {duration(status.seconds)} elapsed{left}")
    return rows


def framed(status: Any, *parts: Any) -> Panel:
    """A live panel with its frame, and a line about skipped steps if there are any."""
    if status.skipped:
        parts += (Text(f"{status.skipped} steps were skipped: their gradient was not finite", style="yellow"),)
    title = Text(f" {status.title} ", style="bold")
    return Panel(Group(*parts), title=title, title_align="left", box=box.ROUNDED, border_style="dim", width=78)


def picture(status: Status) -> Panel:
    """The live panel of a pretraining run."""
    rows = progress_rows(status, f"{status.progress:.0%}")
    rows.add_row("loss", _loss(status))
    if status.curve:
        rows.add_row("", Text(sparkline(status.curve, CURVE), style="cyan"))
    rows.add_row("held-out", _held_out(status))
    for name, (loss, accuracy) in status.parts.items():
        rows.add_row("", f"{name} {loss:.3f}   accuracy {accuracy:.1%}")
    if status.forecast is not None:
        low, high = status.forecast.low, status.forecast.high
        rows.add_row("forecast", f"{status.forecast.loss:.2f} at the end, between {low:.2f} and {high:.2f}")
    rows.add_row("speed", _speed(status))
    return framed(status, rows, *(["", _answers(status)] if status.sentence else []))


def _loss(status: Status) -> Text:
    if status.loss is None or status.smoothed is None:
        return Text("–")
    text = Text.assemble((f"{status.smoothed:.3f}", "bold cyan"), f"   now {status.loss:.3f}")
    if status.gradient_norm is not None:
        text.append(f"   gradient norm {status.gradient_norm:.2f}")
    if status.learning_rate is not None:
        text.append(f"   rate {status.learning_rate:.1e}")
    return text


def _held_out(status: Status) -> Text:
    if not status.held_out:
        return Text("–")
    loss, accuracy = status.held_out[-1]
    text = Text.assemble((f"{loss:.3f}", "bold green"), f"   accuracy {accuracy:.1%}")
    if len(status.held_out) > 1:
        text.append(f"   initially {status.held_out[0][0]:.2f}")
    return text


def _speed(status: Status) -> str:
    if not status.tokens_per_second:
        return "–"
    words = f"{status.tokens_per_second:,.0f} tokens/s   {status.tokens / 1e6:,.2f} M tokens"
    if status.matmul_share and status.matmul_share <= 1:  # else other programs slowed the measurement
        words += f"   {status.matmul_share:.0%} of the matmul rate"
    return words


def _answers(status: Status) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=9)
    table.add_column(no_wrap=True)
    table.add_row("sentence", Text(status.sentence, style="italic"))
    for i, (word, chance) in enumerate(status.answers[:ANSWERS]):
        bar = Text("█" * round(24 * chance), style="green" if i == 0 else "dim green")
        table.add_row("", Text.assemble((f"{word:<16.16}", "bold" if i == 0 else ""), f"{chance:6.1%}  ", bar))
    path = distinct_words(status.history)
    if len(path) > 1:
        table.add_row("so far", Text(" → ".join(path[-6:]), style="dim", overflow="ellipsis"))
    return table


def distinct_words(history: list[tuple[float, str]]) -> list[str]:
    """The most probable words in order, without repetitions of the previous word."""
    words = [word for _, word in history]
    return [word for i, word in enumerate(words) if i == 0 or words[i - 1] != word]


def sparkline(values: list[float], width: int) -> str:
    """A curve as one line of text with at most `width` columns, each the mean of its part of the values."""
    columns = min(width, len(values))
    edges = [len(values) * i // columns for i in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    spread = (high - low) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int((mean - low) / spread * len(BARS)))] for mean in means)


def duration(seconds: float) -> str:
    """Seconds as minutes or hours: 95 as 1:35, 3,700 as 1:01:40."""
    rounded = round(seconds)
    hours, minutes = divmod(rounded // 60, 60)
    return f"{hours}:{minutes:02d}:{rounded % 60:02d}" if hours else f"{minutes}:{rounded % 60:02d}"
