"""`glassbert check`: every hand-written gradient before the referee, and every planted mistake caught."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from glassbert.proof.proof import Proof, choose, prove

KINDS = {"op": "Operations", "layer": "Layers", "model": "Models"}


def run(
    only: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only cases and mutants whose name contains this (* allowed).")
    ] = None,
    with_mutants: Annotated[bool, typer.Option("--mutants/--no-mutants", help="Plant wrong gradients as well.")] = True,
    every_entry: Annotated[
        bool, typer.Option("--every-entry", help="Measure up to 4,096 entries of every tensor; takes minutes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Check the gradient of every operation, layer and model, then plant wrong ones and see that each is caught.

    Gradients are held against finite differences in float64, against float32, and against MLX and its autograd where
    MLX is installed. The exit code is 1 if anything fails, and 0 otherwise.
    """
    cases, mutants = choose(only, with_mutants)
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
        begun = 0

        def progress(name: str) -> None:
            nonlocal begun
            bar.update(task, description=name, completed=begun)
            begun += 1

        proof = prove(cases, mutants, every_entry, progress)
    if as_json:
        typer.echo(json.dumps(proof.as_dict(), indent=2, ensure_ascii=False))
    else:
        show(Console(), proof)
    if not proof.ok:
        raise typer.Exit(1)


def show(console: Console, proof: Proof) -> None:
    """Print a table of the cases, a table of the mutants and a sentence that sums up."""
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
    table = Table(title="Wrong gradients, planted", title_justify="left", title_style="bold", pad_edge=False, box=None)
    table.add_column("mistake", ratio=3)
    table.add_column("caught by", ratio=2)
    table.add_column("", no_wrap=True)
    for verdict in proof.verdicts:
        if verdict.harmless:
            word = "FLAGGED" if verdict.caught else "not flagged"
        else:
            word = "caught" if verdict.caught else "SURVIVED"
        nobody = "nobody, rightly" if verdict.ok else "nobody"
        table.add_row(Text(verdict.name), Text(verdict.by or nobody), Text(word, "green" if verdict.ok else "bold red"))
    return table


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0e}"


def summary(proof: Proof) -> Text:
    """The result in a few words."""
    right = sum(case.ok for case in proof.cases)
    words = [f"{right} of {len(proof.cases)} cases right"] if proof.cases else []
    if right:
        words.append(f"largest float64 error {max(case.error for case in proof.cases if case.ok):.0e}")
    if proof.mutants:
        words.append(f"{sum(v.caught for v in proof.mutants)} of {len(proof.mutants)} wrong gradients caught")
    if proof.controls:
        flagged = sum(v.caught for v in proof.controls)
        words.append(f"{flagged or 'none'} of {len(proof.controls)} right ones in disguise flagged")
    words.append(f"MLX {proof.mlx}" if proof.mlx else "MLX not installed")
    words.append(f"{proof.seconds:.0f} s")
    return Text(
        "\n" + ("ok: " if proof.ok else "FAILED: ") + ", ".join(words), "bold green" if proof.ok else "bold red"
    )
