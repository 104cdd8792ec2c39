"""Where a user's own files are: progress and lessons in the data folder, trained models in the cache folder.

Linux and others: $XDG_DATA_HOME or ~/.local/share, $XDG_CACHE_HOME or ~/.cache. macOS: ~/Library/Application Support
and ~/Library/Caches. Windows: %LOCALAPPDATA%.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from glassbert.errors import GlassBertError

NAME = "glassbert"
PLACES = {  # kind: (variable, folder on macOS, folder elsewhere)
    "data": ("XDG_DATA_HOME", "Library/Application Support", ".local/share"),
    "cache": ("XDG_CACHE_HOME", "Library/Caches", ".cache"),
}


def data_folder() -> Path:
    return _folder("data")


def cache_folder() -> Path:
    return _folder("cache")


def _folder(kind: str) -> Path:
    variable, mac, other = PLACES[kind]
    given = os.environ.get(variable, "")
    if given and Path(given).is_absolute():  # a relative path is ignored, as the XDG rules say
        return Path(given) / NAME
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / NAME / kind
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("/nonexistent")
    if not home.is_dir():
        raise GlassBertError(
            f"there is no home folder to keep your {kind} in: set HOME, or {variable} to a folder that you may write to"
        )
    return home / (mac if sys.platform == "darwin" else other) / NAME
