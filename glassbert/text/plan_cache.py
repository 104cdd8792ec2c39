"""Cache packing plans in the corpus folder, so that the next run starts faster.

    DIR/plans/train-128-sentences-1f0c....starts.npy    and .lengths.npy, .row_ends.npy: memory-mapped when read
    DIR/plans/train-128-sentences-1f0c....json          the key of the plan and the checksums; written last

The name ends with a hash of everything that determines the plan. A damaged plan is silently computed again. If the
folder cannot be written, the plan is kept in memory only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import GlassBertError
from glassbert.files import atomic_write, read_json, sha256, write_json
from glassbert.text.corpus.mapping import MappedFile, map_array
from glassbert.text.corpus.reader import Corpus
from glassbert.text.packing import TARGET_FILL, PackingPlan, plan_rows

VERSION = 1  # increase it when the result of `plan_rows` changes
FOLDER = "plans"
ARRAYS = ("starts", "lengths", "row_ends")


def cached_plan(
    corpus: Corpus,
    split: str,
    length: int,
    packing: str,
    continues_word: np.ndarray | None = None,
    sources: Sequence[int] | None = None,
) -> PackingPlan:
    """The plan of a split, read from the corpus folder, or computed and stored there."""
    facts = {
        "version": VERSION,
        "split": split,
        "length": length,
        "packing": packing,
        "enough": TARGET_FILL,
        "sources": sources,
        "text": corpus.manifest["splits"][split] if split in corpus.splits else None,
        "tokenizer": corpus.manifest["tokenizer"]["fingerprint"] if continues_word is not None else None,
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    stem = corpus.folder / FOLDER / f"{split}-{length}-{packing}-{key[:16]}"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, EOFError, SyntaxError, RecursionError):
        return _read(stem, key, length)
    plan = plan_rows(corpus.split(split), length, packing, continues_word=continues_word, sources=sources)
    if corpus.folder.is_dir():
        with contextlib.suppress(GlassBertError):  # a read-only folder or a full disk
            _write(plan, stem, key)
    return plan


def _paths(stem: Path) -> dict[str, Path]:
    return {name: stem.with_name(f"{stem.name}.{name}.npy") for name in ARRAYS}


def _read(stem: Path, key: str, length: int) -> PackingPlan:
    stored: dict[str, Any] = read_json(stem.with_name(f"{stem.name}.json"))
    paths = _paths(stem)
    if stored["key"] != key or any(sha256(path) != stored["sha256"][name] for name, path in paths.items()):
        raise ValueError("a different or damaged plan")
    mapped = tuple(MappedFile(path, path.stat().st_size) for path in paths.values())
    starts, lengths, row_ends = (map_array(paths[name]) for name in ARRAYS)
    return PackingPlan(length, starts, lengths, row_ends, mapped)


def _write(plan: PackingPlan, stem: Path, key: str) -> None:
    paths = _paths(stem)
    for name, path in paths.items():
        with atomic_write(path, "wb") as file:
            np.save(file, getattr(plan, name), allow_pickle=False)
    checksums = {name: sha256(path) for name, path in paths.items()}
    write_json(stem.with_name(f"{stem.name}.json"), {"key": key, "sha256": checksums}, sealed=True)
