"""Is it better than the baseline, or is that chance? A difference, its interval, and the sentence that says it."""

from __future__ import annotations

from dataclasses import dataclass

from glassbert.errors import InputError
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report.words import change, inside_sentence, written
from glassbert.finetuning.scoring import Columns
from glassbert.metrics import Difference, Undefined, get_metric, paired_difference


@dataclass(frozen=True)
class Verdict:
    """`level` is that of a message on a page. `difference` is ours minus theirs, None where there is none."""

    level: str
    sentence: str
    evidence: str = ""
    remedy: str = ""
    difference: Difference | None = None


def compare(ours: Outcome, theirs: Outcome, metric: str, resamples: int = 1000) -> Difference:
    """Ours minus theirs by a metric, both on the same resamples of the same examples.

    Labels are counted from thresholds of the other half of the examples, for both alike.
    """
    columns = []
    for outcome in (ours, theirs):
        card = outcome.card.replace(thresholds=None)
        columns.append(Columns(outcome.outputs, outcome.truth, card).compared(metric))
    (function, truth, first), (_, _, second) = columns
    return paired_difference(function, truth, first, second, resamples=max(2, resamples))


def verdict(ours: Outcome, theirs: Outcome, name: str, resamples: int = 1000) -> Verdict:
    """What to make of it; `name` is the baseline's."""
    metric = ours.card.metric
    called = inside_sentence(metric)
    scores = f"{written(ours.main.value, metric)} against {written(theirs.main.value, metric)} of {name}"
    try:
        found = compare(ours, theirs, metric, resamples)
    except (Undefined, InputError) as reason:
        return Verdict(
            "note", "It cannot be compared with the baseline.", f"{str(reason)[0].upper()}{str(reason)[1:]}."
        )
    sign = 1.0 if get_metric(metric).higher_is_better else -1.0
    low, high = sorted((sign * found.low, sign * found.high))
    value, lowest, highest = (change(one, metric) for one in (found.value, found.low, found.high))
    size = f"{value} in {called}, 95 % interval {lowest.removesuffix(' points')} to {highest}"
    count = f"{len(ours):,} examples"
    if low > 0:
        return Verdict(
            "good",
            f"Better than the baseline, and that is more than chance: {scores}.",
            f"{size}. Hardly any other sample of {count} would have turned it round (p = {_chance(found.p)}).",
            "",
            found,
        )
    if high < 0:
        return Verdict(
            "warning",
            f"The baseline is better: {scores}.",
            f"{size}. This is more than chance (p = {_chance(found.p)}).",
            "Take the simple model, or begin with an encoder that was trained on more text, learn from more examples, "
            "or for more epochs.",
            found,
        )
    return Verdict(
        "warning",
        f"No clear difference from the baseline: {scores}.",
        f"{size}. Another sample of {count} may well say the opposite (p = {_chance(found.p)}).",
        "Measure with more examples before you believe either. If the difference stays this small, take the simpler "
        "model.",
        found,
    )


def _chance(p: float) -> str:
    return f"{p:.3f}" if p >= 0.002 else "0.002 or less"
