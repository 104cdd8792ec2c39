"""Options that commands share, so that one thing has one name and one syntax in all of them.

    --output, -o   the file or folder to write             --json       JSON instead of tables
    --run          the folder of a run                     --engine     auto, numpy or mlx
    --overwrite    replace what is there                   --threads    threads of the NumPy engine
    --text         the column with the text                --only       only these, by name
    --dev          held-out data to measure on             --with       parts of your own
    --sentence     a text to look at                       --on         here, or ray: a cluster

A count is written 2000, 2_000, 2k, 1.5M or 1e6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Annotated, Any

import typer

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?) *([kmgb]?)", re.IGNORECASE)
LONGEST_METAVAR = 40  # characters; longer lists of choices are only in the help text


def number(text: str) -> float:
    """A number as people write it: 1,000 or 1_000, 2.5k, 2M, 1G, 1e6. Raises ValueError for anything else."""
    match = NUMBER.fullmatch(re.sub(r"(?<=\d)[_,](?=\d)", "", text.strip()))
    if match is None:
        raise ValueError(f"{text!r} is not a number")
    return float(match[1]) * UNITS[match[2].lower()]


def count_of(least: int | None = None, most: int | None = None) -> Callable[[Any], int]:
    """A parser of whole numbers, in a range if there is one."""
    allowed = f"at least {least}" if most is None else f"from {least} to {most:,}"

    def parse(text: Any) -> int:
        try:
            value = float(text) if isinstance(text, int) else number(text)
            if not value.is_integer():
                raise ValueError
        except (ValueError, OverflowError):
            raise typer.BadParameter(f"{text!r} is not a whole number; write it as 2000, 2k, 1.5M or 1e6") from None
        if (least is not None and value < least) or (most is not None and value > most):
            raise typer.BadParameter(f"{text} is out of range; it must be {allowed}")
        return int(value)

    return parse


def counted(help: str, *names: str, least: int | None = 1, most: int | None = None, **options: Any) -> Any:
    """An option with a count."""
    return typer.Option(*names, parser=count_of(least, most), metavar="N", help=help, **options)


def chosen(help: str, names: Iterable[str], *flags: str, **options: Any) -> Any:
    """An option with one of several names: shown as choices and completed by the shell; checked where it is used."""
    names = list(names)
    metavar = "|".join(names)
    shown = {"metavar": metavar} if len(metavar) <= LONGEST_METAVAR else {"metavar": "NAME"}
    return typer.Option(*flags, help=help, autocompletion=completing(names), **{**shown, **options})


def completing(names: Collection[str]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def split_names(given: list[str] | None) -> list[str]:
    """The names of an option that may be repeated and may hold several names separated by commas."""
    return [name.strip() for one in given or () for name in one.split(",") if name.strip()]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output instead of tables.")]
Engine = Annotated[str, chosen("The engine that computes.", ("auto", "numpy", "mlx"), "--engine")]
Threads = Annotated[int | None, counted("Threads of the NumPy engine. Default: all cores.", "--threads")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="Only these, by name; repeat it, or separate names by commas."),
]
On = Annotated[str, chosen("Where to compute: here, or on a cluster of Ray.", ("here", "ray"), "--on")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="The Ray cluster; auto: the one on this machine. Default: RAY_ADDRESS, or one just for this command.",
    ),
]
