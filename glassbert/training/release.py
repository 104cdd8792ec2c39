"""A folder to publish: the weights of a run with everything that someone else needs to use, check and repeat them.

DIR/model.safetensors, config.json   in the layout of transformers where it has one
DIR/tokenizer.json, ...              the tokenizer
DIR/README.md                        the model card
DIR/recipe.toml                      the settings: glassbert pretrain --settings recipe.toml
DIR/receipt.json                     what happened: result, machine, versions, data; also before, for released weights
DIR/manifest.json                    checksums of these files
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassbert.checkpoints.packaged import packaged_folder, write_manifest
from glassbert.errors import TrainingError
from glassbert.files import new_folder, read_json, write_json
from glassbert.text.loading import load_with_tokenizer
from glassbert.training.history import History
from glassbert.training.model_card import model_card
from glassbert.training.run_folder import RunFolder

RECIPE, RECEIPT, CARD = "recipe.toml", "receipt.json", "README.md"
NOT_IN_RECIPE = ("corpus", "general", "start_from", "teacher", "tokenizer", "wandb", "tensorboard", "model")


def release(run: str | Path, folder: str | Path, *, dtype: str = "float16", name: str = "", notes: str = "") -> Path:
    """Write the model of a finished pretraining run into a new folder; `notes` are added to the model card."""
    source, target = RunFolder.existing(run), Path(folder)
    history = History.read(source)
    if history.result is None:
        raise TrainingError(f"the run {source.path} is not finished; continue it with: glassbert resume {source.path}")
    name = name or target.name
    with new_folder(target, TrainingError) as new:
        model, tokenizer = load_with_tokenizer(source.path, engine="numpy")
        model.save(new, tokenizer=tokenizer, dtype=dtype)
        (new / CARD).write_text(model_card(source, history.result, name, name, notes), encoding="utf-8")
        (new / RECIPE).write_text(as_toml(history.settings), encoding="utf-8")
        write_json(new / RECEIPT, receipt(history, dtype))
        write_manifest(new)
    return target


def receipt(history: History, dtype: str) -> dict[str, Any]:
    """What happened in a run, without paths of the machine."""
    assert history.result is not None
    result = {key: value for key, value in history.result.items() if key != "run"}
    data = {key: value for key, value in history.info["data"].items() if key not in ("folder", "tokenizer")}
    if "sources" in data:
        data["sources"] = [{**source, "name": Path(source["name"]).name} for source in data["sources"]]
    kept = {key: history.info[key] for key in ("begun", "model", "engine", "machine", "versions", "fingerprint")}
    by_source: dict[str, Any] = next((line["by_source"] for line in history.kind("final")[-1:]), {})
    before = _receipt_of(history.settings.get("start_from"))
    return {
        **kept,
        "data": data,
        "result": result,
        "by_source": by_source,
        "dtype": dtype,
        **({"started_from": before} if before else {}),
    }


def _receipt_of(start_from: str | None) -> dict[str, Any] | None:
    """The receipt of the released model that a run started from; None if it started from scratch or another model."""
    if not start_from:
        return None
    folder = Path(start_from) if Path(start_from).is_dir() else packaged_folder(start_from)
    return read_json(folder / RECEIPT, TrainingError) if folder and (folder / RECEIPT).is_file() else None


def as_toml(settings: Mapping[str, Any]) -> str:
    """Settings as TOML, without those that are paths of one machine or not set."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()
             if value is not None and key not in NOT_IN_RECIPE]  # fmt: skip
    model = [f"{key} = {json.dumps(value)}" for key, value in settings.get("model", {}).items() if value is not None]
    return "\n".join([*lines, *(["", "[model]", *model] if model else [])]) + "\n"
