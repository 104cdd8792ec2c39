"""Saving checkpoints: written to a staging folder, then moved, so that a crash leaves no half-written checkpoint."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from glassbert.arrays import Array
from glassbert.checkpoints.description import describe, name_labels
from glassbert.checkpoints.formats import EMBEDDING, Format, HuggingFaceFormat, NativeFormat, format_of_model
from glassbert.checkpoints.locate import CONFIG, INDEX, SAVING, SENTENCE_FILES, SHARDS, WEIGHTS
from glassbert.checkpoints.quantized import SECTION, section_of, tensors_of
from glassbert.checkpoints.sentence import write_modules
from glassbert.errors import CheckpointError, GlassBertError
from glassbert.files import CHECKSUMS, adding_files, read_checksums, write_checksums
from glassbert.models.model import Model
from glassbert.models.quantized import quantized_parameters

METADATA = {"format": "pt"}  # required by transformers
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def to_huggingface(model: Model, tensors: Mapping[str, Array] | None = None) -> dict[str, np.ndarray]:
    """The weights, or other arrays keyed by our names (such as gradients), under the names of Hugging Face.

    The names are those of `named_parameters()` of the class in transformers, so a tied weight appears once, as the
    embedding; its gradient is the sum of both uses. An untied BERT has an unused `cls.predictions.bias` in
    transformers 5: the weights contain a copy of the decoder's bias there, other arrays do not.
    """
    described = describe(model)
    file_format, obstacles = format_of_model(described, list(model.layout.shapes))
    if not isinstance(file_format, HuggingFaceFormat):
        raise CheckpointError(f"Hugging Face has no class for this model: {'; '.join(obstacles)}")
    given = model.parameters if tensors is None else tensors
    for name, array in given.items():
        if name not in model.layout.shapes:
            raise CheckpointError(f"{name!r} is not a parameter of this model")
        if tuple(array.shape) != model.layout.shapes[name]:
            raise CheckpointError(f"{name!r} must have the shape {model.layout.shapes[name]}, got {tuple(array.shape)}")
    return {name: np.array(array) for name, array in _file_tensors(model, file_format, given, weights=tensors is None)}


def _file_tensors(
    model: Model, file_format: Format, tensors: Mapping[str, Array], weights: bool
) -> Iterator[tuple[str, np.ndarray]]:
    described = describe(model)
    prefix = file_format.prefix_for(described.head)
    for ours, entry in file_format.entries(described.config, described.head, tensors, prefix).items():
        array = model.engine.to_numpy(tensors[ours])
        array = file_format.to_file(described, ours, array) if weights else array
        for name, part in zip(entry.theirs, np.split(array, len(entry.theirs)), strict=True):
            yield name, entry.laid_out(part, described.config.num_attention_heads)
        for name in entry.copies if weights else ():
            yield name, array


def save_model(
    model: Model,
    folder: str | Path,
    *,
    labels: Sequence[str] | None = None,
    tokenizer: Any = None,
    max_shard_size: int | str = "5GB",
    dtype: str | None = None,
) -> None:
    """Write config.json and model.safetensors (or shards of at most `max_shard_size` with an index) into `folder`.

    The format is that of Hugging Face if it has a class that computes the same, and our own otherwise. Settings that
    only matter in training and that transformers cannot express (another dropout for the embeddings, an
    initialisation) are stored in config.json under "glassbert". Other files in the folder are not changed.
    checksums.json lists the files of the model, so that `load` notices when one of them changes.

    A model with an embedding head is written as a folder of sentence-transformers. `labels` names the outputs of the
    head (id2label), and the files of `tokenizer` are written too. `dtype` is the precision of the file, "float32" or
    "float16"; by default that of the model.
    """
    if dtype not in (None, "float16", "float32", "float64"):
        raise CheckpointError(f"a file has the precision float16, float32 or float64, not {dtype!r}")
    if labels is not None:
        name_labels(model, labels)
    folder = Path(folder)
    limit = _bytes(max_shard_size)
    described = describe(model)
    quantized = quantized_parameters(model)
    file_format: Format = NativeFormat() if quantized else format_of_model(described, list(model.layout.shapes))[0]
    floats = {name: array for name, array in model.parameters.items() if name not in quantized}
    tensors = {
        name: np.ascontiguousarray(array, dtype)
        for name, array in _file_tensors(model, file_format, floats, weights=True)
    }
    overflown = [name for name, array in tensors.items() if dtype == "float16" and not np.isfinite(array).all()]
    if overflown:
        raise CheckpointError(f"{overflown[0]} has values beyond the range of float16; save it as float32")
    dtype = str(next(iter(tensors.values())).dtype)
    fields = {**file_format.write(described), "dtype": dtype}
    for name, weight in quantized.items():
        tensors |= tensors_of(name, weight)
    if quantized:
        fields[SECTION] = section_of(quantized)
    if isinstance(file_format, HuggingFaceFormat):
        fields["torch_dtype"] = dtype  # the name of the key in transformers 4
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=SAVING, dir=folder))
        try:
            _write_files(staging, tensors, fields, limit)
            write_checksums(staging, [path.name for path in staging.iterdir()], _other_checksums(folder))
            _replace_checkpoint(staging, folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except (OSError, SafetensorError, GlassBertError) as error:
        raise CheckpointError(f"the model could not be saved in {folder}: {error}") from error
    for leftover in folder.glob(SAVING + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if tokenizer is not None:
        tokenizer.save(folder)
    if described.head == EMBEDDING and isinstance(file_format, HuggingFaceFormat):
        with adding_files(folder, SENTENCE_FILES):
            write_modules(folder, described.config)


def _write_files(staging: Path, tensors: dict[str, np.ndarray], fields: dict[str, Any], limit: int) -> None:
    shards = _shards(tensors, limit)
    if len(shards) == 1:
        save_file(tensors, staging / WEIGHTS, metadata=METADATA)
    else:
        shard_of = {}
        for number, names in enumerate(shards, 1):
            shard = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            save_file({name: tensors[name] for name in names}, staging / shard, metadata=METADATA)
            shard_of.update(dict.fromkeys(names, shard))
        total = sum(array.nbytes for array in tensors.values())
        _write_json(staging / INDEX, {"metadata": {"total_size": total}, "weight_map": shard_of})
    _write_json(staging / CONFIG, fields)
    for path in staging.iterdir():
        shutil.copymode(staging / CONFIG, path)  # safetensors writes files that only the owner can read
        _flush(path)


def _other_checksums(folder: Path) -> dict[str, dict[str, Any]]:
    """What `checksums.json` of the folder says of files that a save does not replace, such as those of a tokenizer."""
    with suppress(GlassBertError):
        listed = read_checksums(folder) or {}
        return {name: facts for name, facts in listed.items() if not _is_replaced(name)}
    return {}


def _is_replaced(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in (CONFIG, WEIGHTS, INDEX, SHARDS))


def _shards(tensors: Mapping[str, np.ndarray], limit: int) -> list[list[str]]:
    """The names in order, in groups of at most `limit` bytes; a larger tensor is a group of its own."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, array in tensors.items():
        if shards[-1] and size + array.nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += array.nbytes
    return shards


def _replace_checkpoint(staging: Path, folder: Path) -> None:
    """Replace the checkpoint in `folder` by the one in `staging`.

    If only one file changes, as when a training run saves its weights again, it is replaced atomically, without
    checksums in between. Otherwise config.json is removed first and written last: a folder without it is not a
    checkpoint. After an error the old files are moved back.
    """
    new = {path.name for path in staging.iterdir()}
    old = {path.name for pattern in (CONFIG, WEIGHTS, INDEX, SHARDS, CHECKSUMS) for path in folder.glob(pattern)}
    changed = [name for name in new - {CHECKSUMS} if not _same_text(staging / name, folder / name)]
    replaced = staging / "replaced"
    replaced.mkdir()
    moved: list[tuple[Path, Path]] = []
    try:
        if len(changed) <= 1 and not old - new:
            if CHECKSUMS in old:
                os.replace(folder / CHECKSUMS, replaced / CHECKSUMS)
                moved = [(folder / CHECKSUMS, replaced / CHECKSUMS)]
            for name in changed:
                os.replace(staging / name, folder / name)
            moved = []  # the new file is in place, and there is nothing to undo
            os.replace(staging / CHECKSUMS, folder / CHECKSUMS)
            _flush(folder)
            return
        moves = ((_config_first(old), folder, replaced), (_config_first(new)[::-1], staging, folder))
        for names, source, target in moves:
            for name in names:
                os.replace(source / name, target / name)
                moved.append((source / name, target / name))
        _flush(folder)
    except BaseException:
        for source, target in reversed(moved):
            os.replace(target, source)
        raise


def _config_first(names: set[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != CONFIG, name))


def _same_text(one: Path, other: Path) -> bool:
    return one.suffix == ".json" and other.exists() and one.read_bytes() == other.read_bytes()


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _flush(path: Path) -> None:
    """fsync a file or folder. Some file systems do not support it for folders."""
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
        raise CheckpointError(f"max_shard_size must be a number of bytes or a size such as '5GB', got {size!r}")
    return int(float(found[1]) * UNITS[found[2].upper()])
