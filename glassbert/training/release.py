"""A folder to publish: the weights of a run with everything that someone else needs to use, check and repeat them.

DIR/model.safetensors, config.json   in the layout of transformers where it has one
DIR/tokenizer.json, ...              the tokenizer
DIR/generator/                       of a discriminator: the model that replaced tokens
DIR/README.md                        the model card
DIR/recipe.toml                      the settings: glassbert pretrain --settings recipe.toml
DIR/receipt.json                     what happened: result, machine, versions, data; also before, for released weights
DIR/manifest.json                    checksums of these files
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glassbert.checkpoints.packaged import packaged_folder, write_manifest
from glassbert.errors import TrainingError
from glassbert.files import new_folder, read_json, write_json
from glassbert.models.heads.rtd import GENERATOR
from glassbert.text.loading import load_with_tokenizer
from glassbert.training.history import History
from glassbert.training.model_card import model_card
from glassbert.training.run_folder import PRETRAINING, RunFolder

RECIPE, RECEIPT, CARD = "recipe.toml", "receipt.json", "README.md"
NOT_IN_RECIPE = ("corpus", "general", "start_from", "teacher", "tokenizer", "wandb", "tensorboard")


def release(run: str | Path, folder: str | Path, *, dtype: str = "float16", name: str = "", notes: str = "") -> Path:
    """Write the model of a finished pretraining run into a new folder; `notes` are added to the model card."""
    history, target = finished_run(run, PRETRAINING), Path(folder)
    name = name or target.name
    with new_release(history, target, dtype) as new:
        card = model_card(history.run, history.result or {}, name, name, notes)
        (new / CARD).write_text(card, encoding="utf-8")
        (new / RECIPE).write_text(as_toml(history.settings), encoding="utf-8")
        write_json(new / RECEIPT, receipt(history, dtype))
    return target


def finished_run(run: str | Path, kind: str) -> History:
    """A finished run of this kind; raises for every other folder."""
    source = RunFolder.existing(run)
    found = source.read_settings().get("kind", PRETRAINING)
    if found != kind:
        raise TrainingError(
            f"{source.path} is a run of {found}, not of {kind}; its model is the folder {source.model}, which can be "
            "copied as it is, and --format onnx writes it as a graph"
        )
    history = History.read(source)
    if history.result is None:
        raise TrainingError(
            f"the run {source.path} is not finished; continue it with: glassbert resume {shlex.quote(str(source.path))}"
        )
    if not source.model.is_dir():
        raise TrainingError(f"the model of the run {source.path} is gone; restore the folder {source.model}")
    return history


@contextmanager
def new_release(history: History, target: Path, dtype: str) -> Iterator[Path]:
    """Context manager: a new folder with model and tokenizer of a run. At its end the manifest lists all files."""
    with new_folder(target, TrainingError) as new:
        for part in (".", GENERATOR):
            if (history.run.model / part).is_dir():
                model, tokenizer = load_with_tokenizer(history.run.model / part, engine="numpy")
                model.save(new / part, tokenizer=tokenizer, dtype=dtype)
        yield new
        write_manifest(new)


def receipt(history: History, dtype: str) -> dict[str, Any]:
    """What happened in a run, without paths of the machine."""
    assert history.result is not None
    result = {key: value for key, value in history.result.items() if key != "run"}
    data = {key: value for key, value in history.info["data"].items() if key not in ("folder", "tokenizer")}
    if "sources" in data:
        data["sources"] = [{**source, "name": Path(source["name"]).name} for source in data["sources"]]
    kept = {key: history.info[key] for key in ("begun", "model", "engine", "machine", "versions", "fingerprint")}
    by_source: dict[str, Any] = next((line["by_source"] for line in history.kind("final")[-1:]), {})
    before = receipt_of(history.settings.get("start_from"))
    return {
        **kept,
        "data": data,
        "result": result,
        "by_source": by_source,
        "dtype": dtype,
        **({"started_from": before} if before else {}),
    }


def receipt_of(start_from: str | None) -> dict[str, Any] | None:
    """The receipt of the released model that a run started from; None if it started from scratch or another model."""
    if not start_from:
        return None
    folder = Path(start_from) if Path(start_from).is_dir() else packaged_folder(start_from)
    return read_json(folder / RECEIPT, TrainingError) if folder and (folder / RECEIPT).is_file() else None


def as_toml(settings: Mapping[str, Any], left_out: Collection[str] = NOT_IN_RECIPE) -> str:
    """Settings as TOML, without those that are paths of one machine or not set."""
    given = {key: value for key, value in settings.items() if value is not None and key not in left_out}
    lines = [_as_line(key, value) for key, value in given.items() if not isinstance(value, Mapping)]
    for key, table in given.items():
        if isinstance(table, Mapping) and table:
            lines += ["", f"[{key}]", *(_as_line(*field) for field in table.items() if field[1] is not None)]
    return "\n".join(lines) + "\n"


def _as_line(key: str, value: Any) -> str:
    return f"{key} = {json.dumps(value, ensure_ascii=False)}"  # TOML has no surrogates
