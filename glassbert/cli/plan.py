"""`glassbert plan`: memory, time and the loss to expect of a run, before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.cli.options import AsJson
from glassbert.cli.output import print_json
from glassbert.cli.run_options import with_settings
from glassbert.cli.with_option import Extensions
from glassbert.models.describe import mebibytes
from glassbert.reports import short
from glassbert.training.display import duration
from glassbert.training.history import History
from glassbert.training.planning.expectation import Expectation
from glassbert.training.planning.plan import Plan, plan
from glassbert.training.planning.table import add_rows, row_of, user_table
from glassbert.training.run_folder import RunFolder
from glassbert.training.settings import TrainingSettings, read_toml


def _run(
    settings_file: Annotated[
        Path | None, typer.Option("--settings", help="A TOML file with any of the fields below; flags override it.")
    ] = None,
    sizes: Annotated[bool, typer.Option(help="Compare with the sizes around this one.")] = True,
    add: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Add this finished run to your table of reference runs (may be repeated)."),
    ] = None,
    as_json: AsJson = False,
    extensions: Extensions = None,
    **settings: Any,
) -> None:
    """Plan a run: what fits into memory, how long it takes on this machine, and what held-out loss to expect.

    Takes the options of `pretrain`. A few steps are timed; the loss comes from a table of reference runs, with an
    interval of 90 %. `glassbert scale` adds its runs to your own table, `--add RUN` any finished run.

    glassbert plan --preset larger --minutes 60
    glassbert plan --size 2 --corpus mycorpus/ --tokens 20M
    """
    if add:
        new = add_rows(row_of(History.read(RunFolder.existing(run))) for run in add)
        Console(highlight=False, soft_wrap=True).print(Text(f"{new} of {len(add)} runs added to {user_table()}"))
        return
    screen = Console(stderr=True, highlight=False)
    given = {**(read_toml(settings_file) if settings_file else {}), **settings}
    with screen.status("Planning") as status:
        found = plan(TrainingSettings.from_dict(given), sizes=sizes, on_message=lambda text: status.update(Text(text)))
    if as_json:
        print_json(found.as_json())
    else:
        show_plan(found, Console(highlight=False, soft_wrap=True))


def show_plan(found: Plan, console: Console) -> None:
    """Print the run, its memory, its expected loss, and the sizes around it."""
    settings = found.settings
    console.print(
        Text(
            f"{settings.preset if settings.size is None else f'size {settings.size:g}'}: {found.parameters:,} "
            f"parameters, {found.blocks:,} of them in blocks; {found.engine} {settings.precision}, "
            f"{settings.batch} rows of {settings.length} tokens a step",
            "bold",
        )
    )
    facts = [
        ("Run", f"{duration(found.seconds)}: {found.steps:,} steps, {short(found.tokens)} tokens"),
        ("Step", f"{found.step_seconds * 1000:,.0f} ms, {short(found.tokens_per_second)} tokens/s"),
    ]
    if found.epoch_tokens and found.epoch_seconds:
        passes = found.tokens / found.epoch_tokens
        facts.append(("Epoch", f"{duration(found.epoch_seconds)} ({short(found.epoch_tokens)} tokens); the run reads "
                      f"{short(float(f'{passes:.2g}'))} of them"))  # fmt: skip
    facts.append(("Besides", f"{duration(found.before)} before the first step, {duration(found.ending)} at the end"))
    machine = f" of {mebibytes(found.machine_memory)}" if found.machine_memory else ""
    facts.append(("Memory", f"{mebibytes(found.bytes)}{machine}"))
    if found.expectation is not None:
        facts.append(("Loss", f"{loss_text(found.expectation)}  (held-out, {found.expectation.level:.0%} interval)"))
        facts.append(("Accuracy", accuracy_text(found.expectation)))
    else:
        facts.append(("Loss", f"not expected: {found.reason}"))
    for name, text in facts:
        console.print(Text.assemble((f"{name:<9}", "bold"), text))
    _show_memory(found, console)
    _show_sizes(found, console)
    for note in (*found.notes, *(found.expectation.notes if found.expectation else ())):
        console.print(Text(note, "dim"))


def loss_text(expectation: Expectation) -> str:
    middle, low, high = expectation.loss
    return f"{middle:.2f}, between {low:.2f} and {high:.2f}"


def accuracy_text(expectation: Expectation) -> str:
    middle, low, high = expectation.accuracy
    return f"{middle:.0%} of masked words, between {low:.0%} and {high:.0%}"


def _show_memory(found: Plan, console: Console) -> None:
    table = _table("rows at a time", "memory", "with checkpointing", "")
    for one in found.memory:
        fits = "" if found.machine_memory is None else "fits" if one.bytes < found.machine_memory else "too large"
        if fits == "too large" and one.with_checkpointing < (found.machine_memory or 0):
            fits = "fits with --gradient-checkpointing"
        table.add_row(str(one.rows), mebibytes(one.bytes), mebibytes(one.with_checkpointing), fits)
    console.print(table)


def _show_sizes(found: Plan, console: Console) -> None:
    best = found.best
    if best is None or best.expectation is None:
        return
    table = _table("size", "shape", "parameters", "tokens", "time", "expected loss", "")
    for one in found.sizes:
        expected = "too few steps"
        if one.expectation is not None:
            expected = "{:.2f} ({:.2f} to {:.2f})".format(*one.expectation.loss)
        table.add_row(
            f"{one.size:g}", f"{one.layers} × {one.width}", short(one.parameters), short(one.tokens),
            f"{'' if one.measured else '≈ '}{duration(one.seconds)}", expected, "best" if one is best else "",
            style="bold" if one is best else "",
        )  # fmt: skip
    console.print(table)
    console.print(Text(f"Best for this budget: --size {best.size:g}, loss {best.expectation.loss.middle:.2f}.", "bold"))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    return table


run = with_settings(_run)
