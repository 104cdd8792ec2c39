"""Finished suites on disk, so that an interrupted evaluation can go on (`glassbert evaluate --resume`).

A suite is kept as FOLDER/suites/KEY.json and KEY.npz: its measures with their samples, tables, notes and figures. KEY
is a hash of everything that the result depends on: the version, the suite, the weights, the tokenizer, the precision,
the options, and names, sizes and times of the data files. A result whose key differs is not used.

Statistics and figures are functions. A file holds their names, and only functions of `glassbert.evaluation` and
`glassbert.metrics` are looked up, so nothing in a file runs as code. A suite with other functions is not kept, and runs
again.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from glassbert import __version__
from glassbert.errors import GlassBertError
from glassbert.evaluation.measures import Measure, Sample
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import OWN, Options, Picture, Suite, SuiteResult, Table
from glassbert.files import atomic_write, read_json, write_json
from glassbert.tasks.checks import Finding

FOLDER = "suites"
FORMAT, VERSION = "glassbert-suite", 1
KINDS = {kind.__name__: kind for kind in (SuiteResult, Measure, Sample, Table, Picture, Finding)}
PACKAGES = ("glassbert.evaluation", "glassbert.metrics")  # whose functions a file may name

# What a damaged file may cause, beside our own errors.
DAMAGES = (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error)


class CannotKeep(Exception):
    """The result has a part that no file can hold."""


class KeptSuites:
    """The finished suites below a folder. With `reuse` they are read, without it only written."""

    def __init__(self, folder: Path, reuse: bool = False):
        self.folder, self.reuse = folder / FOLDER, reuse

    def find(self, suite: Suite, subject: Subject, options: Options) -> SuiteResult | None:
        """The kept result, or None if there is none that fits or its files are damaged."""
        if not self.reuse or not can_be_kept(suite):
            return None
        path = self._path(suite, subject, options)
        try:
            content = read_json(path)
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                return None
            with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
                if digest(arrays) != content["arrays"]:
                    return None
                return from_plain(content["result"], arrays)
        except (GlassBertError, *DAMAGES):
            return None

    def keep(self, suite: Suite, subject: Subject, options: Options, result: SuiteResult) -> None:
        """Write a result, unless the suite failed or has parts that no file can hold."""
        if result.failed or not can_be_kept(suite):
            return
        arrays: dict[str, np.ndarray] = {}
        try:
            plain = to_plain(result, arrays)
        except CannotKeep:
            return
        path = self._path(suite, subject, options)
        with atomic_write(path.with_suffix(".npz"), "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        write_json(path, {"format": FORMAT, "version": VERSION, "arrays": digest(arrays), "result": plain}, sealed=True)

    def _path(self, suite: Suite, subject: Subject, options: Options) -> Path:
        return self.folder / f"{suite.name}-{key_of(suite, subject, options)}.json"


def can_be_kept(suite: Suite) -> bool:
    """Whether it is a suite of this package. The code of another one may change between two evaluations."""
    return suite.name != OWN and suite.function.__module__.startswith("glassbert.")


def key_of(suite: Suite, subject: Subject, options: Options) -> str:
    """A hash of everything that the result of a suite depends on."""
    engine, corpus = subject.model.engine, None if subject.corpus is None else subject.corpus.folder
    given = [
        __version__, suite.name, suite.function.__module__, subject.fingerprint, subject.tokenizer.fingerprint,
        repr(subject.model.config), engine.name, engine.dtype_name, engine.threads, options.quick, options.thorough,
        options.seed, options.resamples,
        *(facts_of_files(path) for path in (options.data, options.text or corpus, options.pairs)),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(given, default=str).encode()).hexdigest()[:20]


def facts_of_files(path: Path | None) -> list[tuple[str, int, int]] | None:
    """Name, size and time of the last change of a file, or of all files below a folder."""
    if path is None:
        return None
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files]


def digest(arrays: Any) -> str:
    """SHA-256 of all arrays."""
    found = hashlib.sha256()
    for name in sorted(_names(arrays)):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _names(arrays: Any) -> Iterable[str]:
    return arrays.files if hasattr(arrays, "files") else arrays


# ---- results as JSON and arrays ------------------------------------------------------------------------------------


def to_plain(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value in types of JSON; arrays go into `arrays`. {"is": KIND, ...} stands for what JSON does not have."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"is": "float", "text": str(value)}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise CannotKeep("an array of objects")
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"is": "array", "name": name}
    if isinstance(value, list | tuple):
        items = [to_plain(item, arrays) for item in value]
        return items if isinstance(value, list) else {"is": "tuple", "items": items}
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise CannotKeep("a dictionary with other keys than texts")
        return {"is": "dict", "items": {name: to_plain(item, arrays) for name, item in value.items()}}
    if is_dataclass(value) and type(value) is KINDS.get(type(value).__name__):
        given = {field.name: to_plain(getattr(value, field.name), arrays) for field in fields(value)}
        return {"is": type(value).__name__, "fields": given}
    if isinstance(value, partial) and not value.keywords:
        return {"is": "call", "function": name_of(value.func), "items": [to_plain(one, arrays) for one in value.args]}
    return {"is": "function", "function": name_of(value)}


def from_plain(value: Any, arrays: Any) -> Any:
    """The inverse of `to_plain`."""
    if isinstance(value, list):
        return [from_plain(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value["is"]
    if kind == "array":
        return arrays[value["name"]]
    if kind == "float":
        return float(value["text"])
    if kind == "dict":
        return {name: from_plain(item, arrays) for name, item in value["items"].items()}
    if kind == "tuple":
        return tuple(from_plain(item, arrays) for item in value["items"])
    if kind == "function":
        return function_of(value["function"])
    if kind == "call":
        return partial(function_of(value["function"]), *(from_plain(item, arrays) for item in value["items"]))
    return KINDS[kind](**{name: from_plain(item, arrays) for name, item in value["fields"].items()})


def name_of(function: Any) -> str:
    """`module:name` of a function of this package that can be found again."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not name.isidentifier() or not _may_be_named(module):
        raise CannotKeep(f"{module}.{name} is not a function of this package")
    return f"{module}:{name}"


def function_of(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    if not _may_be_named(module) or not attribute.isidentifier():
        raise KeyError(name)
    found = getattr(import_module(module), attribute)
    if not callable(found) or getattr(found, "__module__", "") != module:  # defined there, not only imported
        raise KeyError(name)
    return found


def _may_be_named(module: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in PACKAGES)
