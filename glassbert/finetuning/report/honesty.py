"""The part of a report about honesty: does "70 % sure" come true in 70 of 100 cases, and what was done about it?"""

from __future__ import annotations

import numpy as np

from glassbert.finetuning.calibration import Calibration
from glassbert.finetuning.report import figures as draw
from glassbert.reports import Section


def honesty(page: Section, calibration: Calibration | None) -> None:
    if calibration is None or calibration.before is None:
        return
    page.heading("Are its probabilities honest?")
    before, after = calibration.before, calibration.after
    if after is None or calibration.temperature is None:
        page.message("note", f"The probabilities are as the model gives them: {calibration.reason}.")
        page.figure(
            lambda: draw.calibration({"as it is": before.curve}),
            "On the dashed line, 70 % sure is right in 70 of 100 cases.",
        )
        return
    surer = "less sure of itself" if calibration.temperature > 1 else "surer of itself"
    with page.columns() as (left, right):
        left.figure(
            lambda: draw.calibration({"before": before.curve, "after": after.curve}),
            "On the dashed line, 70 % sure is right in 70 of 100 cases; below it the model is too sure. Large dots "
            "hold many predictions.",
        )
        right.text(
            f"Before they become probabilities, the model's scores are divided by {calibration.temperature:.2f}: that "
            f"makes it {surer}."
        )
        right.table(
            ["", "before", "after"],
            [
                ["calibration error", three(before.ece.value), three(after.ece.value)],
                ["log loss", three(before.log_loss.value), three(after.log_loss.value)],
            ],
        )
        right.text(
            "The calibration error is the mean gap between how sure it was and how often that came true. The numbers "
            "after are those of examples that had no say: each half was treated by what fitted the other half."
        )


def three(value: float | None) -> str:
    """Three digits after the point; a dash where there is no value."""
    return "–" if value is None or np.isnan(value) else f"{value:.3f}"
