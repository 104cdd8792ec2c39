"""`Storage`: a folder on a disk or in an object store (s3://bucket/folder), through pyarrow.

On a disk a file is written beside its place and renamed. In an object store it appears when its upload is complete.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from glassbert.errors import InputError, needs
from glassbert.files import atomic_write

REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
MAGIC = re.compile(r"[*?\[]")


def is_remote(place: str | Path) -> bool:
    """Whether a place is an address such as s3://bucket/folder."""
    return bool(REMOTE.match(str(place)))


def arrow(what: str) -> Any:
    """The package pyarrow with its parts for Parquet and file systems, or an error that says how to install it."""
    try:
        import pyarrow
        import pyarrow.fs
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(needs(what, "pyarrow")) from error
    return pyarrow


@dataclass(frozen=True)
class Found:
    """A file below a folder."""

    name: str  # below the folder, with slashes
    bytes: int
    modified: int = 0  # nanoseconds since 1970


@dataclass(frozen=True)
class Storage:
    """A folder; names of files are relative to it."""

    place: str

    def __reduce__(self) -> Any:
        """Only the place travels to a worker, which has its own working folder and credentials."""
        return Storage, (self.place if self.local is None else str(self.local),)

    @cached_property
    def _system(self) -> tuple[Any, str]:
        """The file system of pyarrow, and the path of the folder in it."""
        pyarrow = arrow("reading folders")
        if not is_remote(self.place):
            return pyarrow.fs.LocalFileSystem(), Path(self.place).expanduser().absolute().as_posix()
        try:
            return pyarrow.fs.FileSystem.from_uri(self.place)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{self.place} cannot be opened: {_reason(error)}") from error

    @property
    def local(self) -> Path | None:
        """The folder as a path, where it is on a disk of this machine."""
        return None if is_remote(self.place) else Path(self.place).expanduser().absolute()

    def path(self, name: str) -> str:
        return f"{self._system[1]}/{name}" if name else self._system[1]

    def files(self) -> list[Found]:
        """All files below the folder in alphabetical order; none where there is no folder."""
        pyarrow = arrow("reading folders")
        system, root = self._system
        try:
            found = system.get_file_info(pyarrow.fs.FileSelector(root, allow_not_found=True, recursive=True))
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{self.place} cannot be read: {_reason(error)}") from error
        files = [one for one in found if one.type == pyarrow.fs.FileType.File]
        listed = (Found(one.path[len(root) :].lstrip("/"), one.size or 0, one.mtime_ns or 0) for one in files)
        return sorted(listed, key=lambda one: one.name)

    def open(self, name: str) -> Any:
        """A file of pyarrow for reading."""
        try:
            return self._system[0].open_input_file(self.path(name))
        except OSError as error:
            raise InputError(f"{self.place}: {name} cannot be read: {_reason(error)}") from error

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def write(self, name: str, content: Any) -> None:
        """Write a file: bytes, or a table of Arrow as Parquet. It exists when it is complete."""
        if self.local is not None:
            with atomic_write(self.local / name, "wb") as file:
                _fill(file, content)
            return
        try:
            with self._system[0].open_output_stream(self.path(name)) as stream:
                _fill(stream, content)
        except OSError as error:
            raise InputError(f"{self.place}: {name} cannot be written: {_reason(error)}") from error

    def remove(self, name: str) -> None:
        self._system[0].delete_file(self.path(name))


def _fill(file: IO[bytes], content: Any) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        arrow("writing Parquet files").parquet.write_table(content, file)


def matching(pattern: str) -> re.Pattern[str]:
    """The names that a glob matches: * and ? within a folder, ** through folders, [abc] one of these."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]*\])", pattern)
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    translated = (words.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)
    return re.compile("".join(translated))


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
