"""File locks: one process at a time writes into a folder."""

from __future__ import annotations

import os
from typing import IO, Any

LOCKED_BYTE = 1 << 30  # the byte that stands for the whole file on Windows


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file for this process; False if another process holds it. It is released when the file is closed.

    Windows locks a byte far beyond the end, so that the text of the file can still be read. That branch follows the
    documentation of `msvcrt` and has not been run: the project is tested on Linux.
    """
    try:
        if os.name == "nt":
            import msvcrt

            position = os.lseek(file.fileno(), 0, os.SEEK_CUR)
            os.lseek(file.fileno(), LOCKED_BYTE, os.SEEK_SET)  # `locking` begins at the current position
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            finally:
                os.lseek(file.fileno(), position, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
