"""`glassbert average`: one model from the weights of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from glassbert.cli.model_argument import MODEL_HELP, named_model
from glassbert.cli.options import AsJson, chosen
from glassbert.cli.output import print_json
from glassbert.errors import InputError


def run(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help=f"Two or more. {MODEL_HELP}")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The new folder.")],
    shares: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="The share of each model in the mean, such as 0.3,0.7. Default: all alike."),
    ] = None,
    dtype: Annotated[str, chosen("The numbers in the file.", ("float32", "float16"))] = "float32",
    as_json: AsJson = False,
) -> None:
    """Write a model whose weights are the mean of those of several models of the same shape.

    glassbert average mini runs/more -o both
    glassbert average runs/a runs/b --shares 0.3,0.7 -o mixed

    Models that were trained from the same start often average well: the mean of a model and its continuation on other
    texts keeps most of what each is good at. Measure it: glassbert evaluate both.
    """
    from glassbert.training.averaging import average

    found = average([named_model(name) for name in models], output, _numbers(shares), dtype)
    if as_json:
        print_json(
            {
                "folder": str(found.folder),
                "models": [
                    {"model": name, "share": share, "distance": distance}
                    for name, share, distance in zip(found.models, found.shares, found.distances, strict=True)
                ],
            }
        )
        return
    console = Console(highlight=False)
    for name, share, distance in zip(found.models, found.shares, found.distances, strict=True):
        console.print(f"{share:6.1%} of {name}, {distance:.1%} of its length from the mean", markup=False)
    if found.unrelated:
        console.print(
            "Note: these weights are far from each other. Models with different first weights do not average.",
            style="yellow",
        )
    console.print(f"Written: {output}", soft_wrap=True, markup=False)


def _numbers(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--shares are numbers such as 0.3,0.7, one for each model; got {text!r}") from None
