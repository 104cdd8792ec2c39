"""Files of adapters in the layout of the library `peft`: adapter_config.json and adapter_model.safetensors.

    base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight     A
    base_model.model.bert.encoder.layer.0.attention.self.query.lora_B.weight     B
    base_model.model.classifier.weight                                           the head, which is trained in full

`peft` has one pair A, B for each matrix of the model's file. Several adapters of one such matrix (ModernBERT's Wqkv
holds queries, keys and values) are written as one adapter of the sum of their ranks: the A's stacked, the B's side by
side, each in its own rows and zero elsewhere, which is the same change. The header of the tensors lists the original
adapters, so that training continues with the same parameters.

The attention of XLNet has its matrices in no module, and `peft` adapts modules alone: it does not open such a folder,
GlassBERT does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from glassbert.checkpoints.description import describe
from glassbert.checkpoints.formats import format_of_model
from glassbert.checkpoints.locate import read_json
from glassbert.checkpoints.names import list_names
from glassbert.checkpoints.stored import StoredTensor, open_safetensors
from glassbert.errors import CheckpointError
from glassbert.files import CHECKSUMS, atomic_write, verify_checksums, write_checksums, write_json
from glassbert.finetuning.low_rank.adapted import FULLY_TRAINED, MATRICES, LowRank, adapter_of, check_plain
from glassbert.finetuning.low_rank.gradients import Adapter
from glassbert.models.model import Model

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
ADAPTERS_KEY = "glassbert"  # in the header of the tensors: [layer, target, rank, scale] of every adapter
TASKS = {"core": "FEATURE_EXTRACTION", "sequence": "SEQ_CLS", "token": "TOKEN_CLS", "span": "QUESTION_ANS"}
SUPPORTED = {"use_dora": False, "bias": "none", "lora_bias": False, "use_qalora": False, "layer_replication": None}


class Module(NamedTuple):
    """A matrix in the file of the model: its name there, and the rows of our matrix `weight` that it holds."""

    name: str
    weight: str
    rows: slice
    part: int
    parts: int
    transposed: bool  # the file has [input, output]: a Conv1D of GPT-2


class Names(NamedTuple):
    """Names of a model in its file.

    modules         the matrices of the layers by their name in the file
    fully_trained   name in the file -> our name, for every tensor of the head
    head_modules    the modules of the head in the file
    to_file         (our name, values) -> values in the file; `from_file` is the inverse
    """

    modules: dict[str, Module]
    fully_trained: dict[str, str]
    head_modules: list[str]
    to_file: Callable[[str, np.ndarray], np.ndarray]
    from_file: Callable[[str, np.ndarray], np.ndarray]


def names_of(model: Model) -> Names:
    described = describe(model)
    file_format, _ = format_of_model(described, list(model.layout.shapes))
    prefix = file_format.prefix_for(described.head)
    modules, fully_trained = {}, {}
    for ours, entry in file_format.entries(described.config, described.head, model.layout.shapes, prefix).items():
        if ours.startswith(FULLY_TRAINED):
            fully_trained[entry.theirs[0]] = ours
        elif ours.startswith("layers.") and len(model.layout.shapes[ours]) == 2:
            count = len(entry.theirs)
            size = model.layout.shapes[ours][0] // count
            for i, theirs in enumerate(entry.theirs):
                name = theirs.removesuffix(".weight")
                rows, transposed = slice(i * size, (i + 1) * size), entry.transposed and not entry.by_heads
                modules[name] = Module(name, ours, rows, i, count, transposed)
    head_modules = dict.fromkeys(theirs.removeprefix(prefix).split(".")[0] for theirs in fully_trained)
    to_file, from_file = partial(file_format.to_file, described), partial(file_format.from_file, described)
    return Names(modules, fully_trained, list(head_modules), to_file, from_file)


# ---- writing ---------------------------------------------------------------------------------------------------------


def save_adapters(model: LowRank, folder: str | Path, *, base_model: str | None = None) -> None:
    """Write the adapters and the head; `base_model` is the path or hub id of the base model for `peft`."""
    folder = Path(folder)
    names = names_of(model.base)
    tensors, ranks, scales = _tensors(model, names)
    common_rank = max(ranks.values(), key=list(ranks.values()).count)
    scale = scales[next(module for module, rank in ranks.items() if rank == common_rank)]
    alphas = {module: _alpha(scales[module] * rank) for module, rank in ranks.items()}
    config = {
        "peft_type": "LORA",
        "task_type": TASKS.get(model.head.kind if model.head else "core"),
        "base_model_name_or_path": base_model,
        "inference_mode": True,
        "r": common_rank,
        "lora_alpha": _alpha(scale * common_rank),
        "rank_pattern": {module: rank for module, rank in ranks.items() if rank != common_rank},
        "alpha_pattern": {module: alpha for module, alpha in alphas.items() if alpha != _alpha(scale * common_rank)},
        "target_modules": list(ranks),
        "modules_to_save": names.head_modules or None,
        "lora_dropout": 0.0,
        "fan_in_fan_out": all(names.modules[module].transposed for module in ranks),
        "use_rslora": False,
        **SUPPORTED,
    }
    adapters = [[int(one.weight.split(".")[1]), one.target, one.rank, one.scale] for one in model.all_adapters]
    (folder / CHECKSUMS).unlink(missing_ok=True)
    with atomic_write(folder / WEIGHTS, "wb") as file:
        file.write(save(tensors, {"format": "pt", ADAPTERS_KEY: json.dumps(adapters)}))
    write_json(folder / CONFIG, config)
    write_checksums(folder, (WEIGHTS, CONFIG))


def _tensors(model: LowRank, names: Names) -> tuple[dict[str, np.ndarray], dict[str, int], dict[str, float]]:
    """All trained tensors by name in the file, and the rank and scale of every module."""
    to_numpy = model.engine.to_numpy
    tensors, ranks, scales = {}, {}, {}
    for module in names.modules.values():
        own = list(_adapters_in(module, model))
        if own:
            ranks[module.name] = sum(adapter.rank for adapter in own)
            scales[module.name] = own[0].scale
            a = np.concatenate([to_numpy(model.parameters[adapter.a]) for adapter in own])  # [R, I]
            b = np.zeros((module.rows.stop - module.rows.start, len(a)), a.dtype)  # [O, R]
            for adapter, here, there, columns in _blocks(module, own):
                b[here, columns] = to_numpy(model.parameters[adapter.b])[there]
            tensors[f"{PREFIX}{module.name}.lora_A.weight"] = a
            tensors[f"{PREFIX}{module.name}.lora_B.weight"] = b
    for theirs, ours in names.fully_trained.items():
        tensors[PREFIX + theirs] = np.ascontiguousarray(names.to_file(ours, to_numpy(model.parameters[ours])))
    return tensors, ranks, scales


def _adapters_in(module: Module, model: LowRank) -> Iterator[Adapter]:
    for adapter in model.adapters.get(module.weight, ()):
        if adapter.rows.start < module.rows.stop and adapter.rows.stop > module.rows.start:
            yield adapter


def _blocks(module: Module, adapters: list[Adapter]) -> Iterator[tuple[Adapter, slice, slice, slice]]:
    """For every adapter: its rows in the module's B, the same rows in its own B, and its columns in the module's B."""
    done = 0
    for adapter in adapters:
        start, stop = max(adapter.rows.start, module.rows.start), min(adapter.rows.stop, module.rows.stop)
        here = slice(start - module.rows.start, stop - module.rows.start)
        there = slice(start - adapter.rows.start, stop - adapter.rows.start)
        yield adapter, here, there, slice(done, done + adapter.rank)
        done += adapter.rank


def _alpha(value: float) -> float | int:
    return round(value) if abs(value - round(value)) < 1e-9 else value


# ---- reading ---------------------------------------------------------------------------------------------------------


def load_adapters(model: LowRank, folder: str | Path) -> None:
    """Load adapters with the same targets and ranks; if one does not fit, the model is unchanged."""
    other = open_adapters(model.base, folder)
    if other.layout.shapes != model.layout.shapes or other.adapters != model.adapters:
        raise CheckpointError(
            f"{folder} has other adapters than this model: {other!r} there, {model!r} here; "
            f"LowRank.load(model, folder) loads them"
        )
    for name, value in other.parameters.items():
        model.parameters[name] = value


def open_adapters(model: Model, folder: str | Path) -> LowRank:
    check_plain(model)
    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise CheckpointError(f"there is no {name} in {folder}, so it is not a folder of adapters")
    verify_checksums(folder, CheckpointError, (CONFIG, WEIGHTS))
    config = read_json(folder / CONFIG)
    _check_kind(config, folder)
    stored = open_safetensors(folder / WEIGHTS)
    with safe_open(folder / WEIGHTS, framework="np") as file:
        header = (file.metadata() or {}).get(ADAPTERS_KEY)
    try:
        return _open(model, stored, config, header)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error


def _open(model: Model, stored: dict[str, StoredTensor], config: dict[str, Any], header: str | None) -> LowRank:
    names = names_of(model)
    if header:
        adapters = _adapters_of_header(model, header)
    else:
        adapters = _adapters_of_modules(model, names.modules, stored, config)
    opened = LowRank.__new__(LowRank)
    opened._attach(model, adapters)
    expected, _, _ = _tensors(opened, names)
    optional = () if header else [PREFIX + theirs for theirs in names.fully_trained]  # `peft` may not train the head
    missing = [name for name in expected if name not in stored and name not in optional]
    unknown = [name for name in stored if name not in expected]
    if missing or unknown:
        problem = (
            f"tensors are missing: {list_names(missing)}" if missing else f"unknown tensors: {list_names(unknown)}"
        )
        raise CheckpointError(f"{problem}; these are adapters of another model")
    for name, tensor in stored.items():
        if tensor.shape != expected[name].shape:
            wanted = list(expected[name].shape)
            raise CheckpointError(f"tensor {name!r} has the shape {list(tensor.shape)}, but this model needs {wanted}")
    for module in names.modules.values():
        own = list(_adapters_in(module, opened))
        if own:
            a, b = (stored[f"{PREFIX}{module.name}.lora_{letter}.weight"].read() for letter in "AB")
            for adapter, here, there, columns in _blocks(module, own):
                values = np.array(opened.engine.to_numpy(opened.parameters[adapter.b]))
                values[there] = b[here, columns]
                opened.parameters[adapter.a] = opened.engine.array(np.array(a[columns]))
                opened.parameters[adapter.b] = opened.engine.array(values)
    for theirs, ours in names.fully_trained.items():
        if PREFIX + theirs in stored:
            values = names.from_file(ours, np.array(stored[PREFIX + theirs].read()))
            opened.parameters[ours] = opened.engine.array(values)
    return opened


def _check_kind(config: dict[str, Any], folder: Path) -> None:
    if config.get("peft_type") != "LORA":
        raise CheckpointError(
            f"{folder} has adapters of the kind {config.get('peft_type')!r}; GlassBERT supports 'LORA'"
        )
    for key, value in SUPPORTED.items():
        if config.get(key, value) != value:
            raise CheckpointError(f"{folder / CONFIG}: {key} is {config[key]!r}; GlassBERT supports only {value!r}")


def _adapters_of_header(model: Model, header: str) -> list[Adapter]:
    """The original adapters of a file that GlassBERT wrote."""
    layers = model.config.groups
    try:
        rows = [(int(layer), str(target), int(rank), float(s)) for layer, target, rank, s in json.loads(header)]
        fits = all(0 <= layer < layers and target in MATRICES and rank > 0 for layer, target, rank, _ in rows)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"the header of {WEIGHTS} has an invalid list of adapters: {error}") from error
    if not fits or not rows:
        raise CheckpointError(f"the header of {WEIGHTS} lists adapters that a model of {layers} layers cannot have")
    return [adapter_of(model, layer, target, rank, scale) for layer, target, rank, scale in rows]


def _adapters_of_modules(
    model: Model, modules: dict[str, Module], stored: dict[str, StoredTensor], config: dict[str, Any]
) -> list[Adapter]:
    """One adapter for each module of a file that `peft` wrote."""
    targets = {matrix: target for target, matrix in MATRICES.items()}
    adapters = []
    for module in modules.values():
        a = stored.get(f"{PREFIX}{module.name}.lora_A.weight")
        if a is not None:
            _, layer, matrix = module.weight.removesuffix(".weight").split(".", 2)
            target = targets[matrix, module.part, module.parts]
            rank = a.shape[0] if len(a.shape) == 2 else 0
            adapters.append(adapter_of(model, int(layer), target, rank, _scale(config, module.name, rank)))
    if not adapters:
        raise CheckpointError(f"no tensor belongs to a matrix of this model: {list_names(list(stored))}")
    return adapters


def _scale(config: dict[str, Any], module: str, rank: int) -> float:
    patterns = config.get("alpha_pattern") or {}
    fits = (alpha for pattern, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({pattern})", module))
    alpha = next(fits, config.get("lora_alpha"))
    if rank < 1 or isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or alpha <= 0:
        raise CheckpointError(
            f"the adapter of {module} has the rank {rank} and lora_alpha {alpha!r}; they must be above 0"
        )
    return float(alpha) / (rank**0.5 if config.get("use_rslora") else rank)
