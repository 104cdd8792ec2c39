"""A folder with the graphs of a model, as optimum, sentence-transformers and Transformers.js open it.

DIR/config.json, tokenizer.json, ...   config and tokenizer, in the layout of transformers where it has one
DIR/onnx/model.onnx                    the model; model_fp16.onnx in float16
DIR/onnx/model.onnx_data               its weights, where they are beyond 2 GB
DIR/onnx/parameters.onnx               for training: the weights as outputs
DIR/onnx/forward.onnx                  the model, with the weights as inputs
DIR/onnx/gradients.onnx                loss and gradients, with the weights as inputs
DIR/onnx/sgd.onnx, adamw.onnx          one step of an optimizer
"""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassbert.checkpoints import load
from glassbert.checkpoints.description import describe
from glassbert.checkpoints.formats import NativeFormat
from glassbert.checkpoints.locate import INDEX, MODULES, SHARDS, WEIGHTS, open_checkpoint
from glassbert.checkpoints.packaged import which_model
from glassbert.checkpoints.quantized import SECTION, section_of
from glassbert.engines.recording import Finished
from glassbert.errors import CheckpointError
from glassbert.export.gradients import STEPS, record_gradients, record_parameters, record_step
from glassbert.export.recording import record_model
from glassbert.export.writing import EXTERNAL, LARGEST_FILE, OPSET, check_opset, require, write_onnx
from glassbert.files import CHECKSUMS, adding_files, new_folder, write_checksums
from glassbert.models.model import Model
from glassbert.models.quantized import quantized_parameters
from glassbert.text.loading import FILES, find_tokenizer

FOLDER = "onnx"
GRAPHS = {"float32": "model.onnx", "float16": "model_fp16.onnx"}
CARD = "task.json"  # of a fine-tuned model
DESCRIPTION = "glassbert.config"  # the key of the model's description among the properties of a graph
KIND = "glassbert.graph"


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, the graphs with their files, and the model that they were made from."""

    folder: Path
    graphs: dict[Path, Finished]
    files: list[Path]
    model: Model


def export_onnx(
    source: str | Path,
    folder: str | Path | None = None,
    *,
    dtype: str = "float32",
    head: str | None = None,
    with_gradients: bool = False,
    opset: int = OPSET,
    largest: int = LARGEST_FILE,
) -> Exported:
    """Write the graphs of a run, a model folder, a packaged model or a hub id.

    folder          a new folder with config and tokenizer; None: `onnx/` in the model's own folder
    dtype           "float32" or "float16", of the model; gradients are always float32
    head            another head, as in `glassbert.load`
    with_gradients  also write the graphs of training: loss and gradients, steps of SGD and AdamW
    opset           the version of ONNX's operators; older runtimes need an older one
    largest         bytes of weights in one file; more are stored beside it
    """
    require("onnx")
    check_opset(opset)
    own = open_checkpoint(source).config_path.parent
    if head is None and (own / MODULES).exists() and not (own / CARD).exists():
        head = "embedding"  # a folder of sentence-transformers
    model = _load_complete(own, head)
    recorded = {f"{FOLDER}/{GRAPHS.get(dtype, '')}": record_model(model, dtype)}
    if with_gradients:
        training = {"gradients": record_gradients(model), "parameters": record_parameters(model)}
        training |= {"forward": record_model(model, given=True), **{name: record_step(model, name) for name in STEPS}}
        recorded |= {f"{FOLDER}/{name}.onnx": graph for name, graph in training.items()}
    if folder is None:
        target = _own_folder(source, own)
        with adding_files(target, [name for graph in recorded for name in (graph, graph + EXTERNAL)]):
            files = _write(model, recorded, target, opset=opset, largest=largest)
    else:
        target = Path(folder)
        files = _write_new(model, recorded, own, target, opset=opset, largest=largest)
    return Exported(target, {target / name: graph for name, graph in recorded.items()}, files, model)


def _load_complete(folder: Path, head: str | None) -> Model:
    """The model; a head without weights in the folder, which `load` would initialise at random, is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            return load(folder, head=head, engine="numpy")
        except UserWarning as warning:
            raise CheckpointError(f"a model is exported when it is trained: {warning}") from warning


def _own_folder(source: str | Path, own: Path) -> Path:
    if not Path(source).expanduser().exists():
        what = "ships with GlassBERT" if which_model(source) is not None else "is a model of the hub"
        raise CheckpointError(f"{source} {what}, and its folder is not changed; name a new one with -o DIR")
    if not any((own / name).exists() for name in FILES):
        _save_tokenizer(own, own)
    return own


def _write(model: Model, recorded: dict[str, Finished], folder: Path, **options: int) -> list[Path]:
    files = []
    for name, graph in recorded.items():
        properties = {KIND: Path(name).stem, DESCRIPTION: description_of(model)}
        files += write_onnx(graph, folder / name, properties, **options)
    return files


def _write_new(model: Model, recorded: dict[str, Finished], own: Path, target: Path, **options: int) -> list[Path]:
    """A new folder with config, tokenizer and graphs."""
    with new_folder(target, CheckpointError) as folder:
        model.save(folder)
        for weights in (WEIGHTS, INDEX, SHARDS, CHECKSUMS):
            for path in folder.glob(weights):
                path.unlink()
        _save_tokenizer(own, folder)
        if (own / CARD).exists():
            shutil.copyfile(own / CARD, folder / CARD)
        files = [path.relative_to(folder) for path in _write(model, recorded, folder, **options)]
        write_checksums(folder, [path.relative_to(folder).as_posix() for path in folder.rglob("*")])
    return [target / path for path in files]


def _save_tokenizer(own: Path, folder: Path) -> None:
    """A model of series has no tokenizer."""
    if json.loads((own / "config.json").read_text(encoding="utf-8")).get("series") is None:
        find_tokenizer(own).save(folder)


def description_of(model: Model) -> str:
    """The model without its weights, as JSON: what a graph carries with it."""
    fields: dict[str, Any] = NativeFormat().write(describe(model))
    quantized = quantized_parameters(model)
    if quantized:
        fields[SECTION] = section_of(quantized)
    return json.dumps(fields, sort_keys=True)
