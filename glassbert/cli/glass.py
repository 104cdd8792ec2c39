"""`glassbert glass`: look inside a model, forward and backward, in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassbert.cli.options import counted
from glassbert.cli.with_option import Extensions
from glassbert.learn.glass.opening import export_page, open_glass
from glassbert.learn.glass.server import serve


def run(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Runs or folders with a model and its tokenizer; several to compare."),
    ] = None,
    sentence: Annotated[
        list[str] | None,
        typer.Option(
            "--sentence",
            "--text",
            metavar="TEXT",
            help="The text to begin with; with --output it may be given several times.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            "--export",
            metavar="FILE.html",
            help="Write one page with all that is recorded for the texts, and end.",
        ),
    ] = None,
    port: Annotated[int | None, counted("The port to listen on; default: a free one.", least=0, most=65535)] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    extensions: Extensions = None,
) -> None:
    """Look inside a model: every number of a pass, forward and backward, and the sum that made it.

    glassbert glass runs/mine
    opens a page on this machine: text, answers, layers, operations, gradients, one step of training, attention.

    glassbert glass runs/mine --sentence "Paris is the [MASK] of France." -o page.html
    writes the same as one file that needs no Python.
    """
    glass = open_glass(models or [], sentence or [])
    if output is not None:
        typer.echo(export_page(glass, output))
        return
    serve(glass, port, browser, typer.echo)
