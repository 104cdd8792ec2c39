"""Find the config and the tensors of a checkpoint, given a path, the name of a packaged model, or a hub id.

A path that exists is always taken first, then a model that ships with the package, then the hub.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassbert import files
from glassbert.checkpoints.packaged import did_you_mean, packaged_folder
from glassbert.checkpoints.quantized import joined
from glassbert.checkpoints.stored import StoredTensor, open_safetensors
from glassbert.errors import CheckpointError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS = "model-*-of-*.safetensors"
MODULES = "modules.json"  # of sentence-transformers
SAVING = ".glassbert-saving-"  # prefix of the folder that a save in progress, or an interrupted one, uses

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
OTHER_WEIGHTS = (".h5", ".msgpack", ".onnx", ".ot", ".npz")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
SENTENCE_FILES = (MODULES, "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json")
# The files of a model folder that have checksums: those that change what the model answers.
MODEL_FILES = (CONFIG, WEIGHTS, INDEX, SHARDS, *TOKENIZER_FILES, *SENTENCE_FILES, "task.json")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class Checkpoint:
    """The config and the tensors of a folder. The files are checked, but not whether they fit a model."""

    config_path: Path
    fields: dict[str, Any]
    tensors: dict[str, StoredTensor]


def open_checkpoint(path_or_hub_id: str | Path, revision: str | None = None) -> Checkpoint:
    """Open a folder, a .safetensors file in a folder with config.json, a packaged model, or a model of the hub."""
    path = Path(path_or_hub_id).expanduser()
    if not os.path.exists(path):  # false for a name that is too long to be a path
        path = packaged_folder(str(path_or_hub_id)) or _download(str(path_or_hub_id), revision)
    path = _in_run(path)
    weights = None
    if path.is_file():
        if path.suffix != ".safetensors" and not path.name.endswith(".safetensors.index.json"):
            raise CheckpointError(_how_to_convert(path, path.parent))
        path, weights = path.parent, path
    if weights is None and not (path / CONFIG).exists():
        path = _first_module(path)
    config_path = path / CONFIG
    if not config_path.exists():
        interrupted = [] if weights else sorted(path.glob(SAVING + "*"))
        hint = f"; a save was interrupted here, and its files are in {interrupted[0]}" if interrupted else ""
        if (path / "settings.json").exists() and not any((path / name).exists() for name in ("model", "result.json")):
            raise CheckpointError(f"the run {path} has no model yet; it goes on with: glassbert resume {path}")
        raise CheckpointError(f"there is no {CONFIG} in {path}{hint}")
    fields = read_json(config_path)
    weights = weights or _find_weights(path)
    tensors = _open_shards(weights) if weights.suffix == ".json" else open_safetensors(weights)
    try:
        return Checkpoint(config_path, fields, joined(fields, tensors))
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _in_run(path: Path) -> Path:
    """The model folder of a training run: the final model, or its newest checkpoint. Other paths are unchanged."""
    if not (path / "settings.json").exists() or (path / CONFIG).exists():
        return path
    if (path / "model" / CONFIG).exists():
        return path / "model"
    return max(path.glob("checkpoints/step-*"), key=lambda step: step.name, default=path)


def _first_module(path: Path) -> Path:
    """The folder of the encoder: a subfolder in old folders of sentence-transformers."""
    first = (read_list(path / MODULES) or [None])[0] if (path / MODULES).exists() else None
    inside = inside_folder(path, first["path"]) if isinstance(first, dict) and first.get("path") else path
    return inside if inside is not None and (inside / CONFIG).exists() else path


def inside_folder(folder: Path, name: Any) -> Path | None:
    """The subfolder of a module; None where the name is not that of a direct subfolder."""
    plain = isinstance(name, str) and Path(name).name == name and name not in ("", ".", "..")
    return folder / name if plain and "\0" not in name else None


def model_files(folder: Path) -> list[str]:
    """The names of the files of a model in a folder that have checksums."""
    return [path.relative_to(folder).as_posix() for pattern in MODEL_FILES for path in folder.glob(pattern)]


def verify_model(folder: Path) -> None:
    """Raise if a file of the model differs from `checksums.json`; the rest of a training checkpoint is left out."""
    listed = files.read_checksums(folder, CheckpointError) if files.verifying() else None
    if listed:
        names = [name for name in listed if any(Path(name).match(pattern) for pattern in MODEL_FILES)]
        files.verify_checksums(folder, CheckpointError, names)


def read_json(path: Path) -> dict[str, Any]:
    return files.read_json(path, CheckpointError)


def read_list(path: Path) -> list[Any]:
    return files.read_json(path, CheckpointError, list)


def _find_weights(folder: Path) -> Path:
    for name in (WEIGHTS, INDEX):
        if (folder / name).exists():
            return folder / name
    others = sorted(folder.glob("*.safetensors"))
    if len(others) == 1:
        return others[0]
    if others:
        names = ", ".join(path.name for path in others)
        raise CheckpointError(f"{folder} has neither {WEIGHTS} nor {INDEX}; give the path of one file: {names}")
    for path in sorted(folder.iterdir()):
        if path.suffix in PICKLES + OTHER_WEIGHTS:
            raise CheckpointError(_how_to_convert(path, folder))
    if any(folder.glob("onnx/*.onnx")):
        raise CheckpointError(
            f"there is no {WEIGHTS} in {folder}, only an exported graph; the predictor's engine 'onnxruntime' runs it: "
            "glassbert predict --engine onnxruntime"
        )
    raise CheckpointError(f"there is no {WEIGHTS} in {folder}")


def _open_shards(index_path: Path) -> dict[str, StoredTensor]:
    shard_of = read_json(index_path).get("weight_map")
    if not isinstance(shard_of, dict) or not all(isinstance(name, str) for name in shard_of.values()):
        raise CheckpointError(f"{index_path} has no 'weight_map' from tensors to files")
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(shard_of.values())):
        if Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise CheckpointError(f"{index_path} names {shard!r}, which is not a .safetensors file in its folder")
        if not (index_path.parent / shard).exists():
            raise CheckpointError(f"{index_path} names {shard}, but its folder has no such file")
        for name, tensor in open_safetensors(index_path.parent / shard).items():
            if shard_of.get(name) != shard:
                raise CheckpointError(f"tensor {name!r} is in {shard}, but not according to {index_path.name}")
            tensors[name] = tensor
    for name, shard in shard_of.items():
        if name not in tensors:
            raise CheckpointError(f"tensor {name!r} is missing from {shard}, which {index_path.name} names for it")
    return tensors


def _how_to_convert(path: Path, folder: Path) -> str:
    if path.suffix not in PICKLES + OTHER_WEIGHTS:
        return f"{path} is neither a folder nor a .safetensors file"
    why = "is a pickle, which can run arbitrary code when opened" if path.suffix in PICKLES else "is not safetensors"
    architecture = "AutoModel"
    if (folder / CONFIG).exists():
        named = read_json(folder / CONFIG).get("architectures") or [architecture]
        architecture = str(named[0])
    return (
        f"{path} {why}; GlassBERT opens only .safetensors. If you trust the file, convert it once where PyTorch and "
        f"transformers are installed:\n\n"
        f"    from transformers import {architecture}\n"
        f"    {architecture}.from_pretrained({str(folder)!r}).save_pretrained({str(folder) + '-safetensors'!r})\n"
    )


def _download(name: str, revision: str | None) -> Path:
    if not HUB_ID.fullmatch(name):
        raise CheckpointError(f"there is no file or folder {name}{did_you_mean(name)}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise CheckpointError(
            f"there is no folder {name!r} here{did_you_mean(name) or '.'} If it is a model of the Hugging Face hub, "
            f"fetching it needs huggingface_hub: pip install huggingface_hub"
        ) from error
    try:
        wanted = [CONFIG, WEIGHTS, INDEX, SHARDS, MODULES, f"*/{CONFIG}", *TOKENIZER_FILES]
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except Exception as error:  # HTTP, network, cache and validation errors share no base class
        raise CheckpointError(
            f"there is no folder {name!r} here{did_you_mean(name) or '.'} The Hugging Face hub did not return a model "
            f"of that name: {type(error).__name__}: {error}"
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise CheckpointError(
            f"{name!r} on the Hugging Face hub has no safetensors file. If you trust its pickle, convert it once where "
            f"PyTorch and transformers are installed:\n\n"
            f"    from transformers import AutoModel\n"
            f"    AutoModel.from_pretrained({name!r}).save_pretrained({name.rsplit('/')[-1]!r})\n\n"
            f"(AutoModelForMaskedLM and the like keep a head) and load that folder."
        )
    return folder
