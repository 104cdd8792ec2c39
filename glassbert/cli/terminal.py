"""The terminal: its width, and the characters that it can show."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

NARROWEST = 20  # columns


def prepare_terminal() -> None:
    """Let output work on every terminal: characters that it does not have are escaped, and it has some width."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) < NARROWEST:
        if int(columns):
            os.environ["COLUMNS"] = str(NARROWEST)
        else:
            del os.environ["COLUMNS"]
