"""Training dynamics: gradient norms by depth, the logged curves of a run, and the change of weights and states.

    gradient flow     |∂loss/∂x| at the residual stream below and above every block
    logged flow       norm of the gradient, size of the update over that of the weights, entropy of attention, by step
    weight change     |W_t - W_0| / |W_0| by layer, W_0 the initial weights
    likeness          linear CKA of a layer at step t with the same layer at the end, over the same words

In a healthy stack the gradient norm is of one order of magnitude at all layers. A norm that changes by an order of
magnitude per layer is a vanishing or exploding gradient.

The evolution uses every step whose weights are on disk: snapshots (`glassbert pretrain --snapshots 8`), the last
checkpoints and the finished model. The initial weights are recomputed from the seed of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.errors import InputError, TrainingError
from glassbert.insight.inputs import LoadedModel, TextBatch, untrained
from glassbert.insight.states import word_states
from glassbert.metrics import linear_cka
from glassbert.models.model import Model
from glassbert.training.checkpointing import find_snapshots
from glassbert.training.evaluate import evaluation_mode
from glassbert.training.history import History
from glassbert.training.run_folder import RunFolder
from glassbert.training.step_results import module_of


@dataclass(frozen=True)
class Flow:
    """Gradient norms: `stream` at the output of the embeddings and of each layer, `parameters` in their weights."""

    stream: dict[str, float]
    parameters: dict[str, float]
    loss: float


def gradient_flow(
    model: Model, batches: Iterable[Mapping[str, Any]], on_progress: Callable[[], object] = lambda: None
) -> Flow:
    """Root mean squares of the gradient norms over batches. A batch holds the arguments of `model.loss`."""
    stream: dict[str, float] = {}
    parameters: dict[str, float] = {}
    losses = []
    cache_names = {"embeddings": "embeddings.d_output"}
    cache_names |= {f"layers.{i}": f"layers.{i}.d_output" for i in range(model.config.num_hidden_layers)}
    for batch in batches:
        with evaluation_mode(model):
            loss, cache = model.loss(**batch, trace=True)
            gradients = model.backward(cache)
        losses.append(float(loss))
        for part, name in cache_names.items():
            stream[part] = stream.get(part, 0.0) + _sum_of_squares(model.engine.to_numpy(cache[name]))
        for name, gradient in gradients.items():
            part = module_of(name)
            parameters[part] = parameters.get(part, 0.0) + _sum_of_squares(model.engine.to_numpy(gradient))
        on_progress()
    if not losses:
        raise InputError("there are no batches; give at least one, as from masked_batches")

    def norms(totals: dict[str, float]) -> dict[str, float]:
        return {part: float(np.sqrt(total / len(losses))) for part, total in totals.items()}

    return Flow(norms(stream), norms(parameters), float(np.mean(losses)))


@dataclass(frozen=True)
class LoggedFlow:
    """The "inside" lines of a run's log as tables: one row per logged step, one column per part of the model."""

    steps: np.ndarray  # [steps]
    places: list[str]  # parts of the model: "embeddings", "layers.0", ...
    gradient_norms: np.ndarray  # [steps, places]
    update_ratios: np.ndarray  # [steps, places]: the size of an update over the size of the weights
    layers: list[str]
    attention_entropies: np.ndarray  # [steps, layers]


def logged_flow(run: RunFolder) -> LoggedFlow:
    """Read RUN/log.jsonl. Lines with a gradient that is not finite are skipped."""
    lines = [line for line in History.read(run).kind("inside") if _numeric(line)]
    if len(lines) < 2:
        raise TrainingError(
            f"the log of {run.path} has {len(lines)} lines of kind 'inside' with finite values, and a curve needs at "
            "least two; train longer"
        )
    places, layers = list(lines[0]["gradient_norm"]), list(lines[0]["attention_entropy"])

    def table(name: str, columns: list[str]) -> np.ndarray:
        return np.array([[float(line[name].get(column, np.nan)) for column in columns] for line in lines])

    return LoggedFlow(
        np.array([line["step"] for line in lines]),
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


def _sum_of_squares(array: np.ndarray) -> float:
    return float(np.square(np.asarray(array, np.float64)).sum())


@dataclass(frozen=True)
class Evolution:
    """One row per saved step, the initial weights first and the final ones last."""

    steps: np.ndarray  # [steps]
    places: list[str]  # parts of the model
    change: np.ndarray  # [steps, places]
    layers: list[str]
    likeness: np.ndarray  # [steps, layers]: CKA with the last step


def saved_steps(run: RunFolder) -> dict[int, Path]:
    """Folders with weights by step: snapshots, checkpoints and the finished model."""
    found = {step: run.checkpoint(step) for step in run.steps()}
    found.update(find_snapshots(run))
    if (run.model / "config.json").exists():
        history = History.read(run)
        steps = int((history.result or {}).get("steps", history.last["step"]))
        found[max(steps, 1)] = run.model  # without a log the number of steps is unknown
    return dict(sorted(found.items()))


def evolution(
    loaded: LoadedModel, batches: Sequence[TextBatch], on_progress: Callable[[], object] = lambda: None
) -> Evolution:
    """Weight change and CKA with the final state for every saved step of a run."""
    if loaded.run is None:
        raise TrainingError(f"{loaded.name} is no run, so it has no earlier weights; give the folder of a run")
    saved = saved_steps(loaded.run)
    if not [step for step in saved if step > 0]:
        raise TrainingError(f"{loaded.run.path} has no snapshot, no checkpoint and no finished model")
    first = load(saved[0], engine=loaded.model.engine) if 0 in saved else untrained(loaded).model
    initial = {name: first.engine.to_numpy(array).copy() for name, array in first.parameters.items()}
    no_change = weight_change(initial, first)
    steps, change, states = [0], [np.array(list(no_change.values()))], [word_states(first, batches)]
    on_progress()
    for step, folder in saved.items():
        if step == 0:
            continue
        model = load(folder, engine=loaded.model.engine)
        steps.append(step)
        change.append(np.array(list(weight_change(initial, model).values())))
        states.append(word_states(model, batches))
        on_progress()
    layers = list(states[-1])
    likeness = [[linear_cka(then[layer], states[-1][layer]) for layer in layers] for then in states]
    return Evolution(np.array(steps), list(no_change), np.stack(change), layers, np.array(likeness))


def weight_change(initial: Mapping[str, np.ndarray], model: Model) -> dict[str, float]:
    """|W - W_0| / |W_0| for every part of the model. A part whose initial weights are all zero is left out."""
    moved: dict[str, float] = {}
    size: dict[str, float] = {}
    for name, before in initial.items():
        part, now = module_of(name), np.asarray(model.engine.to_numpy(model.parameters[name]), np.float64)
        moved[part] = moved.get(part, 0.0) + float(np.square(now - before).sum())
        size[part] = size.get(part, 0.0) + float(np.square(np.asarray(before, np.float64)).sum())
    return {part: float(np.sqrt(moved[part] / size[part])) for part in moved if size[part]}
