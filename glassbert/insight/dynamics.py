"""How gradients flow: by depth in one model, and by layer over a run, as its log tells.

    through depth     |∂loss/∂x| at the residual stream below and above every block: what reaches the first layers
    over a run        norm of the gradient, size of the update over that of the weights, entropy of attention

A healthy stack lets about as much through to its first layer as arrives at its last; a flow that shrinks or grows by an
order of magnitude a layer is the vanishing or exploding that initialisation and norms are there to prevent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.errors import InputError, TrainingError
from glassbert.insight.inputs import Opened, Rows, untrained
from glassbert.insight.states import word_states
from glassbert.metrics import linear_cka
from glassbert.models.model import Model
from glassbert.training.evaluate import quietly
from glassbert.training.history import History
from glassbert.training.results import place_of
from glassbert.training.run_folder import RunFolder
from glassbert.training.snapshots import find_snapshots


@dataclass(frozen=True)
class Flow:
    """Norms of the gradient: `stream` at what the embeddings and each layer gave, `parameters` in their weights."""

    stream: dict[str, float]
    parameters: dict[str, float]
    loss: float


def gradient_flow(
    model: Model, batches: Iterable[Mapping[str, Any]], told: Callable[[], object] = lambda: None
) -> Flow:
    """Root mean squares over batches, each as `model.loss` takes it."""
    stream: dict[str, float] = {}
    parameters: dict[str, float] = {}
    losses = []
    places = {"embeddings": "embeddings.d_output"}
    places |= {f"layers.{i}": f"layers.{i}.d_output" for i in range(model.config.num_hidden_layers)}
    for batch in batches:
        with quietly(model):
            loss, cache = model.loss(**batch, trace=True)
            gradients = model.backward(cache)
        losses.append(float(loss))
        for place, name in places.items():
            stream[place] = stream.get(place, 0.0) + _square(model.engine.to_numpy(cache[name]))
        for name, gradient in gradients.items():
            place = place_of(name)
            parameters[place] = parameters.get(place, 0.0) + _square(model.engine.to_numpy(gradient))
        told()
    if not losses:
        raise InputError("there is no batch to send gradients from")
    root = {**{("stream", k): v for k, v in stream.items()}, **{("parameters", k): v for k, v in parameters.items()}}
    sizes = {key: float(np.sqrt(total / len(losses))) for key, total in root.items()}
    return Flow(
        {place: sizes["stream", place] for place in stream},
        {place: sizes["parameters", place] for place in parameters},
        float(np.mean(losses)),
    )


@dataclass(frozen=True)
class LoggedFlow:
    """What a run's log tells of its inside: a row for every look, a column for every place."""

    steps: np.ndarray  # [looks]
    places: list[str]
    gradient_norms: np.ndarray  # [looks, places]
    update_ratios: np.ndarray  # [looks, places]: the size of a step over the size of the weights
    layers: list[str]
    attention_entropies: np.ndarray  # [looks, layers]


def logged_flow(run: RunFolder) -> LoggedFlow:
    """From RUN/log.jsonl; a look whose gradient was not finite is left out."""
    looks = [line for line in History.read(run).kind("inside") if _numeric(line)]
    if len(looks) < 2:
        raise TrainingError(f"the log of {run.path} holds fewer than two looks inside; longer runs have more")
    places, layers = list(looks[0]["gradient_norm"]), list(looks[0]["attention_entropy"])

    def table(name: str, columns: list[str]) -> np.ndarray:
        return np.array([[float(look[name].get(column, np.nan)) for column in columns] for look in looks])

    return LoggedFlow(
        np.array([look["step"] for look in looks]),
        places,
        table("gradient_norm", places),
        table("update_ratio", places),
        layers,
        table("attention_entropy", layers),
    )


def _numeric(line: Mapping[str, Any]) -> bool:
    tables = (line.get(name) for name in ("gradient_norm", "update_ratio", "attention_entropy"))
    return all(
        isinstance(table, Mapping) and table and all(isinstance(value, (int, float)) for value in table.values())
        for table in tables
    )


def _square(array: np.ndarray) -> float:
    return float(np.square(np.asarray(array, np.float64)).sum())


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
        place, now = place_of(name), np.asarray(model.engine.to_numpy(model.parameters[name]), np.float64)
        moved[place] = moved.get(place, 0.0) + float(np.square(now - before).sum())
        size[place] = size.get(place, 0.0) + float(np.square(np.asarray(before, np.float64)).sum())
    return {place: float(np.sqrt(moved[place] / size[place])) for place in moved if size[place]}
