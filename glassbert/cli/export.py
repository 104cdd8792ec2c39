"""`glassbert export`: write the model of a run into a folder to publish."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from glassbert.cli.options import AsJson, chosen
from glassbert.cli.output import print_json
from glassbert.errors import InputError


def run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished pretraining run.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The new folder.")],
    dtype: Annotated[str, chosen("The precision of the weights.", ("float16", "float32"))] = "float16",
    name: Annotated[str, typer.Option(help="The name in the model card. Without it: that of the folder.")] = "",
    notes: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Markdown to add to the model card, such as licences.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the model of a run with tokenizer, model card, recipe, receipt and checksums.

    glassbert export runs/mine -o mine

    `glassbert.load("mine")` opens the folder, and so does transformers where it has a class for the model.
    """
    from glassbert.training.release import release

    try:
        added = notes.read_text(encoding="utf-8") if notes is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{notes} cannot be read: {error}") from error
    folder = release(run, output, dtype=dtype, name=name, notes=added)
    files = {str(path): path.stat().st_size for path in sorted(folder.iterdir())}
    if as_json:
        print_json({"folder": folder, "files": files})
        return
    console = Console(highlight=False)
    for name, size in files.items():
        console.print(Text(f"{size:>12,}  {name}"), soft_wrap=True)
