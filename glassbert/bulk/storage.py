"""`Storage`: a folder on a disk or in an object store (s3://bucket/folder), through pyarrow.

On a disk a file is written beside its place and renamed. In an object store it appears when its upload is complete.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from glassbert.errors import InputError, needs
from glassbert.files import atomic_write

REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
MAGIC = re.compile(r"[*?\[]")
QUERY = re.compile(r"\?[\w.-]+=[^?*]*$")  # of an address: s3://bucket/folder?region=eu-west-1


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

    def __post_init__(self) -> None:
        check_encodable(self.place)

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

    def files(self, enter: Callable[[str], bool] = lambda folder: True) -> list[Found]:
        """All files below the folder in alphabetical order; none where there is no folder.

        On a disk only the folders are read whose name `enter` accepts, and each of them once, also with links.
        """
        found = self._listed() if self.local is None else self._walked(self.local, enter)
        return sorted(found, key=lambda one: one.name)

    def _listed(self) -> Iterator[Found]:
        pyarrow = arrow("reading folders")
        system, root = self._system
        try:
            found = system.get_file_info(pyarrow.fs.FileSelector(root, allow_not_found=True, recursive=True))
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{self.place} cannot be read: {_reason(error)}") from error
        for one in found:
            if one.type == pyarrow.fs.FileType.File:
                yield Found(one.path[len(root) :].lstrip("/"), one.size or 0, one.mtime_ns or 0)

    def _walked(self, root: Path, enter: Callable[[str], bool]) -> Iterator[Found]:
        seen: set[tuple[int, int]] = set()

        def is_new(path: Path) -> bool:
            there = os.stat(path)
            known = (there.st_dev, there.st_ino) in seen
            seen.add((there.st_dev, there.st_ino))
            return not known

        def fail(error: OSError) -> None:
            raise InputError(f"{error.filename} cannot be read: {error.strerror or error}") from error

        if not root.is_dir() or not is_new(root):
            return
        for place, folders, names in os.walk(root, onerror=fail, followlinks=True):
            here = Path(place)
            below = here.relative_to(root)
            folders[:] = [name for name in sorted(folders) if enter((below / name).as_posix()) and is_new(here / name)]
            for name in names:
                try:
                    there = os.stat(here / name)
                except FileNotFoundError:  # a link to nowhere, or removed since
                    continue
                if stat.S_ISREG(there.st_mode):
                    yield Found((below / name).as_posix(), there.st_size, there.st_mtime_ns)

    def file(self, name: str) -> Found | None:
        """A file of the folder; None where there is none."""
        pyarrow = arrow("reading files")
        try:
            there = self._system[0].get_file_info(self.path(name))
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{self.place}: {name} cannot be read: {_reason(error)}") from error
        return Found(name, there.size or 0, there.mtime_ns or 0) if there.type == pyarrow.fs.FileType.File else None

    def holds(self, other: Storage) -> str | None:
        """The name of another folder below this one; None where it is elsewhere, or the same."""
        if (self.local is None) != (other.local is None):
            return None
        mine, its = (
            os.path.realpath(one.local) if one.local is not None else one.path("").rstrip("/") for one in (self, other)
        )
        return its.removeprefix(mine).lstrip("/") or None if its.startswith(mine.rstrip("/") + "/") else None

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
        try:
            self._system[0].delete_file(self.path(name))
        except OSError as error:
            raise InputError(f"{self.place}: {name} cannot be removed: {_reason(error)}") from error


def _fill(file: IO[bytes], content: Any) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        arrow("writing Parquet files").parquet.write_table(content, file)


def matching(pattern: str) -> re.Pattern[str]:
    """The names that a glob matches: * and ? within a folder, ** through folders, [abc] one of these, [!abc] others."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[(?:!.|[^!])[^]]*\])", pattern)
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    translated = (
        words.get(part) or (_one_of(part[1:-1]) if number % 2 else re.escape(part)) for number, part in enumerate(parts)
    )
    return re.compile("".join(translated), re.DOTALL)


def _one_of(given: str) -> str:
    """A set of a glob as a regular expression; a range that ends before it begins holds nothing."""
    others = given.startswith("!")
    ranges = re.findall(r"(.)-(.)|(.)", given.removeprefix("!"), re.DOTALL)
    allowed = "".join(
        re.escape(one) if one else f"{re.escape(low)}-{re.escape(high)}"
        for low, high, one in ranges
        if one or low <= high
    )
    if others:
        return f"[^/{allowed}]"
    return f"[{allowed}]" if allowed else "(?!)"


def leading(pattern: str) -> re.Pattern[str]:
    """The folders that can hold a file which the glob matches."""
    found, parts = ["(?!)"], pattern.split("/")
    for number, part in enumerate(parts):
        begun, deep, _ = part.partition("**")
        if deep:
            found.append(matching("/".join([*parts[:number], begun + deep])).pattern)
            break
        if number < len(parts) - 1:
            found.append(matching("/".join(parts[: number + 1])).pattern)
    return re.compile("|".join(f"(?:{one})" for one in found), re.DOTALL)


def check_encodable(name: str) -> None:
    """Raise for a name of bytes that are no UTF-8: Parquet files cannot hold it, and pyarrow cannot open it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"the name {name!a} is not UTF-8; rename it") from None


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
