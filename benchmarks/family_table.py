"""The table and the curves of `benchmarks.family`, from the folders of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Table, rounded
from benchmarks.family_exam import PAPERS, read
from benchmarks.family_race import CONTESTANTS, title_of
from glassbert.errors import TrainingError
from glassbert.evaluation.subject import Subject
from glassbert.training.history import History, read_result
from glassbert.training.run_folder import RunFolder
from glassbert.training.settings import BUDGETS

COLUMNS = ["member", "objective", "parameters", "M tokens", "steps", "words: loss", "right", "Zorro", "pos", "SST-2"]
COLOURS = 6  # they repeat then; further lines are dashed
Curve = tuple[list[float], list[float]]  # minutes, values


@dataclass(frozen=True)
class Entry:
    """A finished contestant: its history and what it has done of the exam."""

    name: str
    history: History
    exam: dict[str, Any]

    @property
    def result(self) -> dict[str, Any]:
        assert self.history.result is not None
        return self.history.result

    @property
    def parameters(self) -> int:
        """Of the model that is kept: of a discriminator without its generator."""
        return Subject.open(self.history.run.path, engine="numpy", threads=1).parameters

    def paper(self, name: str, value: str = "right") -> dict[str, float] | None:
        return self.exam.get(name, {}).get(value)

    def curve(self, relative: bool = False) -> Curve:
        """The held-out loss of the last objective over the minutes; `relative`: in units of that before training."""
        lines = [line for line in self.history.kind("evaluation") if isinstance(line.get("loss"), (int, float))]
        values = [list(line["parts"].values())[-1]["loss"] if line.get("parts") else line["loss"] for line in lines]
        unit = values[0] if relative and values else 1.0
        return [line["seconds"] / 60 for line in lines], [value / unit for value in values]


def finished(folder: Path, names: Sequence[str]) -> list[Path]:
    """The folders of the finished runs; raises `TrainingError` if there is none."""
    found = [folder / name for name in names if read_result(RunFolder(folder / name)) is not None]
    if not found:
        raise TrainingError(f"{folder} has no finished run of {', '.join(names)}")
    return found


def entries(folder: Path, names: Sequence[str]) -> list[Entry]:
    return [Entry(run.name, History.read(RunFolder(run)), read(run)) for run in finished(folder, names)]


def table_of(found: Sequence[Entry]) -> Table:
    table = Table(title_for(found), COLUMNS, left=2)
    for one in found:
        loss, right = one.paper("words", "loss"), one.paper("words")
        mark = "" if one.exam.get("words", {}).get("what", "masked") == "masked" else "*"
        table.rows.append(
            [
                title_of(one.name),
                CONTESTANTS[one.name].objective,
                f"{one.parameters:,}",
                f"{one.result['tokens'] / 1e6:.2f}",
                f"{one.result['steps']:,}",
                "–" if loss is None else f"{loss['value']:.3f}{mark}",
                "–" if right is None else f"{right['value']:.1%}{mark}",
                share(one.paper("zorro")),
                share(one.paper("pos")),
                share(one.paper("sst2"), spread=True),
            ]
        )
    table.notes = notes_for(found)
    return table


def title_for(found: Sequence[Entry]) -> str:
    budgets = sorted({_budget(one.history.settings) for one in found})
    threads = {one.history.settings["threads"] for one in found}
    engine = ", ".join(sorted({one.history.settings["engine"] for one in found}))
    each = f", threads: {threads.pop()}" if len(threads) == 1 and None not in threads else ""
    return f"The race of the family: {' or '.join(budgets)} each; engine {engine}{each}"


def _budget(settings: dict[str, Any]) -> str:
    return next(f"{settings[kind]:g} {kind}" for kind in BUDGETS if settings[kind] is not None)


def notes_for(found: Sequence[Entry]) -> list[str]:
    notes = [
        "words: held-out text with the same masks for all, 15 % of the tokens. *: every word from those before it.",
        "pos: a linear probe on all layers. SST-2: fine-tuned, mean of three seeds, lowest to highest. Chance in Zorro "
        "and SST-2: 50 %.",
    ]
    notes += [f"{title_of(one.name)}: {text}." for one in found if (text := CONTESTANTS[one.name].note)]
    reasons: dict[str, list[str]] = {}
    for one in found:
        for name in PAPERS:
            if reason := one.exam.get(name, {}).get("skipped_because"):
                reasons.setdefault(reason, []).append(f"{title_of(one.name)} ({name})")
    return notes + [f"{', '.join(who)}: {reason}." for reason, who in reasons.items()]


def share(value: dict[str, float] | None, spread: bool = False) -> str:
    if value is None:
        return "–"
    text = f"{value['value']:.1%}"
    return f"{text} ({value['low']:.1%} – {value['high']:.1%})" if spread else text


def draw(found: Sequence[Entry], path: Path) -> None:
    """Held-out losses over the minutes: masked words on the left, other objectives beside them."""
    from matplotlib.figure import Figure

    from glassbert.reports import figures

    masked = [one for one in found if CONTESTANTS[one.name].objective == "mlm"]
    other = [one for one in found if one not in masked]
    panels = [
        (masked, False, "Masked words", "held-out loss, nats"),
        (other, True, "Other objectives", "held-out loss / loss before training"),
    ]
    panels = [panel for panel in panels if panel[0]]
    figure = Figure(figsize=(5.6 * len(panels), 4.4), layout="constrained")
    for place, (some, relative, title, label) in enumerate(panels):
        curves = {}
        for number, one in enumerate(some):
            minutes, losses = one.curve(relative)
            curves[title_of(one.name)] = figures.Series(minutes, losses, dashed=number >= COLOURS)
        title = f"{title}: {next(iter(curves))}" if len(curves) == 1 else title  # a single line has no label
        axes = figure.add_subplot(1, len(panels), place + 1)
        figures.lines(curves, xlabel="minutes", ylabel=label, title=title, axes=axes)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def as_dict(one: Entry) -> dict[str, Any]:
    minutes, losses = one.curve()
    return {
        "objective": CONTESTANTS[one.name].objective,
        "parameters": one.parameters,
        "tokens": one.result["tokens"],
        "steps": one.result["steps"],
        "curve": [[rounded(x), rounded(y)] for x, y in zip(minutes, losses, strict=True)],
        "exam": one.exam,
    }
