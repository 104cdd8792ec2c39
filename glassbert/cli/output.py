"""What commands print: JSON that every parser reads, and exit codes of runs that were interrupted."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from glassbert.errors import InputError


def print_json(content: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON. NaN and infinities, which JSON does not have, become null."""
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    typer.echo(json.dumps(finite(content), indent=indent, ensure_ascii=not unicode, allow_nan=False))


def finite(content: Any) -> Any:
    """The same value in types of JSON: null for numbers that are not finite, text for paths and the like."""
    if isinstance(content, Mapping):
        return {str(key): finite(value) for key, value in content.items()}
    if hasattr(content, "tolist"):  # an array or a number of NumPy
        content = content.tolist()
    if isinstance(content, list | tuple | set | frozenset):
        return [finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content if isinstance(content, str | int | float | bool | None) else str(content)


def check_not_input(given: str | Path, *outputs: Path) -> None:
    """Raise if one of the files to write is the file that is read."""
    for path in outputs:
        if path.exists() and Path(given).exists() and path.samefile(given):
            raise InputError(f"{path} is the input, and would be replaced; name another file or folder with --output")


def interrupted_status() -> int:
    """The exit code of a program that a signal ended: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    from glassbert.training.budget import Interrupts

    return 128 + (Interrupts.last_signal or signal.SIGINT)


def exit_interrupted() -> None:
    """End the command with that code."""
    raise typer.Exit(interrupted_status())
