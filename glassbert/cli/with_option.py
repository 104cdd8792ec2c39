"""The option `--with FILE.py`, shared by all commands that build or open models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassbert.extensions import load_extension


def _load(paths: list[Path] | None) -> list[Path] | None:
    for path in paths or ():
        load_extension(path)
    return paths


Extensions = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="FILE.py",
        callback=_load,
        is_eager=True,
        help="Your own parts: operations, attentions, families, heads, objectives, optimizers, suites "
        "(docs/extending.md). The file is executed: use only code that you trust.",
    ),
]
