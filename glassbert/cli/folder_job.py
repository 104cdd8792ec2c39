"""What `predict` and `embed` share for whole folders of files: their options, and running the job here or on Ray."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from glassbert.bulk.storage import MAGIC, is_remote
from glassbert.cli.options import counted
from glassbert.cli.output import print_json
from glassbert.errors import InputError

Workers = Annotated[int | None, counted("Workers on the cluster, of --threads CPUs each. Default: all CPUs.")]
RowsPerPart = Annotated[int, counted("Rows of a file of the output, where that is a folder.", "--rows-per-part")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the output of another job in the folder.")]
PLACES = ("here", "ray")


def check_place(on: str, address: str | None, workers: int | None = None) -> str:
    """The place of --on; options of a cluster without one are an error."""
    if on not in PLACES:
        raise InputError(f"--on must be one of {', '.join(PLACES)}, got {on!r}")
    given = [name for name, value in (("--address", address), ("--workers", workers)) if value is not None]
    if on == "here" and given:
        raise InputError(f"{given[0]} is for a cluster; add --on ray, or remove it")
    return on


def is_folder_job(file: str | None, on: str, workers: int | None, address: str | None) -> bool:
    """Whether the input is a folder of files, or the work is for a cluster."""
    if check_place(on, address, workers) == "ray" and file in (None, "-"):
        raise InputError("--on ray is for files; give a file, a folder, a glob or an address")
    if file in (None, "-"):
        return False
    name = str(file)
    return on == "ray" or is_remote(name) or Path(name).is_dir() or bool(MAGIC.search(name) and not Path(name).exists())


def run_folder_job(
    kind: str,
    model: str,
    given: str,
    output: str | None,
    *,
    on: str,
    address: str | None,
    workers: int | None,
    as_json: bool,
    options: dict[str, Any],
    **settings: Any,
) -> None:
    """Run the job with a progress bar, and say what was written."""
    from glassbert.bulk.job import Executor, here, run_job

    if output is None:
        raise InputError(f"{given}: the output of a folder is a folder; name it with --output")
    executor: Executor = here
    if on == "ray":
        from glassbert.on_ray.cluster import ray_package
        from glassbert.on_ray.pieces import on_cluster

        ray_package()
        executor = on_cluster(address, workers)
    screen = Console(stderr=True)
    with Progress(
        TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=screen, transient=True,
        disable=not screen.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        done = run_job(kind, model, given, output, executor=executor, progress=progress, **settings, **options)
    for note in done.notes:
        screen.print(Text(f"Note: {note}.", style="yellow"), soft_wrap=True)
    if as_json:
        facts = {"folder": done.folder, "rows": done.rows, "parts": done.parts, "rows_made_now": done.made_rows}
        print_json({**facts, "rows_per_second": done.per_second if done.made_rows else None})
        return
    what = f"{done.rows:,} rows in {done.parts:,} parts in {shlex.quote(done.folder)}"
    if not done.made_rows:
        typer.echo(f"{what}: all of them were there already")
        return
    before = done.rows - done.made_rows
    earlier = f"; {before:,} rows are from an earlier run" if before else ""
    typer.echo(f"{what} ({done.per_second:,.0f} rows/s{earlier})")
