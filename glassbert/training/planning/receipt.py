"""How the plan did: every run writes down what it expects after its first steps, and compares at its end.

The prediction costs nothing: its speed is that of the first steps, its loss comes from the table of reference runs. It
is the line "plan" of the log, so that a resumed run keeps the one it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from glassbert.errors import TrainingError
from glassbert.training.planning.expectation import ExpectedLoss
from glassbert.training.planning.plan import as_json, steps_and_seconds
from glassbert.training.planning.table import read_table, traits_of, without_expectation
from glassbert.training.planning.timing import Timing, relative_cost, time_report

if TYPE_CHECKING:
    from glassbert.training.trainer import Trainer

FIRST, LAST = 3, 13  # the plan is made after step LAST at the earliest; steps up to FIRST warm up
SHARE = 0.03  # of the run, at the earliest: a few steps may meet a busy moment of the machine
KIND = "plan"


def due(step: int, progress: float) -> bool:
    """Whether the plan is made after this step."""
    return step >= LAST and progress >= SHARE


def predict(trainer: Trainer, started: float) -> dict[str, Any] | None:
    """The plan of a run after its first steps; `started` is the clock after step FIRST. None where it is over."""
    settings, data, costs = trainer.settings, trainer.data, trainer.components.costs
    now = trainer.clock.elapsed
    length = data.length_at(0.0)
    config = trainer.model.config
    relative = relative_cost(config, settings, length, settings.mask_rate_at(0.0))
    done = trainer.state.step
    step = (now - started) / (done - FIRST) * relative
    seconds = dict(costs.seconds)
    costs.seconds["report"] = costs.seconds["report"] or time_report()
    timing = Timing(trainer.state.begun or 0.0, step, costs)
    tokens = data.tokens_of(settings.length)
    try:
        steps, whole = steps_and_seconds(settings, timing, tokens)
    except TrainingError:
        steps, whole = 0, 0.0
    costs.seconds.update(seconds)
    if steps <= done:
        return None
    reason = without_expectation(settings)
    expectation = None
    if not reason:
        traits = traits_of(settings, config, steps * tokens, data.description or None)
        expectation = as_json(ExpectedLoss(read_table()).at(traits))
    return {"steps": steps, "tokens": steps * tokens, "whole": whole, "expectation": expectation, "reason": reason}


def compare(lines: Iterable[Mapping[str, Any]], result: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was planned beside what came; None where the run made no plan."""
    planned = next((line for line in lines if line["kind"] == KIND), None)
    if planned is None or result.get("stopped") != "finished":
        return None
    found: dict[str, Any] = {
        "seconds": {"predicted": planned["whole"], "real": result["seconds"]},
        "tokens": {"predicted": planned["tokens"], "real": result["tokens"]},
        "reason": planned["reason"],
    }
    for name in ("loss", "accuracy") if planned["expectation"] else ():
        expected, real = planned["expectation"][name], result[name]
        inside = real is not None and expected["low"] <= real <= expected["high"]
        found[name] = {"predicted": expected, "real": real, "inside": inside}
    return found


def sentences(receipt: Mapping[str, Any]) -> list[str]:
    """The comparison in words."""
    predicted, real = receipt["seconds"]["predicted"], receipt["seconds"]["real"]
    found = [f"Time: {predicted / 60:.1f} minutes planned after the first steps, {real / 60:.1f} taken "
             f"({real / predicted - 1:+.0%})."]  # fmt: skip
    tokens = receipt["tokens"]
    if tokens["predicted"] != tokens["real"]:
        found.append(f"Tokens: {tokens['predicted']:,} planned, {tokens['real']:,} read.")
    if "loss" in receipt:
        loss = receipt["loss"]
        expected = loss["predicted"]
        where = "inside" if loss["inside"] else "outside"
        found.append(
            f"Held-out loss: {expected['middle']:.2f} expected ({expected['low']:.2f} to {expected['high']:.2f}), "
            f"{loss['real']:.3f} reached, {where} the interval."
        )
    elif receipt["reason"]:
        found.append(f"No loss was expected: {receipt['reason']}.")
    return found
