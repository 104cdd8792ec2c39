"""Fine-tuning of encoders for a task: training, evaluation, calibration, prediction.

    from glassbert.finetuning import finetune

    tuned = finetune(model="runs/mini", task="sst2", data="data")
    tuned = finetune(model="runs/mini", train="reviews.csv", text="review", target="stars", seeds=3)

Names are imported on first access, to keep the import of the package fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassbert.finetuning.card import TaskCard as TaskCard
    from glassbert.finetuning.cross_validation import cross_validate as cross_validate
    from glassbert.finetuning.low_rank import LowRank as LowRank
    from glassbert.finetuning.outcome import Outcome as Outcome
    from glassbert.finetuning.predictor import Predictor as Predictor
    from glassbert.finetuning.run import FineTuned as FineTuned
    from glassbert.finetuning.run import finetune as finetune
    from glassbert.finetuning.run import finetune_or_go_on as finetune_or_go_on
    from glassbert.finetuning.run import reopen as reopen
    from glassbert.finetuning.run import resume as resume
    from glassbert.finetuning.settings import FineTuningSettings as FineTuningSettings
    from glassbert.finetuning.tuner import FineTuner as FineTuner

MODULES = {
    "FineTuned": "run",
    "FineTuner": "tuner",
    "FineTuningSettings": "settings",
    "LowRank": "low_rank",
    "Outcome": "outcome",
    "Predictor": "predictor",
    "TaskCard": "card",
    "cross_validate": "cross_validation",
    "finetune": "run",
    "finetune_or_go_on": "run",
    "reopen": "run",
    "resume": "run",
}
__all__ = [*MODULES]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"glassbert.finetuning has no {name!r}")
    return getattr(import_module(f"glassbert.finetuning.{MODULES[name]}"), name)
