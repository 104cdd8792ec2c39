"""Files that are whole or not there: written beside their place, put on disk, then moved into it."""

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
    errno.EACCES: "you may not write there",
    errno.EPERM: "you may not write there",
    errno.EROFS: "the disk is read-only",
}


@contextmanager
def replacing(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write to. It takes the place of `path` once everything is on disk; after an error it is gone."""
    path = Path(path)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with explained(path):
            with os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(beside, 0o666 & ~_umask())
            os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


@contextmanager
def explained(path: str | Path) -> Iterator[None]:
    """Errors of the file system as a sentence that names the file and the reason."""
    try:
        yield
    except OSError as error:
        reason = REASONS.get(error.errno or 0, error.strerror or str(error))
        raise GlassBertError(f"cannot write {path}: {reason}") from error


def write_json(path: str | Path, content: Any) -> None:
    with replacing(path) as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
        file.write("\n")


def sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _umask() -> int:
    """What the user allows for new files; mkstemp allows nobody but the owner."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
