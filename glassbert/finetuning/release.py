"""A folder to publish: the model of a fine-tuned run with everything that someone else needs to use and check it.

DIR/model.safetensors, config.json   in the layout of transformers where it has one
DIR/tokenizer.json, task.json, ...   tokenizer and task card, as in RUN/model
DIR/README.md                        the model card of the run
DIR/recipe.toml                      the settings: glassbert finetune --settings recipe.toml --train FILE
DIR/receipt.json                     what happened: scores, machine, versions; also before, for released weights
DIR/manifest.json                    checksums of these files
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassbert.errors import TrainingError
from glassbert.files import portable, write_json
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.report.model_card import card_of_copy
from glassbert.training.history import History
from glassbert.training.release import CARD, RECEIPT, RECIPE, as_toml, finished_run, new_release, receipt_of
from glassbert.training.run_folder import FINETUNING

FILES = ("tokenizer", "data", "train", "dev", "test", "teacher", "further_teachers", "texts", "teacher_scores")
MODELS = ("model", "augment_model")  # a name, or a folder


def release(run: str | Path, folder: str | Path, *, dtype: str = "float16", name: str = "", notes: str = "") -> Path:
    """Write the model of a finished fine-tuning into a new folder; `notes` are added to the model card."""
    history, target = finished_run(run, FINETUNING), Path(folder)
    card = card_of_copy(_read_card(history.run.model / CARD), target.name, name)
    with new_release(history, target, dtype) as new:
        TaskCard.load(history.run.path).save(new)
        (new / CARD).write_text(f"{card}\n{notes.strip()}\n" if notes.strip() else card, encoding="utf-8")
        (new / RECIPE).write_text(recipe(history), encoding="utf-8")
        write_json(new / RECEIPT, receipt(history, dtype))
    return target


def _read_card(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TrainingError(
            f"the model card {path} cannot be read: {reason}; restore it, or write one there"
        ) from error


def recipe(history: History) -> str:
    """The settings as TOML, without the files of one machine."""
    models = {key: portable(history.settings[key]) for key in MODELS if history.settings.get(key)}
    return as_toml({**history.settings, **models}, FILES)


def receipt(history: History, dtype: str) -> dict[str, Any]:
    """What happened in a run, without paths of the machine."""
    info, settings, result = history.info, history.settings, dict(history.result or {})
    if "distillation" in result:
        teachers = [settings["teacher"], *settings.get("further_teachers", ())]
        result["distillation"] = {**result["distillation"], "teacher": ", ".join(Path(one).name for one in teachers)}
    before = None if settings.get("from_scratch") else receipt_of(settings.get("model"))
    return {
        **{key: info[key] for key in ("begun", "machine", "versions", "fingerprint") if key in info},
        "data": settings.get("task") or Path(settings["train"]).name,
        "result": result,
        "dtype": dtype,
        **({"started_from": before} if before else {}),
    }
