"""Adapters in files, as the library `peft` lays them out: adapter_config.json and adapter_model.safetensors.

    base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight     A
    base_model.model.bert.encoder.layer.0.attention.self.query.lora_B.weight     B
    base_model.model.classifier.weight                                           what learnt as a whole: the head

`peft` knows matrices as the file of the model has them, and one pair A, B for each. Where several adapters share such a
matrix (ModernBERT's Wqkv holds queries, keys and values), they are written as one of the sum of their ranks: A's on
top of each other, B's side by side, each in its own rows and zero elsewhere, which is the same change. How it was
divided stands in the header of the tensors, so that training goes on with the same parameters.
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
from glassbert.checkpoints.matching import some
from glassbert.checkpoints.stored import StoredTensor, open_safetensors
from glassbert.errors import CheckpointError
from glassbert.files import atomic_write as replacing
from glassbert.files import write_json
from glassbert.finetuning.low_rank.adapted import FULLY_TRAINED, MATRICES, LowRank, adapter_of, check_plain
from glassbert.finetuning.low_rank.gradients import Adapter
from glassbert.models.model import Model

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BEFORE = "base_model.model."
OURS = "glassbert"  # in the header of the tensors: [layer, target, rank, scale] of every adapter
TASKS = {"core": "FEATURE_EXTRACTION", "sequence": "SEQ_CLS", "token": "TOKEN_CLS", "span": "QUESTION_ANS"}
PLAIN = {"use_dora": False, "bias": "none", "lora_bias": False, "use_qalora": False, "layer_replication": None}


class Module(NamedTuple):
    """A matrix as the file of the model has it: its name there, and the rows of ours that it holds."""

    name: str
    weight: str
    rows: slice
    part: int
    parts: int


class Names(NamedTuple):
    """The matrices of the layers by their name in the file, our name for every tensor of the head, and its modules.

    `outward` makes what the file has of a weight of ours, and `inward` the other way round.
    """

    modules: dict[str, Module]
    whole: dict[str, str]
    heads: list[str]
    outward: Callable[[str, np.ndarray], np.ndarray]
    inward: Callable[[str, np.ndarray], np.ndarray]


def names_of(model: Model) -> Names:
    described = describe(model)
    file_format, _ = format_of_model(described, list(model.layout.shapes))
    prefix = file_format.prefix_for(described.head)
    modules, whole = {}, {}
    for ours, entry in file_format.entries(described.config, described.head, model.layout.shapes, prefix).items():
        if ours.startswith(FULLY_TRAINED):
            whole[entry.theirs[0]] = ours
        elif ours.startswith("layers.") and len(model.layout.shapes[ours]) == 2:
            count = len(entry.theirs)
            size = model.layout.shapes[ours][0] // count
            for i, theirs in enumerate(entry.theirs):
                name = theirs.removesuffix(".weight")
                modules[name] = Module(name, ours, slice(i * size, (i + 1) * size), i, count)
    heads = dict.fromkeys(theirs.removeprefix(prefix).split(".")[0] for theirs in whole)
    outward, inward = partial(file_format.outward, described), partial(file_format.inward, described)
    return Names(modules, whole, list(heads), outward, inward)


# ---- writing ---------------------------------------------------------------------------------------------------------


def save_adapters(model: LowRank, folder: str | Path, *, base_model: str | None = None) -> None:
    """`base_model` is the path or hub id under which `peft` finds the model underneath."""
    folder = Path(folder)
    names = names_of(model.base)
    tensors, ranks, scales = _tensors(model, names)
    usual = max(ranks.values(), key=list(ranks.values()).count)
    scale = scales[next(module for module, rank in ranks.items() if rank == usual)]
    alphas = {module: _alpha(scales[module] * rank) for module, rank in ranks.items()}
    config = {
        "peft_type": "LORA",
        "task_type": TASKS.get(model.head.kind if model.head else "core"),
        "base_model_name_or_path": base_model,
        "inference_mode": True,
        "r": usual,
        "lora_alpha": _alpha(scale * usual),
        "rank_pattern": {module: rank for module, rank in ranks.items() if rank != usual},
        "alpha_pattern": {module: alpha for module, alpha in alphas.items() if alpha != _alpha(scale * usual)},
        "target_modules": list(ranks),
        "modules_to_save": names.heads or None,
        "lora_dropout": 0.0,
        "fan_in_fan_out": False,
        "use_rslora": False,
        **PLAIN,
    }
    divided = [[int(one.weight.split(".")[1]), one.target, one.rank, one.scale] for one in model.all_adapters]
    with replacing(folder / WEIGHTS, "wb") as file:
        file.write(save(tensors, {"format": "pt", OURS: json.dumps(divided)}))
    write_json(folder / CONFIG, config)


def _tensors(model: LowRank, names: Names) -> tuple[dict[str, np.ndarray], dict[str, int], dict[str, float]]:
    """Everything that learns under its name in the file, and the rank and scale of every module."""
    number = model.engine.to_numpy
    tensors, ranks, scales = {}, {}, {}
    for module in names.modules.values():
        mine = list(_inside(module, model))
        if mine:
            ranks[module.name] = sum(adapter.rank for adapter in mine)
            scales[module.name] = mine[0].scale
            a = np.concatenate([number(model.parameters[adapter.a]) for adapter in mine])  # [R, I]
            b = np.zeros((module.rows.stop - module.rows.start, len(a)), a.dtype)  # [O, R]
            for adapter, here, there, columns in _blocks(module, mine):
                b[here, columns] = number(model.parameters[adapter.b])[there]
            tensors[f"{BEFORE}{module.name}.lora_A.weight"] = a
            tensors[f"{BEFORE}{module.name}.lora_B.weight"] = b
    for theirs, ours in names.whole.items():
        tensors[BEFORE + theirs] = np.ascontiguousarray(names.outward(ours, number(model.parameters[ours])))
    return tensors, ranks, scales


def _inside(module: Module, model: LowRank) -> Iterator[Adapter]:
    for adapter in model.adapters.get(module.weight, ()):
        if adapter.rows.start < module.rows.stop and adapter.rows.stop > module.rows.start:
            yield adapter


def _blocks(module: Module, adapters: list[Adapter]) -> Iterator[tuple[Adapter, slice, slice, slice]]:
    """For every adapter: its rows in the module's B, the same rows of its own B, and its columns in the module's B."""
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
    """Take adapters of the same targets and ranks; nothing changes unless all of them fit."""
    other = open_adapters(model.base, folder)
    if other.layout.shapes != model.layout.shapes or other.adapters != model.adapters:
        raise CheckpointError(
            f"{folder} holds other adapters than this model has: {other!r} there, {model!r} here; "
            f"LowRank.load(model, folder) opens them"
        )
    for name, value in other.parameters.items():
        model.parameters[name] = value


def open_adapters(model: Model, folder: str | Path) -> LowRank:
    check_plain(model)
    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise CheckpointError(f"there is no {name} in {folder}, so it holds no adapters")
    config = read_json(folder / CONFIG)
    _check_kind(config, folder)
    stored = open_safetensors(folder / WEIGHTS)
    with safe_open(folder / WEIGHTS, framework="np") as file:
        divided = (file.metadata() or {}).get(OURS)
    try:
        return _open(model, stored, config, divided)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error


def _open(model: Model, stored: dict[str, StoredTensor], config: dict[str, Any], divided: str | None) -> LowRank:
    names = names_of(model)
    adapters = _as_divided(model, divided) if divided else _as_modules(model, names.modules, stored, config)
    opened = LowRank.__new__(LowRank)
    opened._attach(model, adapters)
    expected, _, _ = _tensors(opened, names)
    optional = () if divided else [BEFORE + theirs for theirs in names.whole]  # its head may have stood still
    missing = [name for name in expected if name not in stored and name not in optional]
    unknown = [name for name in stored if name not in expected]
    if missing or unknown:
        what = f"tensors are missing: {some(missing)}" if missing else f"nobody here knows the tensors {some(unknown)}"
        raise CheckpointError(f"{what}; are these the adapters of this model?")
    for name, tensor in stored.items():
        if tensor.shape != expected[name].shape:
            wanted = list(expected[name].shape)
            raise CheckpointError(f"tensor {name!r} has the shape {list(tensor.shape)}, and this model needs {wanted}")
    for module in names.modules.values():
        mine = list(_inside(module, opened))
        if mine:
            a, b = (stored[f"{BEFORE}{module.name}.lora_{letter}.weight"].read() for letter in "AB")
            for adapter, here, there, columns in _blocks(module, mine):
                values = np.array(opened.engine.to_numpy(opened.parameters[adapter.b]))
                values[there] = b[here, columns]
                opened.parameters[adapter.a] = opened.engine.array(np.array(a[columns]))
                opened.parameters[adapter.b] = opened.engine.array(values)
    for theirs, ours in names.whole.items():
        if BEFORE + theirs in stored:
            values = names.inward(ours, np.array(stored[BEFORE + theirs].read()))
            opened.parameters[ours] = opened.engine.array(values)
    return opened


def _check_kind(config: dict[str, Any], folder: Path) -> None:
    if config.get("peft_type") != "LORA":
        raise CheckpointError(f"{folder} holds adapters of the kind {config.get('peft_type')!r}; GlassBERT has 'LORA'")
    for key, plain in PLAIN.items():
        if config.get(key, plain) != plain:
            raise CheckpointError(f"{folder / CONFIG}: {key} is {config[key]!r}; GlassBERT can honour only {plain!r}")


def _as_divided(model: Model, divided: str) -> list[Adapter]:
    """The adapters as they were when we wrote them."""
    layers = model.config.num_hidden_layers
    try:
        rows = [(int(layer), str(target), int(rank), float(s)) for layer, target, rank, s in json.loads(divided)]
        fits = all(0 <= layer < layers and target in MATRICES and rank > 0 for layer, target, rank, _ in rows)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"the header of {WEIGHTS} does not tell its adapters: {error}") from error
    if not fits or not rows:
        raise CheckpointError(f"the header of {WEIGHTS} tells of adapters that a model of {layers} layers cannot have")
    return [adapter_of(model, layer, target, rank, scale) for layer, target, rank, scale in rows]


def _as_modules(
    model: Model, modules: dict[str, Module], stored: dict[str, StoredTensor], config: dict[str, Any]
) -> list[Adapter]:
    """One adapter for each module of the file, as `peft` has them."""
    targets = {place: target for target, place in MATRICES.items()}
    adapters = []
    for module in modules.values():
        a = stored.get(f"{BEFORE}{module.name}.lora_A.weight")
        if a is not None:
            _, layer, matrix = module.weight.removesuffix(".weight").split(".", 2)
            target = targets[matrix, module.part, module.parts]
            rank = a.shape[0] if len(a.shape) == 2 else 0
            adapters.append(adapter_of(model, int(layer), target, rank, _scale(config, module.name, rank)))
    if not adapters:
        raise CheckpointError(f"none of its tensors belongs to a matrix of this model: {some(list(stored))}")
    return adapters


def _scale(config: dict[str, Any], module: str, rank: int) -> float:
    patterns = config.get("alpha_pattern") or {}
    fits = (alpha for pattern, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({pattern})", module))
    alpha = next(fits, config.get("lora_alpha"))
    if rank < 1 or isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or alpha <= 0:
        raise CheckpointError(f"the change of {module} has the rank {rank} and lora_alpha {alpha!r}")
    return float(alpha) / (rank**0.5 if config.get("use_rslora") else rank)
