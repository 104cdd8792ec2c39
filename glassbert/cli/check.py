"""`glassbert check`: check every hand-written gradient, and that deliberately wrong gradients are detected."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from glassbert.cli.options import AsJson, counted
from glassbert.cli.output import print_json
from glassbert.cli.with_option import Extensions
from glassbert.engines.machine import usable_cores
from glassbert.proof.proof import Proof, choose, prove

KINDS = {"op": "Operations", "layer": "Layers", "model": "Models"}


def run(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only cases and mutants whose name contains this (* allowed); repeat it."),
    ] = None,
    with_mutants: Annotated[bool, typer.Option("--mutants/--no-mutants", help="Also test wrong gradients.")] = True,
    every_entry: Annotated[
        bool, typer.Option("--every-entry", help="Measure up to 4,096 entries of every tensor; takes minutes.")
    ] = False,
    workers: Annotated[int | None, counted("Processes. Default: one a core; one on a GPU and with --with.")] = None,
    extensions: Extensions = None,
    as_json: AsJson = False,
) -> None:
    """Check the gradient of every operation, layer and model; then insert wrong ones and check that each is detected.

    Gradients are compared with finite differences in float64, with float32, and with MLX and its autograd if MLX is
    installed. With --with FILE.py only your own parts are checked, and what is missing is named. The exit code is 1 if
    anything fails, and 0 otherwise.
    """
    cases, mutants = choose(only, with_mutants, own_only=bool(extensions))
    screen = Console(stderr=True)
    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    ) as bar:
        task = bar.add_task("", total=len(cases) + len(mutants))
        started = 0

        def on_progress(name: str) -> None:
            nonlocal started
            bar.update(task, description=escape(name), completed=started)
            started += 1

        proof = prove(cases, mutants, every_entry, on_progress, workers or usable_cores())
    if as_json:
        print_json(proof.as_dict())
    else:
        show(Console(), proof)
    if not proof.ok:
        raise typer.Exit(1)


def show(console: Console, proof: Proof) -> None:
    """Print a table of the cases, a table of the mutants and a summary."""
    for kind, title in KINDS.items():
        table = case_table(proof, kind, title)
        if table.row_count:
            console.print(table)
    if proof.verdicts:
        console.print(mutant_table(proof))
    for case in proof.cases:
        if not case.ok:
            console.print(Text.assemble((f"{case.name}: ", "bold red"), case.reason))
    console.print(summary(proof))


def case_table(proof: Proof, kind: str, title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", pad_edge=False, box=None)
    table.add_column("case", ratio=1)
    for heading in ("float64", "float32", *(("MLX", "autograd") if proof.mlx else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for case in proof.cases:
        if case.kind == kind:
            numbers = [case.error, case.float32, *((case.mlx, case.mlx_autograd) if proof.mlx else ())]
            verdict = Text("ok", "green") if case.ok else Text("WRONG", "bold red")
            table.add_row(Text(case.name), *map(number, numbers), verdict)
    return table


def mutant_table(proof: Proof) -> Table:
    table = Table(title="Inserted wrong gradients", title_justify="left", title_style="bold", pad_edge=False, box=None)
    table.add_column("mistake", ratio=3)
    table.add_column("caught by", ratio=2)
    table.add_column("", no_wrap=True)
    for verdict in proof.verdicts:
        if verdict.harmless:
            word = "FLAGGED" if verdict.caught else "not flagged"
        else:
            word = "caught" if verdict.caught else "SURVIVED"
        nothing = "nothing, as expected" if verdict.ok else "nothing"
        table.add_row(
            Text(verdict.name), Text(verdict.by or nothing), Text(word, "green" if verdict.ok else "bold red")
        )
    return table


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0e}"


def summary(proof: Proof) -> Text:
    """The result in one line."""
    right = sum(case.ok for case in proof.cases)
    words = [f"{right} of {len(proof.cases)} cases right"] if proof.cases else []
    if right:
        words.append(f"largest float64 error {max(case.error for case in proof.cases if case.ok):.0e}")
    if proof.mutants:
        words.append(f"{sum(v.caught for v in proof.mutants)} of {len(proof.mutants)} wrong gradients caught")
    if proof.controls:
        flagged = sum(v.caught for v in proof.controls)
        words.append(f"{flagged or 'none'} of {len(proof.controls)} correct gradients written differently flagged")
    words.append(f"MLX {proof.mlx}" if proof.mlx else "MLX not installed")
    words.append(f"{proof.seconds:.0f} s")
    return Text(
        "\n" + ("ok: " if proof.ok else "FAILED: ") + ", ".join(words), "bold green" if proof.ok else "bold red"
    )
