"""Checks of a run's log: finite losses, the first loss, the step size, the loss curve, overfitting."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from glassbert.evaluation.measures import Check, failed
from glassbert.training.history import History, moving_mean

FIRST_LOSS_TOLERANCE = 0.15  # of ln V
RISE = 1.15  # times the first loss
MAX_UPDATE = 0.2  # of the size of the weights, in one step
DIVERGED = 0.5  # nats above the best loss
NO_PROGRESS = 0.98  # of the first loss
MIN_STEPS = 100  # before a missing decrease counts
OVERFIT = 0.1  # nats by which the held-out loss is above its best


def check_log(history: History) -> Iterator[Check]:
    """All checks of the log."""
    steps, losses = history.curve("train", "loss")
    yield _finite(history)
    if len(losses) < 2:
        yield Check("the loss falls", skipped="the log has fewer than two lines of training")
        return
    vocabulary = history.info.get("model", {}).get("config", {}).get("vocab_size", 0)
    yield _first_loss(history, steps[0], losses[0], vocabulary)
    update_size = _update_size(history, losses)
    yield update_size
    yield _falls(steps, losses, rate_too_high=not update_size.passed)
    yield _held_out(history, losses)


def _finite(history: History) -> Check:
    name = "every step had a finite loss and gradient"
    skipped = [event["text"] for event in history.kind("event") if "skipped" in event.get("text", "")]
    not_finite = [line for line in history.kind("train") if not isinstance(line.get("loss"), (int, float))]
    if skipped or not_finite:
        example = skipped[0] if skipped else f"the loss of step {not_finite[0]['step']:,} is {not_finite[0]['loss']}"
        return failed(
            name,
            "Some steps had a loss or gradient that is not finite.",
            f"{max(len(skipped), len(not_finite)):,} steps; the first: {example}",
            "the learning rate is too high, or a value overflowed in 16 bits.",
            "Lower the learning rate, use a longer warm-up, clip gradients; the event names the first bad value.",
        )
    if not history.kind("train"):
        return Check(name, skipped="the log has no line of training")
    return Check(name, f"{len(history.kind('train')):,} lines of the log")


def _first_loss(history: History, step: float, loss: float, vocabulary: int) -> Check:
    name = "the first loss of the run is that of guessing"
    if history.settings.get("start_from"):
        return Check(name, skipped="the run started from trained weights")
    if step > 1 or not vocabulary or history.settings.get("objective", "mlm") != "mlm":
        return Check(name, skipped="the log has no first step with the MLM loss alone")
    expected = math.log(vocabulary)
    if abs(loss - expected) > FIRST_LOSS_TOLERANCE * expected:
        return failed(
            name,
            "The first loss is not that of uniform guessing.",
            f"It is {loss:.2f}; uniform guessing among {vocabulary:,} words gives ln V = {expected:.2f}.",
            "if it is lower, labels leak into the inputs; if it is higher, the initial weights are too large.",
            "Check a batch with check_batches, and initializer_range.",
        )
    return Check(name, f"{loss:.2f}, ln V = {expected:.2f}")


def _update_size(history: History, losses: list[float]) -> Check:
    name = "updates have a normal size"
    inside = history.kind("inside")
    updates = [
        float(np.median([ratio for part, ratio in line["update_ratio"].items() if part.startswith("layers.")]))
        for line in inside
        if line.get("update_ratio")
    ]
    largest, rate = max(updates, default=0.0), history.settings.get("learning_rate", math.nan)
    highest = max(_smooth(losses))
    measured = f"a step changes the layers by up to {largest:.2%} of their size" if updates else "no update was logged"
    if largest > MAX_UPDATE or highest > RISE * losses[0]:
        rose = (
            f" The loss rose to {highest:.2f}, above the first loss of {losses[0]:.2f}." if highest > losses[0] else ""
        )
        return failed(
            name,
            "The learning rate is too high.",
            f"{measured[0].upper()}{measured[1:]} (learning rate {rate:g}).{rose}",
            f"the rate of {rate:g} is too high for {history.settings.get('optimizer', 'this optimizer')}.",
            "Divide it by ten until a step changes the weights by at most one percent of their size.",
        )
    return Check(name, measured)


def _falls(steps: list[float], losses: list[float], rate_too_high: bool) -> Check:
    name = "the loss falls"
    smooth = _smooth(losses)
    best, end = float(min(smooth)), float(smooth[-1])
    course = f"from {losses[0]:.2f} to {end:.2f}" + (f", {best:.2f} at best" if best < end - 0.05 else "")
    if end > best + DIVERGED:
        cause = "the learning rate is too high" + ("." if rate_too_high else " for a run of this length.")
        return failed(
            name,
            "The training diverged.",
            f"The training loss went {course}.",
            cause,
            "Continue from an earlier checkpoint with a lower or decaying learning rate (linear, cosine).",
        )
    if steps[-1] >= MIN_STEPS and end > NO_PROGRESS * losses[0]:
        return failed(
            name,
            "The model hardly learns.",
            f"In {steps[-1]:,.0f} steps the loss went {course}.",
            "the learning rate is too low, gradients are lost, or the text is noise.",
            "Try ten times the learning rate; check that the model can overfit one batch.",
        )
    return Check(name, course)


def _held_out(history: History, losses: list[float]) -> Check:
    name = "the held-out loss falls too"
    held = history.curve("evaluation", "loss")[1]
    if len(held) < 3:
        return Check(name, skipped="the log has fewer than three evaluations")
    if held[-1] > min(held) + OVERFIT and _smooth(losses)[-1] < losses[0]:
        return failed(
            name,
            "The model overfits.",
            f"The held-out loss rose from {min(held):.2f} to {held[-1]:.2f} while the training loss fell.",
            "too many epochs over too little text.",
            "Stop earlier (--patience), use more text, or use dropout.",
            severity="warning",
        )
    return Check(name, f"from {held[0]:.2f} to {held[-1]:.2f}")


def _smooth(losses: list[float]) -> np.ndarray:
    """Moving mean over a tenth of the curve, at most 20 points."""
    window = max(1, min(len(losses) // 10, 20))
    return moving_mean(losses, window - 1)[window - 1 :]
