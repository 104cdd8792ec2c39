"""The story of a run, read from its log: where it began, whether it learned, where it went wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from glassbert.evaluation.measures import Check, failed
from glassbert.training.history import History

NEAR = 0.15  # of ln V
ROSE = 1.15  # times the loss it began with
STEP_TOO_LARGE = 0.2  # of the size of the weights, moved in one step
CAME_APART = 0.5  # nats above the best
STOOD_STILL = 0.98  # of the first loss
ENOUGH_STEPS = 100
FORGETTING = 0.1  # nats that the held-out loss rises above its best


def check_log(history: History) -> Iterator[Check]:
    steps, losses = history.curve("train", "loss")
    yield _finite(history)
    if len(losses) < 2:
        yield Check("the loss falls", skipped="the log has fewer than two lines of training")
        return
    vocabulary = history.receipt.get("model", {}).get("config", {}).get("vocab_size", 0)
    yield _beginning(history, steps[0], losses[0], vocabulary)
    too_high = _rate(history, losses)
    yield too_high
    yield _falls(steps, losses, blamed=not too_high.passed)
    yield _held_out(history, losses)


def _finite(history: History) -> Check:
    name = "every step had a finite loss and gradient"
    skipped = [event["text"] for event in history.kind("event") if "skipped" in event.get("text", "")]
    strange = [line for line in history.kind("train") if not isinstance(line.get("loss"), (int, float))]
    if skipped or strange:
        told = skipped[0] if skipped else f"the loss of step {strange[0]['step']:,} is {strange[0]['loss']}"
        return failed(
            name,
            "Steps had a loss or gradient that is not a number.",
            f"{max(len(skipped), len(strange)):,} of them; the first: {told}",
            "the learning rate is too high, or a number overflowed in 16 bits.",
            "Lower the learning rate, lengthen the warm-up, clip gradients; the event names the value that went bad.",
        )
    if not history.kind("train"):
        return Check(name, skipped="the log has no line of training")
    return Check(name, f"{len(history.kind('train')):,} lines of the log")


def _beginning(history: History, step: float, loss: float, vocabulary: int) -> Check:
    name = "the run begins with the loss of guessing"
    if history.settings.get("start_from"):
        return Check(name, skipped="it began with trained weights")
    if step > 1 or not vocabulary or history.settings.get("objective", "mlm") != "mlm":
        return Check(name, skipped="the log does not have the first step of masked words alone")
    expected = math.log(vocabulary)
    if abs(loss - expected) > NEAR * expected:
        return failed(
            name,
            "The run does not begin by guessing.",
            f"Its first loss is {loss:.2f}; guessing among {vocabulary:,} words gives ln V = {expected:.2f}.",
            "the labels leak into the inputs where it is lower, initial weights are too large where it is higher.",
            "Look at a batch with check_batches, and at initializer_range.",
        )
    return Check(name, f"{loss:.2f}, ln V = {expected:.2f}")


def _rate(history: History, losses: list[float]) -> Check:
    name = "steps have a sensible size"
    inside = history.kind("inside")
    moved = [
        float(np.median([ratio for place, ratio in line["update_ratio"].items() if place.startswith("layers.")]))
        for line in inside
        if line.get("update_ratio")
    ]
    largest, rate = max(moved, default=0.0), history.settings.get("learning_rate", math.nan)
    highest = max(_smooth(losses))
    measured = f"a step moves the layers by up to {largest:.2%} of their size" if moved else "no look inside was logged"
    if largest > STEP_TOO_LARGE or highest > ROSE * losses[0]:
        rose = (
            f" The loss rose to {highest:.2f}, above the {losses[0]:.2f} it began with." if highest > losses[0] else ""
        )
        return failed(
            name,
            "The learning rate is too high.",
            f"{measured[0].upper()}{measured[1:]} (learning rate {rate:g}).{rose}",
            f"the rate of {rate:g} is far beyond what {history.settings.get('optimizer', 'this optimizer')} bears.",
            "Divide it by ten, and again, until a step moves weights by a hundredth of their size at most.",
        )
    return Check(name, measured)


def _falls(steps: list[float], losses: list[float], blamed: bool) -> Check:
    name = "the loss falls"
    smooth = _smooth(losses)
    best, end = float(min(smooth)), float(smooth[-1])
    told = f"from {losses[0]:.2f} to {end:.2f}" + (f", {best:.2f} at best" if best < end - 0.05 else "")
    if end > best + CAME_APART:
        cause = "the learning rate is too high." if blamed else "the learning rate is too high for so long a run."
        return failed(
            name,
            "The run came apart.",
            f"The training loss went {told}.",
            cause,
            "Go back to the checkpoint before, and on with a lower rate or one that decays (linear, cosine).",
        )
    if steps[-1] >= ENOUGH_STEPS and end > STOOD_STILL * losses[0]:
        return failed(
            name,
            "The model hardly learns.",
            f"In {steps[-1]:,.0f} steps the loss went {told}.",
            "the learning rate is too low, gradients do not arrive, or the text is noise.",
            "Try ten times the rate; see whether one batch can be learned by heart.",
        )
    return Check(name, told)


def _held_out(history: History, losses: list[float]) -> Check:
    name = "held-out text gains as well"
    held = history.curve("evaluation", "loss")[1]
    if len(held) < 3:
        return Check(name, skipped="the log has fewer than three evaluations")
    if held[-1] > min(held) + FORGETTING and _smooth(losses)[-1] < losses[0]:
        return failed(
            name,
            "The model learns its text by heart.",
            f"The held-out loss rose from {min(held):.2f} to {held[-1]:.2f} while the training loss fell.",
            "too many epochs over too little text.",
            "Stop earlier (--patience), add text, or add dropout.",
            severity="warning",
        )
    return Check(name, f"from {held[0]:.2f} to {held[-1]:.2f}")


def _smooth(losses: list[float]) -> np.ndarray:
    """Means over a tenth of the curve, at most 20 points."""
    window = max(1, min(len(losses) // 10, 20))
    return np.convolve(losses, np.ones(window) / window, mode="valid")
