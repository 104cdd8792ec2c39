"""Files: atomic writing, bounded reading of JSON, and checksums.

A file is written beside its place, flushed to disk and renamed. JSON is read only from a regular file of a limited
size. `checksums.json` in a folder lists size and checksum of the files that were written there; a sealed JSON file
carries the checksum of its own content.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from glassbert.errors import GlassBertError

REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "the file is larger than the limit on file sizes allows (ulimit -f)",
    errno.EACCES: "you have no permission to write there",
    errno.EPERM: "you have no permission to write there",
    errno.EROFS: "the file system is read-only",
}
PART = ".part"  # suffix of a file that is being written, or was when its process was killed
PART_NAME = re.compile(r"\..+\.[a-z0-9_]{8}\.part")  # as `tempfile.mkstemp` makes them
_CLEANED: set[str] = set()  # the folders in which this process has looked for them
JSON_LIMIT = 256 * 2**20  # bytes; the largest tokenizer.json in use has 33 million
CHECKSUMS = "checksums.json"
SEAL = "checksum"  # the field of a sealed JSON file
SEAL_BYTES = 16
BLOCK = 4 * 2**20  # bytes that one thread hashes at a time
VERIFY = "GLASSBERT_VERIFY"  # 0 turns verification off; set by --no-verify


# ---- writing --------------------------------------------------------------------------------------------------------


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Context manager: a file that replaces `path` when the block ends. After an error `path` is unchanged."""
    path = Path(path)
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_parts(path.parent)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=PART)
    try:
        with explain_write_errors(path):
            with os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
                _lock_shared(file)
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.chmod(temporary, 0o666 & ~_umask())
                if os.name != "nt":
                    os.replace(temporary, path)  # before the lock ends, so that no other writer removes it
            if os.name == "nt":
                os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def remove_parts(folder: Path) -> None:
    """Remove the temporary files of writers that were killed, once in a process. A running writer holds a lock."""
    key = os.path.abspath(folder)
    if key in _CLEANED:
        return
    _CLEANED.add(key)
    with suppress(OSError, ImportError):
        import fcntl

        for entry in os.scandir(folder):
            if not (PART_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)):
                continue
            with suppress(OSError), open(entry.path, "rb") as file:
                # A writer locks its file just after creating it; an empty new file may belong to one.
                if os.fstat(file.fileno()).st_size or _older_than_a_minute(file):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)


def _lock_shared(file: IO[Any]) -> None:
    with suppress(OSError, ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _older_than_a_minute(file: IO[Any]) -> bool:
    return time.time() - os.fstat(file.fileno()).st_mtime > 60


def require_new(target: Path, error: type[GlassBertError] = GlassBertError) -> None:
    """Raise `error` if there is something at this place; an empty folder is nothing."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise error(f"{target} exists and is not empty; choose another folder")


@contextmanager
def new_folder(target: Path, error: type[GlassBertError] = GlassBertError) -> Iterator[Path]:
    """Context manager: a folder that becomes `target` when the block ends. After an error there is nothing.

    It is written beside its place under another name. What killed processes left there is removed.
    """
    require_new(target, error)
    with explain_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{target.name[:100]}."
        for old in target.parent.glob(f"{glob.escape(prefix)}*{PART}"):
            with suppress(OSError), locked_folder(old):
                shutil.rmtree(old, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=prefix, suffix=PART))
    try:
        with explain_write_errors(target), locked_folder(staging):
            yield staging
            staging.chmod(0o777 & ~_umask())
            if target.exists():
                target.rmdir()
            staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Context manager: a lock on a folder, which ends with its process. OSError if another process holds it."""
    if os.name == "nt":  # a folder cannot be opened there
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def explain_write_errors(path: str | Path) -> Iterator[None]:
    """Context manager: turns an OSError into a GlassBertError that names the file and the reason."""
    try:
        yield
    except OSError as error:
        reason = REASONS.get(error.errno or 0, error.strerror or str(error))
        raise GlassBertError(f"cannot write {path}: {reason}") from error


def write_json(path: str | Path, content: Any, *, sealed: bool = False) -> None:
    """Write indented JSON atomically; a sealed object also carries the checksum of its content.

    NaN and infinity become the strings "nan", "inf" and "-inf", since JSON has neither. `numbers` reads them.
    """
    try:
        json.dumps(content, allow_nan=False)
    except ValueError:
        content = without_nan(content)
    if sealed:
        content = json.loads(json.dumps(content))  # keys as the file has them
        content[SEAL] = _seal_of(content)
    with atomic_write(path) as file:
        file.write(_encodable(json.dumps(content, indent=2, ensure_ascii=False), content) + "\n")


def _encodable(text: str, content: Any) -> str:
    """JSON in UTF-8, or in ASCII where a string has half of a surrogate pair, which UTF-8 has not."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return json.dumps(content, indent=2)


def without_nan(value: Any) -> Any:
    """A value with the names of numbers that JSON does not have in their place."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def numbers(value: Any) -> Any:
    """The inverse of `without_nan`."""
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [numbers(item) for item in value]
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else value


# ---- reading --------------------------------------------------------------------------------------------------------


def read_bytes(path: str | Path, error: type[GlassBertError] = GlassBertError, limit: int = JSON_LIMIT) -> bytes:
    """The content of a regular file of at most `limit` bytes; anything else raises `error`."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise error(f"{path} is not a file")
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError:
        raise error(f"there is no file {path}") from None
    except (OSError, ValueError) as problem:  # a path with a null byte is a ValueError
        if isinstance(problem, GlassBertError):
            raise
        raise error(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from problem
    if len(content) > limit:
        raise error(f"{path} is larger than the {limit:,} bytes that such a file may have")
    return content


def read_json(
    path: str | Path, error: type[GlassBertError] = GlassBertError, kind: type = dict, *, verify: bool = True
) -> Any:
    """The JSON of a file; `error` if it cannot be read, is no JSON, is no `kind`, or has a seal that does not fit."""
    try:
        content = json.loads(read_bytes(path, error).decode("utf-8"))
    except GlassBertError:
        raise
    except RecursionError:
        raise error(f"{path} is not JSON that can be used: it is nested too deeply") from None
    except ValueError as problem:  # no UTF-8, no JSON, or an integer of more than 4,300 digits
        raise error(f"{path} is not JSON: {problem}") from problem
    if not isinstance(content, kind):
        wanted = "object" if kind is dict else kind.__name__
        raise error(f"{path} must hold a JSON {wanted}, not a {type(content).__name__}")
    if isinstance(content, dict) and (SEAL in content or _renamed_seal(content)):
        seal = content.pop(SEAL, None)
        if verify and verifying() and seal != _seal_of(content):
            raise error(f"{path} has changed since it was written; {how_to_accept(Path(path).parent)}")
    return content


def _renamed_seal(content: Mapping[str, Any]) -> bool:
    """Whether the seal stands under another name, as after a flipped bit in its own."""
    others = (name for name, value in content.items() if isinstance(value, str) and len(value) == 2 * SEAL_BYTES)
    return any(content[name] == _seal_of({k: v for k, v in content.items() if k != name}) for name in others)


def _seal_of(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=SEAL_BYTES).hexdigest()


# ---- checksums ------------------------------------------------------------------------------------------------------


def verifying() -> bool:
    """Whether checksums are compared; `--no-verify` or GLASSBERT_VERIFY=0 turns that off."""
    return os.environ.get(VERIFY, "1") != "0"


def how_to_accept(folder: Path) -> str:
    return f"restore it, or accept the change with: glassbert verify {folder} --accept"


def checksum(path: str | Path) -> str:
    """The checksum of a file: BLAKE2b over the BLAKE2b of its blocks of 4 MiB, which threads compute side by side."""
    size = os.path.getsize(path)

    def of_block(start: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return hashlib.blake2b(file.read(BLOCK), digest_size=16).digest()

    starts = range(0, size, BLOCK)
    if len(starts) < 2:
        digests: Iterable[bytes] = map(of_block, starts)
    else:
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1, len(starts))) as threads:
            digests = list(threads.map(of_block, starts))
    return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()


def write_checksums(
    folder: str | Path, names: Iterable[str], others: Mapping[str, dict[str, Any]] | None = None
) -> None:
    """Write `checksums.json` for those of these files that exist, and with what is known of `others`."""
    folder = Path(folder)
    found = {name: facts_of(folder / name) for name in names if (folder / name).is_file()}
    write_json(folder / CHECKSUMS, {"files": dict(sorted({**(others or {}), **found}.items()))}, sealed=True)


def facts_of(path: Path) -> dict[str, Any]:
    """Size and checksum of a file."""
    with explain_write_errors(path):
        return {"bytes": path.stat().st_size, "blake2b": checksum(path)}


def read_checksums(folder: Path, error: type[GlassBertError] = GlassBertError) -> dict[str, dict[str, Any]] | None:
    """The files that `checksums.json` of a folder lists; None where there is no such file."""
    path = folder / CHECKSUMS
    if not os.path.lexists(path):
        return None
    files = read_json(path, error).get("files")
    whole = isinstance(files, dict) and all(
        isinstance(facts, dict) and isinstance(facts.get("bytes"), int) and isinstance(facts.get("blake2b"), str)
        for facts in files.values()
    )
    if not whole or any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
        raise error(f"{path} is damaged; {how_to_accept(folder)}")
    return files


def find_changed(folder: str | Path, names: Iterable[str] | None = None) -> str | None:
    """What is wrong with the first file that differs from `checksums.json`; None where all are as they were written.

    `names` limits the comparison to these files.
    """
    folder = Path(folder)
    wanted = None if names is None else set(names)
    for name, facts in (read_checksums(folder) or {}).items():
        path = folder / name
        if wanted is not None and name not in wanted:
            continue
        try:
            if not path.is_file():
                return f"{path} is missing"
            size = path.stat().st_size
            if size != facts["bytes"]:
                return f"{path} has {size:,} bytes, but {facts['bytes']:,} were written"
            if checksum(path) != facts["blake2b"]:
                return f"{path} has changed since it was written: its checksum differs"
        except OSError as problem:
            return f"{path} cannot be read: {problem.strerror or problem}"
    return None


def verify_checksums(
    folder: str | Path, error: type[GlassBertError] = GlassBertError, names: Iterable[str] | None = None
) -> None:
    """Raise `error` for the first file that differs from `checksums.json`; nothing happens where there is none."""
    if not verifying():
        return
    try:
        changed = find_changed(folder, names)
    except GlassBertError as problem:
        raise error(str(problem)) from problem
    if changed:
        raise error(f"{changed}; {how_to_accept(Path(folder))}")


@contextmanager
def adding_files(folder: str | Path, names: Iterable[str]) -> Iterator[None]:
    """Context manager: files with these names are written into a folder that may have checksums, which then list them.

    `checksums.json` is removed first and written last, so that a process killed in between leaves no wrong checksum.
    After an error it lists what it listed before, without the files that have changed.
    """
    folder = Path(folder)
    listed = read_checksums(folder)
    with explain_write_errors(folder), suppress(FileNotFoundError):
        (folder / CHECKSUMS).unlink()
    written = set(names)  # one of them that is not there was removed
    others = {name: facts for name, facts in (listed or {}).items() if name not in written}
    try:
        yield
    except BaseException:
        if listed is not None:
            with suppress(GlassBertError):  # the disk may be full; the first error is the one to report
                kept = [name for name in written & set(listed) if (folder / name).is_file()]
                write_checksums(folder, [name for name in kept if facts_of(folder / name) == listed[name]], others)
        raise
    if listed is not None:
        write_checksums(folder, written, others)


def portable(path: str | Path) -> str:
    """A path without folders of this machine: relative to the working folder, or else its last two names."""
    given = Path(path)
    if not given.is_absolute():
        return str(path)
    try:
        working = Path.cwd()
    except FileNotFoundError:  # somebody removed the working folder
        return str(Path(*given.parts[-2:]))
    return str(given.relative_to(working) if given.is_relative_to(working) else Path(*given.parts[-2:]))


def absolute_if_here(name: str | Path) -> str:
    """The absolute path of a file or folder that exists; any other name, such as that of a model, as it is."""
    local = Path(name).expanduser()
    return str(local.absolute()) if local.exists() else str(name)


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _umask() -> int:
    """The umask of the process; `mkstemp` ignores it and creates files with mode 0600."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
