"""Writing checkpoints: aside first, then moved into place, so that a crash leaves nothing that only looks whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from glassbert.arrays import Array
from glassbert.checkpoints.description import describe
from glassbert.checkpoints.formats import EMBEDDING, Format, HuggingFaceFormat, format_of_model
from glassbert.checkpoints.labels import name_labels
from glassbert.checkpoints.locate import CONFIG, INDEX, SAVING, SHARDS, WEIGHTS
from glassbert.checkpoints.sentence import write_modules
from glassbert.errors import CheckpointError
from glassbert.models.model import Model

METADATA = {"format": "pt"}  # transformers asks for it
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def to_huggingface(model: Model, tensors: Mapping[str, Array] | None = None) -> dict[str, np.ndarray]:
    """The weights, or given arrays keyed by our names (gradients, say), under Hugging Face's names and in its layout.

    The names are those of `named_parameters()` of the class in transformers, so a tied weight appears once, as the
    embedding; its gradient is the sum of both uses. An untied BERT has an idle `cls.predictions.bias` in
    transformers 5, which gets a copy of the decoder's bias among the weights and does not appear among given arrays.
    """
    described = describe(model)
    file_format, obstacles = format_of_model(described, list(model.layout.shapes))
    if not isinstance(file_format, HuggingFaceFormat):
        raise CheckpointError(f"Hugging Face has no class for this model: {'; '.join(obstacles)}")
    given = model.parameters if tensors is None else tensors
    for name, array in given.items():
        if name not in model.layout.shapes:
            raise CheckpointError(f"{name!r} is no parameter of this model")
        if tuple(array.shape) != model.layout.shapes[name]:
            raise CheckpointError(f"{name!r} must have the shape {model.layout.shapes[name]}, got {tuple(array.shape)}")
    return {name: np.array(array) for name, array in _in_file(model, file_format, given, weights=tensors is None)}


def _in_file(
    model: Model, file_format: Format, tensors: Mapping[str, Array], weights: bool
) -> Iterator[tuple[str, np.ndarray]]:
    described = describe(model)
    prefix = file_format.prefix_for(described.head)
    for ours, entry in file_format.entries(described.config, described.head, tensors, prefix).items():
        array = model.engine.to_numpy(tensors[ours])
        array = file_format.outward(described, ours, array) if weights else array
        for name, part in zip(entry.theirs, np.split(array, len(entry.theirs)), strict=True):
            yield name, part
        for name in entry.copies if weights else ():
            yield name, array


def save_model(
    model: Model,
    folder: str | Path,
    *,
    labels: Sequence[str] | None = None,
    tokenizer: Any = None,
    max_shard_size: int | str = "5GB",
) -> None:
    """Write config.json and model.safetensors (or shards of at most `max_shard_size` with an index) into `folder`.

    The layout is that of Hugging Face wherever it has a class that computes the same, and our own elsewhere. Settings
    that only matter in training and that transformers cannot express (another dropout for the embeddings, an
    initialisation) are kept in config.json under "glassbert". Other files in the folder are left alone.

    A head for embeddings is written as a folder of sentence-transformers. `labels` names the outputs of a head, for
    whoever opens the model, and the files of `tokenizer` travel along.
    """
    if labels is not None:
        name_labels(model, labels)
    folder = Path(folder)
    limit = _bytes(max_shard_size)
    described = describe(model)
    file_format, _ = format_of_model(described, list(model.layout.shapes))
    tensors = {
        name: np.ascontiguousarray(array)
        for name, array in _in_file(model, file_format, model.parameters, weights=True)
    }
    dtype = str(next(iter(tensors.values())).dtype)
    fields = {**file_format.write(described), "dtype": dtype}
    if isinstance(file_format, HuggingFaceFormat):
        fields["torch_dtype"] = dtype  # the name of the key in transformers 4
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=SAVING, dir=folder))
        try:
            _write_files(aside, tensors, fields, limit)
            _move_into_place(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"the model could not be saved in {folder}: {error}") from error
    for left_behind in folder.glob(SAVING + "*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    if tokenizer is not None:
        tokenizer.save(folder)
    if described.head == EMBEDDING and isinstance(file_format, HuggingFaceFormat):
        write_modules(folder, described.config)


def _write_files(aside: Path, tensors: dict[str, np.ndarray], fields: dict[str, Any], limit: int) -> None:
    shards = _shards(tensors, limit)
    if len(shards) == 1:
        save_file(tensors, aside / WEIGHTS, metadata=METADATA)
    else:
        places = {}
        for number, names in enumerate(shards, 1):
            shard = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            save_file({name: tensors[name] for name in names}, aside / shard, metadata=METADATA)
            places.update(dict.fromkeys(names, shard))
        total = sum(array.nbytes for array in tensors.values())
        _write_json(aside / INDEX, {"metadata": {"total_size": total}, "weight_map": places})
    _write_json(aside / CONFIG, fields)
    for path in aside.iterdir():
        shutil.copymode(aside / CONFIG, path)  # safetensors writes files for the owner alone
        _flush(path)


def _shards(tensors: Mapping[str, np.ndarray], limit: int) -> list[list[str]]:
    """The names, in their order, in runs of at most `limit` bytes; a larger tensor is a run of its own."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, array in tensors.items():
        if shards[-1] and size + array.nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += array.nbytes
    return shards


def _move_into_place(aside: Path, folder: Path) -> None:
    """Replace the checkpoint in `folder` by the one in `aside`.

    Where only the weights differ, as they do when a training run saves again, that is one atomic replacement. Elsewhere
    config.json goes first and comes last: without it nobody takes the folder for a model. The old files wait aside, and
    return if anything goes wrong.
    """
    new = {path.name for path in aside.iterdir()}
    old = {path.name for pattern in (CONFIG, WEIGHTS, INDEX, SHARDS) for path in folder.glob(pattern)}
    changed = [name for name in new if not _same_text(aside / name, folder / name)]
    if len(changed) == 1 and not old - new:
        os.replace(aside / changed[0], folder / changed[0])
        _flush(folder)
        return
    waiting = aside / "replaced"
    waiting.mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        for names, source, target in ((_config_first(old), folder, waiting), (_config_first(new)[::-1], aside, folder)):
            for name in names:
                os.replace(source / name, target / name)
                moved.append((source / name, target / name))
        _flush(folder)
    except BaseException:
        for origin, place in reversed(moved):
            os.replace(place, origin)
        raise


def _config_first(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != CONFIG, name))


def _same_text(one: Path, other: Path) -> bool:
    return one.suffix == ".json" and other.exists() and one.read_bytes() == other.read_bytes()


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _flush(path: Path) -> None:
    """Ask the system to bring a file or folder to the disk. Not every file system lets folders be asked."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _bytes(size: int | str) -> int:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
    if not found or found[2].upper() not in UNITS or float(found[1]) <= 0:
        raise CheckpointError(f"max_shard_size must be a number of bytes or like '5GB', got {size!r}")
    return int(float(found[1]) * UNITS[found[2].upper()])
