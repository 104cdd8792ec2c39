"""What the numbers of a study say, in sentences, the same ones in the terminal and on the page."""

from __future__ import annotations

from glassbert.evaluation.scaling.outcome import Outcome
from glassbert.reports import short

COUNTED = {"encoder": "parameters in its blocks", "all": "parameters"}


def law_sentences(outcome: Outcome) -> list[str]:
    """The law with its ranges, or why there is none."""
    law = outcome.law
    if law is None:
        return [outcome.reason[0].upper() + outcome.reason[1:] + "."]
    floor, powers, scales = law.best
    terms = zip(("N", "D"), law.reference, scales, powers, strict=False)
    formula = " + ".join(f"{scale:.3f} · ({name}/{short(ref)})^-{power:.2f}" for name, ref, scale, power in terms)
    found = [f"Least squares: L = {floor:.2f} + {formula}, with N the {COUNTED[outcome.plan.count]}"
             + (", D the tokens." if len(law.names) > 1 else ".")]  # fmt: skip
    ranges = [("the floor", law.range_of(law.floor))]
    ranges += [
        (f"the power of {name}", law.range_of(law.powers[:, i])) for i, name in enumerate("ND"[: len(law.names)])
    ]
    words = ", ".join(f"{name} {found.low:.2f} to {found.high:.2f}" for name, found in ranges)
    found.append(
        f"Possible with these points ({law.level:.0%}): {words}. A point is expected within {1.645 * law.expected:.3f} "
        f"of the law; the farthest is {abs(law.residuals).max():.3f} away."
    )
    return found


def prediction_sentence(outcome: Outcome) -> str:
    found = outcome.prediction()
    assert found is not None
    shape = outcome.target
    return (
        f"Predicted for size {shape.size:g} ({shape}, {short(shape.count(outcome.plan.count))} "
        f"{COUNTED[outcome.plan.count]}, {short(outcome.target_tokens())} tokens): {found.middle:.3f}, and between "
        f"{found.low:.3f} and {found.high:.3f} with {outcome.level:.0%} confidence."
    )


def check_sentence(outcome: Outcome) -> str:
    words = []
    for cell in outcome.checks:
        found = outcome.prediction(tokens=cell.tokens)
        assert found is not None
        where = "inside" if cell.loss in found else "outside"
        words.append(f"{cell.loss:.3f}, {where} its interval ({found.low:.3f} to {found.high:.3f})")
    return f"Then trained, size {outcome.target.size:g} came to " + "; ".join(words) + "."
