"""Cross-validation: every example is held out once, so that all rows of a small table count in the scores.

    found = cross_validate(FineTuningSettings(model="runs/mini", task="titanic", data="data", folds=5))
    found.spread       mean and standard deviation over the folds
    found.scores       over all examples, each predicted by the model that was not trained on it

Each fold is a run in RUN/fold-0 and so on. Finished folds are reopened, unfinished ones are resumed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import TrainingError
from glassbert.files import write_json
from glassbert.finetuning.run import FineTuned, finetune_or_go_on
from glassbert.finetuning.scoring import compute_scores
from glassbert.finetuning.seeds import RESULT, Spread
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.metrics import Scores
from glassbert.training.display import Display
from glassbert.training.run_folder import new_run_folder


@dataclass(frozen=True)
class CrossValidated:
    """Result of a cross-validation; `scores` and `spread` are set if all folds are finished."""

    run: Path
    folds: list[FineTuned]
    metric: str
    scores: Scores | None = None
    spread: Spread | None = None


def cross_validate(
    settings: FineTuningSettings, run: str | Path | None = None, *, display: Display | None = None
) -> CrossValidated:
    if settings.folds is None:
        raise TrainingError("cross-validation needs the number of folds, for example folds=5")
    name = settings.task or Path(settings.train).stem
    path = Path(run) if run is not None else new_run_folder("runs", f"{name}-folds").path
    found: list[FineTuned] = []
    for fold in range(settings.folds):
        found.append(finetune_or_go_on(settings.replace(fold=fold), path / f"fold-{fold}", display=display))
        if found[-1].outcome is None:  # interrupted
            return CrossValidated(path, found, found[-1].metric)
    outcomes = [one.outcome for one in found if one.outcome is not None]
    card = replace(outcomes[0].card, temperature=None, thresholds=None)
    truth = None if outcomes[0].truth is None else _joined([one.truth for one in outcomes])
    scores = compute_scores(_joined([one.outputs for one in outcomes]), truth, card, resamples=settings.resamples)
    values = [value for one in outcomes if (value := one.main.value) is not None]
    done = CrossValidated(path, found, card.metric, scores, Spread.of(values) if values else None)
    spread = asdict(done.spread) if done.spread is not None else None
    folds = [one.scores.as_json() for one in found]
    write_json(path / RESULT, {"metric": card.metric, "scores": scores.as_json(), "spread": spread, "folds": folds})
    return done


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return [one for part in parts for one in part]
