"""How a model grew: how far its weights went, and when its representations became what they are.

    change         |W_t - W_0| / |W_0| by layer, W_0 the weights before the first step
    likeness       linear CKA of a layer then with the same layer in the end, over the same words

The moments are those whose weights are still there: snapshots (`glassbert pretrain --snapshots 8`), the last
checkpoints, and the finished model. The beginning needs no file: a run's first weights follow from its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassbert.checkpoints import load
from glassbert.errors import TrainingError
from glassbert.insight.opening import Opened, untrained
from glassbert.insight.reading import Rows
from glassbert.insight.states import word_states
from glassbert.metrics import linear_cka
from glassbert.models.model import Model
from glassbert.training.checkpointing import find_snapshots
from glassbert.training.history import History
from glassbert.training.run_folder import RunFolder
from glassbert.training.step_results import module_of


@dataclass(frozen=True)
class Evolution:
    """A row for every moment, the beginning first and the end last."""

    steps: np.ndarray  # [moments]
    places: list[str]
    change: np.ndarray  # [moments, places]
    layers: list[str]
    likeness: np.ndarray  # [moments, layers], with the last moment


def kept_moments(run: RunFolder) -> dict[int, Path]:
    """Folders with weights by their step: snapshots, checkpoints and the finished model."""
    found = {step: run.checkpoint(step) for step in run.steps()}
    found.update(find_snapshots(run))
    if (run.model / "config.json").exists():
        history = History.read(run)
        steps = int((history.result or {}).get("steps", history.last["step"]))
        found[max(steps, 1)] = run.model  # a model without its log is the end of a run of unknown length
    return dict(sorted(found.items()))


def evolution(opened: Opened, batches: Sequence[Rows], told: Callable[[], object] = lambda: None) -> Evolution:
    """Weights and representations of every moment that is still there."""
    if opened.run is None:
        raise TrainingError(f"{opened.name} is no run, so its past is not known")
    moments = kept_moments(opened.run)
    if not [step for step in moments if step > 0]:
        raise TrainingError(f"{opened.run.path} holds neither a snapshot, nor a checkpoint, nor a finished model")
    first = load(moments[0], engine=opened.model.engine) if 0 in moments else untrained(opened).model
    beginning = {name: first.engine.to_numpy(array).copy() for name, array in first.parameters.items()}
    none = weight_change(beginning, first)
    steps, change, states = [0], [np.array(list(none.values()))], [word_states(first, batches)]
    told()
    for step, folder in moments.items():
        if step == 0:
            continue
        model = load(folder, engine=opened.model.engine)
        steps.append(step)
        change.append(np.array(list(weight_change(beginning, model).values())))
        states.append(word_states(model, batches))
        told()
    layers = list(states[-1])
    likeness = [[linear_cka(then[layer], states[-1][layer]) for layer in layers] for then in states]
    return Evolution(np.array(steps), list(none), np.stack(change), layers, np.array(likeness))


def weight_change(beginning: Mapping[str, np.ndarray], model: Model) -> dict[str, float]:
    """How far the weights of every place went from where they began, over how large they were.

    What began at zero, as biases do, has no such size; a place that is made of nothing else is left out.
    """
    moved: dict[str, float] = {}
    size: dict[str, float] = {}
    for name, before in beginning.items():
        place, now = module_of(name), np.asarray(model.engine.to_numpy(model.parameters[name]), np.float64)
        moved[place] = moved.get(place, 0.0) + float(np.square(now - before).sum())
        size[place] = size.get(place, 0.0) + float(np.square(np.asarray(before, np.float64)).sum())
    return {place: float(np.sqrt(moved[place] / size[place])) for place in moved if size[place]}
