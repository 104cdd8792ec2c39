"""Extensions: parts of one's own in one's own Python file.

A file registers operations, attentions, position schemes, feed-forward layers, blocks, embeddings, heads, families,
objectives, optimizers, suites and recipes by their decorators (docs/extending.md). In Python it is imported; commands
take it as `--with mine.py`. The file is executed: nothing else that GlassBERT loads runs code.
"""

from __future__ import annotations

import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from glassbert.errors import GlassBertError

PREFIX = "glassbert_extension_"
LOADED: dict[str, ModuleType] = {}  # by the name of the module


def load_extension(path: str | Path) -> ModuleType:
    """Execute a Python file whose decorators register parts. A file that is already loaded is not executed again."""
    path = Path(path)
    if not path.is_file():
        raise GlassBertError(f"--with: there is no file {path}")
    if path.suffix != ".py":
        raise GlassBertError(f"--with: {path} is not a Python file; its name must end in .py")
    name = f"{PREFIX}{path.stem}"
    if name in LOADED:
        if Path(str(LOADED[name].__file__)).resolve() == path.resolve():
            return LOADED[name]
        raise GlassBertError(f"--with: two files are called {path.name}; rename one of them")
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except GlassBertError as error:
        del sys.modules[name]
        raise GlassBertError(f"--with: {path}: {error}") from error
    except Exception as error:
        del sys.modules[name]
        raise GlassBertError(f"--with: {path}{_line(error, path)} raised {type(error).__name__}: {error}") from error
    LOADED[name] = module
    return module


def _line(error: Exception, path: Path) -> str:
    """ ", line 12" of the file in which an error was raised."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno},"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(path.name)]
    return f", line {lines[-1]}," if lines else ""


def is_own(entry: Any) -> bool:
    """Whether a registered function, class or object comes from an extension."""
    module = getattr(entry, "__module__", None) or type(entry).__module__
    return str(module).startswith(PREFIX) or str(type(entry).__module__).startswith(PREFIX)
