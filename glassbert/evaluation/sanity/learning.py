"""Checks of learning: the first loss, gradients, the scale of the layers, and overfitting one batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from glassbert.evaluation.encoding import in_float64, masked_rows
from glassbert.evaluation.measures import Check, failed
from glassbert.evaluation.subject import Subject
from glassbert.models.model import Model
from glassbert.training.evaluate import evaluation_mode
from glassbert.training.step import overfit_one_batch
from glassbert.training.step_results import module_of

FIRST_LOSS_TOLERANCE = 0.15  # of ln V
OVERFITTED = 0.1  # of the first loss
STEPS = 300
RATE, MAX_RATE = 0.2, 0.01  # RATE is divided by the width
MAX_SCALE_RATIO = 1e3  # between layers
DEAD, HUGE = 1e-7, 1e4
MAX_ERROR = 1e-3  # relative error of a directional derivative
RELATIVE_STEPS = (1e-5, 1e-6, 1e-7)  # a smaller step crosses the kink of fewer ReLUs; a wrong gradient stays wrong


def check_learning(subject: Subject, progress: Callable[..., None] = lambda *_: None) -> Iterator[Check]:
    """All checks of learning; they are skipped for a model that predicts no words, which has no loss without labels."""
    names = ("the untrained model has the loss of guessing", "gradients reach every weight", "gradients are right",
             "layers have one scale", "the model can overfit one batch")  # fmt: skip
    if not subject.fills_masks and not subject.predicts_next:
        for name in names:
            yield Check(name, skipped="the model predicts no words, so it has no loss without labels")
        return
    fresh = subject.fresh_model(0)
    batch = masked_rows(subject)
    yield check_first_loss(fresh, batch, names[0])
    gradients = gradients_of(fresh, batch)
    yield check_reach(fresh, batch, gradients, names[1])
    scale = check_scale(subject.model, batch, names[3])
    yield scale
    if scale.passed:
        yield check_directions(subject.model, batch, names[2])
    else:
        yield Check(names[2], skipped="the layers differ too much in scale for finite differences")
    yield check_overfit(fresh, batch, names[4], progress)


def gradients_of(model: Model, batch: dict[str, Any]) -> dict[str, np.ndarray]:
    with evaluation_mode(model):
        _, cache = model.loss(**batch, **_pair_labels(model, batch))
        gradients = model.backward(cache)
    return {name: np.array(model.engine.to_numpy(gradients[name]), np.float64) for name in gradients}


def check_first_loss(fresh: Model, batch: dict[str, Any], name: str) -> Check:
    expected = math.log(fresh.config.vocab_size)
    with evaluation_mode(fresh):
        loss = _word_loss(fresh, batch)
    if not abs(loss - expected) < FIRST_LOSS_TOLERANCE * expected:
        return failed(
            name,
            "The loss of the untrained model is not that of uniform guessing.",
            f"It is {loss:.2f}; uniform guessing among {fresh.config.vocab_size:,} words gives ln V = {expected:.2f}.",
            "the initial weights are too large, or the loss is not a mean over the masked words.",
            "Use an initializer_range near 0.02, and check how the loss is averaged.",
        )
    return Check(name, f"{loss:.3f}, ln V = {expected:.3f}")


def check_reach(model: Model, batch: dict[str, Any], gradients: dict[str, np.ndarray], name: str) -> Check:
    """Every parameter, and every embedding row of the batch, must have a gradient."""
    infinite = [one for one, values in gradients.items() if not np.isfinite(values).all()]
    if infinite:
        return failed(
            name,
            "A gradient is not finite.",
            f"The gradient of {', '.join(infinite[:3])}{' and others' if len(infinite) > 3 else ''}.",
            "a division by zero, a logarithm of zero or an overflow in a backward pass.",
            "`glassbert check` finds the operation; against overflow clip gradients and lower the learning rate.",
        )
    zero = [one for one, values in gradients.items() if not values.any()]
    seen = np.setdiff1d(batch["input_ids"], [model.config.pad_token_id])
    lost = seen[~gradients["embeddings.token"][seen].any(1)]
    if zero or lost.size:
        which = ", ".join(zero[:4]) if zero else f"{lost.size} of {seen.size} words in embeddings.token"
        return failed(
            name,
            "Some weights get no gradient and will not be trained.",
            f"The gradient is zero for {which}{' and others' if len(zero) > 4 else ''}.",
            "a layer is not connected, its backward pass drops a gradient, or it is frozen.",
            "Check the backward pass of these weights; `glassbert check` compares it with finite differences.",
        )
    return Check(name, f"{len(gradients)} parameters")


def check_directions(model: Model, batch: dict[str, Any], name: str) -> Check:
    """Directional derivatives by the gradient and by finite differences, for every part of the model."""
    exact = in_float64(model)
    gradients = gradients_of(exact, batch)
    generator = np.random.default_rng(0)
    worst = 0.0
    parts: dict[str, list[str]] = {}
    for parameter in gradients:
        parts.setdefault(module_of(parameter), []).append(parameter)
    with evaluation_mode(exact):
        for part, names in parts.items():
            error = _direction_error(exact, batch, gradients, names, generator)
            if error > MAX_ERROR:
                wrong = [p for p in names if _direction_error(exact, batch, gradients, [p], generator) > MAX_ERROR]
                return failed(
                    name,
                    "A gradient is wrong.",
                    f"In {part} the gradient differs from finite differences by {error:.1%}: "
                    f"{', '.join(wrong[:4]) or part}.",
                    "an error in a backward pass: a missing term, a sign, a factor, a tied weight counted once.",
                    "`glassbert check` names the operation; add your own layers to its cases.",
                )
            worst = max(worst, error)
    return Check(name, f"{len(parts)} directional derivatives, error {worst:.1g} at most")


def _direction_error(
    model: Model, batch: dict[str, Any], gradients: dict[str, np.ndarray], names: list[str], generator: Any
) -> float:
    parameters: Any = model.parameters
    original = {name: parameters[name].copy() for name in names}
    direction = {name: generator.standard_normal(value.shape) for name, value in original.items()}
    length = math.sqrt(sum(float((d * d).sum()) for d in direction.values()))
    size = math.sqrt(sum(float((k * k).sum()) for k in original.values()))
    claimed = sum(float((gradients[name] * direction[name]).sum()) for name in names)
    norm = math.sqrt(sum(float((gradients[name] ** 2).sum()) for name in names))
    error = math.inf
    for relative in RELATIVE_STEPS:
        step = relative * max(size, 1e-3) / length
        losses = []
        for sign in (1, -1):
            for name in names:
                parameters[name] = original[name] + sign * step * direction[name]
            losses.append(_total_loss(model, batch))
        measured = (losses[0] - losses[1]) / (2 * step)
        # Relative to the gradient norm: a direction with a slope near 0 would make any error look large.
        error = min(error, abs(measured - claimed) / max(abs(measured), abs(claimed), norm, 1e-6))
        if error <= MAX_ERROR:
            break
    for name in names:
        parameters[name] = original[name]
    return error


def check_scale(model: Model, batch: dict[str, Any], name: str) -> Check:
    """Activations and gradients of all layers should be of one order of magnitude."""
    with evaluation_mode(model):
        _, cache = model.loss(**batch, **_pair_labels(model, batch), trace=True)
        gradients = model.backward(cache)
    layers = range(model.config.num_hidden_layers)
    sizes, slopes = [], []
    for i in layers:
        output = np.asarray(model.engine.to_numpy(_joined(cache[f"layers.{i}.output"])), np.float64)
        sizes.append(float(np.abs(output).max()))
        prefix = f"layers.{model.config.group_of(i)}."
        own = [model.engine.to_numpy(g) for n, g in gradients.items() if n.startswith(prefix) and g.ndim > 1]
        slopes.append(float(np.sqrt(np.mean([np.mean(np.square(g, dtype=np.float64)) for g in own]))))
    usual = float(np.median(slopes))
    for i in layers:
        if not math.isfinite(sizes[i]) or sizes[i] > HUGE or slopes[i] > MAX_SCALE_RATIO * usual:
            return failed(
                name,
                "A layer explodes.",
                f"In layers.{i} values reach {sizes[i]:.2g}, and its gradient is {slopes[i] / max(usual, 1e-300):.2g} "
                "times that of the other layers.",
                "its weights are too large: a high learning rate, a bad initialisation, or a missing norm.",
                "Train again with a lower learning rate and a longer warm-up, or use an earlier checkpoint.",
            )
        if slopes[i] * MAX_SCALE_RATIO < usual or slopes[i] < DEAD * max(usual, DEAD):
            return failed(
                name,
                "A layer is dead.",
                f"The gradient of layers.{i} is {slopes[i] / max(usual, 1e-300):.2g} times that of the other layers.",
                "its weights are zero or very small, or all its units are inactive.",
                "Check its initialisation and the weight decay.",
            )
    spread = f"{max(slopes) / max(min(slopes), 1e-300):.2g}" if slopes else "1"
    return Check(name, f"gradients within a factor of {spread}, values up to {max(sizes, default=0):.2g}")


def check_overfit(fresh: Model, batch: dict[str, Any], name: str, progress: Callable[..., None]) -> Check:
    first = last = math.nan
    taken = 0
    mask = np.ones_like(batch["input_ids"])
    labels = batch["labels"]
    if fresh.head is not None and fresh.head.kind == "pretraining":
        return Check(name, skipped="not for a head with two losses; the other checks cover both")
    rate = min(MAX_RATE, RATE / fresh.config.hidden_size)
    for loss in overfit_one_batch(fresh, batch["input_ids"], labels, mask, STEPS, rate):
        taken += 1
        first, last = (loss if taken == 1 else first), loss
        progress(taken, STEPS, "overfitting one batch")
        if not last > OVERFITTED * first:
            break
    if not last <= OVERFITTED * first:
        return failed(
            name,
            "The model cannot overfit one batch.",
            f"After {taken} steps on the same {batch['input_ids'].shape[0]} rows the loss went from {first:.2f} to "
            f"{last:.2f}.",
            "a wrong or lost gradient, frozen weights, or masks that hide the input.",
            "See the other checks first; `glassbert check` compares every backward pass with finite differences.",
        )
    return Check(name, f"{first:.2f} to {last:.2f} in {taken} steps")


def _pair_labels(model: Model, batch: dict[str, Any]) -> dict[str, Any]:
    pretraining = model.head is not None and model.head.kind == "pretraining"
    return {"pair_labels": np.arange(len(batch["input_ids"])) % 2} if pretraining else {}


def _total_loss(model: Model, batch: dict[str, Any]) -> float:
    return float(model.loss(**batch, **_pair_labels(model, batch))[0])


def _word_loss(model: Model, batch: dict[str, Any]) -> float:
    from glassbert.training.evaluate import evaluate

    assert model.head is not None
    objective = "mlm" if "mlm" in model.head.parts else "clm"
    return evaluate(model, [batch], objective=objective).losses[objective]


def _joined(value: Any) -> Any:
    return np.concatenate([v.reshape(-1, v.shape[-1]) for v in value]) if isinstance(value, list) else value
