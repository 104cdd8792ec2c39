"""A study in a terminal: the plan before it starts, the points and the law when it ends."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.evaluation.scaling.outcome import Cell, Outcome
from glassbert.evaluation.scaling.study import Study
from glassbert.evaluation.scaling.wording import check_sentence, law_sentences, prediction_sentence
from glassbert.reports import short
from glassbert.training.display import duration


def show_plan(console: Console, study: Study) -> None:
    """What will be trained, and how long that is expected to take."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("size", "layers × width", "blocks", "all", "tokens", "seeds", "minutes"):
        table.add_column(name, justify="left" if name == "layers × width" else "right", no_wrap=True)
    points = [*study.points, *study.checks]
    for size, tokens in dict.fromkeys((point.size, point.tokens) for point in points):
        same = [point for point in points if (point.size, point.tokens) == (size, tokens)]
        shape = study.shapes[size]
        expected = "" if study.pace is None else f"{study.pace.total(same) / 60:.1f}"
        note = " (to check)" if size == study.plan.next_size else ""
        table.add_row(f"{size:g}{note}", str(shape), short(shape.encoder), short(shape.all), short(tokens),
                      str(len(same)), expected)  # fmt: skip
    console.print(table)
    if study.pace is not None:
        total = study.pace.total(points)
        console.print(Text(f"{len(points)} runs, about {duration(total)} on this machine as it is now: {study.folder}"))


def show_outcome(console: Console, outcome: Outcome) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("size", "layers × width", "blocks", "all", "tokens", "held-out loss", "law", "time"):
        table.add_column(name, justify="left" if name == "layers × width" else "right", no_wrap=True)
    for cell in outcome.cells:
        table.add_row(*_cells(outcome, cell))
    console.print(table)
    for sentence in law_sentences(outcome):
        console.print(Text(sentence, "yellow" if outcome.law is None else ""))
    if outcome.law is not None:
        console.print(Text(prediction_sentence(outcome), "bold"))
    if outcome.checks:
        console.print(Text(check_sentence(outcome), "bold green" if outcome.verdict == "inside" else "bold yellow"))
    for caveat in outcome.caveats():
        console.print(Text(caveat, "dim"))


def _cells(outcome: Outcome, cell: Cell) -> list[str]:
    law = outcome.law
    spread = f" ± {max(cell.losses) / 2 - min(cell.losses) / 2:.3f}" if len(cell.runs) > 1 else ""
    at = "–" if law is None else f"{law.at(outcome.place(cell.shape, cell.tokens))[0]:.3f}"
    seconds = sum(run.seconds for run in cell.runs)
    return [f"{cell.shape.size:g}", str(cell.shape), short(cell.shape.encoder), short(cell.shape.all),
            short(cell.tokens), f"{cell.loss:.3f}{spread}", at, duration(seconds)]  # fmt: skip
