"""`glassbert verify`: compare the files of a run, a corpus or a model with their checksums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from glassbert.errors import GlassBertError
from glassbert.training.verification import Finding, accept_changes, verify_files


def run(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of a run, a corpus or a model.")],
    accept: Annotated[
        bool, typer.Option("--accept", help="Take the files as they are now: write their checksums again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare every file of a run, a corpus or a model with its checksum. Exit status 1 if one differs.

    Checkpoints, models and corpora carry checksums, which are also compared when they are loaded; `--no-verify` before
    or after any command leaves that out. A damaged checkpoint does not stop `glassbert resume`, which takes the one
    before it.
    """
    if accept:
        accepted = accept_changes(path)
        typer.echo(json.dumps({"accepted": accepted}) if as_json else _accepted(accepted, path))
        return
    findings = list(verify_files(path))
    if not findings:
        raise GlassBertError(f"{path} has no checksums: it is not a run, a corpus or a model that GlassBERT wrote")
    damaged = [one for one in findings if one.problem]
    if as_json:
        typer.echo(json.dumps({"files": len(findings), "damaged": [one._asdict() for one in damaged]}, indent=2))
    else:
        _show(findings, damaged, path)
    if damaged:
        raise typer.Exit(1)


def _show(findings: list[Finding], damaged: list[Finding], path: Path) -> None:
    for one in damaged:
        typer.echo(one.problem)
    size = sum(one.bytes for one in findings)
    if damaged:
        typer.echo(f"{len(damaged)} of {len(findings)} files differ from their checksums.")
        typer.echo(f"If the changes are yours, accept them with: glassbert verify {path} --accept")
    else:
        typer.echo(f"{len(findings)} files, {size / 1e6:,.1f} MB: all are as they were written.")


def _accepted(names: list[str], path: Path) -> str:
    return f"Accepted: {', '.join(names)}." if names else f"{path} has no changed files; nothing was written."
