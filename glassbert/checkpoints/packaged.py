"""Models that ship with the package: `glassbert.load("mini")`.

A packaged model is an ordinary model folder in `glassbert/pretrained/`, with a manifest of its files. The manifest is
verified before the model is opened, once in each process.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
from pathlib import Path

import glassbert
from glassbert.errors import CheckpointError
from glassbert.files import write_json

DEFAULT_MODEL = "mini"
MANIFEST = "manifest.json"


def packaged_names() -> tuple[str, ...]:
    """The names of the models that ship with this installation."""
    return tuple(sorted(path.parent.name for path in _root().glob(f"*/{MANIFEST}")))


def packaged_folder(name: str) -> Path | None:
    """The folder of a packaged model, verified; None if there is no packaged model of this name."""
    return _verified(_root() / name) if name in packaged_names() else None


def which_model(name: str | Path) -> str | None:
    """Which model a name means that is also the name of a packaged model; None for all other names."""
    if str(name) not in packaged_names():
        return None
    if Path(name).expanduser().exists():
        return (
            f"{name}: the folder of that name here, not the model that ships with GlassBERT (move it to use that one)"
        )
    return f"{name}: the pretrained model that ships with GlassBERT"


def did_you_mean(name: str) -> str:
    """A hint for a name that is close to that of a packaged model, or an empty text."""
    close = difflib.get_close_matches(name, packaged_names(), 1, cutoff=0.5)
    return f"; did you mean {close[0]!r}, which ships with GlassBERT?" if close else ""


def write_manifest(folder: str | Path) -> None:
    """Write `manifest.json`: size and checksum of every other file of the folder."""
    folder = Path(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    entries = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "blake2b": checksum(path)} for path in files
    }
    write_json(folder / MANIFEST, {"files": entries})


def verify(folder: Path) -> None:
    """Raise an error that names the first file that differs from the manifest."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        damaged = [
            name
            for name, expected in files.items()
            if (folder / name).stat().st_size != expected["bytes"] or checksum(folder / name) != expected["blake2b"]
        ]
    except OSError as error:
        raise CheckpointError(f"{error.filename or folder} cannot be read: {error.strerror}; {_AGAIN}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{folder / MANIFEST} is damaged; {_AGAIN}") from error
    if damaged:
        raise CheckpointError(f"{folder / damaged[0]} is damaged: it differs from {MANIFEST}; {_AGAIN}")


def checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


_AGAIN = "install GlassBERT again, with pip install --force-reinstall and the folder or wheel it was installed from"


def _root() -> Path:
    return Path(glassbert.__file__).parent / "pretrained"


@functools.cache
def _verified(folder: Path) -> Path:
    verify(folder)
    return folder
