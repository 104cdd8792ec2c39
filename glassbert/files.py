"""Atomic writing of files: write to a temporary file in the same folder, flush to disk, rename."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from glassbert.errors import GlassBertError

REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EACCES: "you have no permission to write there",
    errno.EPERM: "you have no permission to write there",
    errno.EROFS: "the file system is read-only",
}


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Context manager: a file that replaces `path` when the block ends. After an error `path` is unchanged."""
    path = Path(path)
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with explain_write_errors(path):
            with os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def explain_write_errors(path: str | Path) -> Iterator[None]:
    """Context manager: turns an OSError into a GlassBertError that names the file and the reason."""
    try:
        yield
    except OSError as error:
        reason = REASONS.get(error.errno or 0, error.strerror or str(error))
        raise GlassBertError(f"cannot write {path}: {reason}") from error


def write_json(path: str | Path, content: Any) -> None:
    """Write indented JSON atomically."""
    with atomic_write(path) as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
        file.write("\n")


def portable(path: str | Path) -> str:
    """A path without folders of this machine: relative to the working folder, or else its last two names."""
    given = Path(path)
    if not given.is_absolute():
        return str(path)
    working = Path.cwd()
    return str(given.relative_to(working) if given.is_relative_to(working) else Path(*given.parts[-2:]))


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _umask() -> int:
    """The umask of the process; `mkstemp` ignores it and creates files with mode 0600."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
