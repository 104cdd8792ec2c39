"""The report of a study: the HTML page, the tables in the terminal, and the sentences that both use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.evaluation.scaling.law import SHAPE_NOISE, Law
from glassbert.evaluation.scaling.outcome import Cell, Outcome
from glassbert.evaluation.scaling.pictures import law_figure
from glassbert.reports import Page, share, short
from glassbert.training.display import duration

if TYPE_CHECKING:
    from glassbert.evaluation.scaling.study import Study


def study_page(outcome: Outcome, folder: Path) -> Page:
    sizes = ", ".join(f"{size:g}" for size in outcome.plan.sizes)
    runs = len(outcome.trained)
    seconds = sum(run.seconds for run in outcome.trained)
    page = Page(f"Scaling study {folder.name}", f"Sizes {sizes}; {runs} runs, {duration(seconds)} of training.")
    _facts(page, outcome)
    for sentence in [] if outcome.law else law_sentences(outcome):
        page.warning(sentence)
    page.figure(
        lambda: law_figure(outcome),
        "Each point is a training run, labelled with its size; its bar is the expected distance of a run from the law. "
        "The band is the uncertainty of the law, the diamond the prediction for a size that is not in the fit.",
    )
    if outcome.law is not None:
        _law(page, outcome)
    _points(page, outcome)
    _limitations(page, outcome)
    with page.details("The plan") as inside:
        inside.code(json.dumps(outcome.plan.to_dict(), indent=2))
    return page


def _facts(page: Page, outcome: Outcome) -> None:
    cells = sorted(outcome.cells, key=lambda cell: cell.loss)
    best, worst = cells[0], cells[-1]
    facts = [("Best point", f"{best.loss:.3f}", f"size {best.shape.size:g}; the worst {worst.loss:.3f}")]
    if (found := outcome.prediction()) is not None:
        facts.append((f"Predicted for size {outcome.target.size:g}", f"{found.middle:.3f}",
                      f"{found.low:.3f} to {found.high:.3f} ({outcome.level:.0%})"))  # fmt: skip
    for cell in outcome.checks[-1:]:
        facts.append(("Then trained", f"{cell.loss:.3f}", f"{outcome.verdict} its interval"))
    if outcome.law is not None:
        power = outcome.law.range_of(outcome.law.powers[:, 0])
        text = f"{power.middle:.2f}" if outcome.law.knows_power(0) else "not known"
        facts.append(("Power of the size", text, f"{power.low:.2f} to {power.high:.2f}"))
    page.facts(facts)


def _law(page: Page, outcome: Outcome) -> None:
    page.heading("The law")
    for sentence in law_sentences(outcome):
        page.text(sentence)
    page.text(prediction_sentence(outcome))
    if outcome.checks:
        page.message("good" if outcome.verdict == "inside" else "warning", check_sentence(outcome))
    other = next(count for count in outcome.laws if count != outcome.plan.count)
    found, law = outcome.prediction(other), outcome.laws[other]
    names = {"encoder": "the blocks alone", "all": "all parameters"}
    if found is not None and isinstance(law, Law) and outcome.law is not None:
        ours, theirs = (float((one.residuals @ one.residuals) ** 0.5) for one in (outcome.law, law))
        page.text(
            f"Which parameters count as size is a choice. With {names[other]} the prediction is {found.middle:.3f} "
            f"({found.low:.3f} to {found.high:.3f}); the distance of the points is {theirs:.3f} from that curve and "
            f"{ours:.3f} from this one (root of the sum of squares)."
        )


def _points(page: Page, outcome: Outcome) -> None:
    page.heading("The points")
    rows = []
    for cell in [*outcome.cells, *outcome.checks]:
        fitted = "–" if outcome.law is None else f"{outcome.law.at(outcome.point_of(cell.shape, cell.tokens))[0]:.3f}"
        seeds = ", ".join(f"{loss:.3f}" for loss in cell.losses)
        accuracy = sum(run.accuracy for run in cell.runs) / len(cell.runs)
        seconds = sum(run.seconds for run in cell.runs)
        rows.append([f"{cell.shape.size:g}", str(cell.shape), short(cell.shape.encoder), short(cell.shape.all),
                     short(cell.tokens), seeds, fitted, share(accuracy), f"{cell.runs[0].learning_rate:g}",
                     duration(seconds)])  # fmt: skip
    names = ["size", "layers × width", "blocks", "all", "tokens", "held-out loss", "law", "words right", "rate", "time"]
    page.table(
        names, rows, "Several losses are several seeds. Every run is in the folder runs/ and has its own report."
    )


def _limitations(page: Page, outcome: Outcome) -> None:
    page.heading("Interpretation and limits")
    page.text(
        "The law holds for this recipe on this text: these tokens, this schedule, these shapes. The floor is the limit "
        "of such runs with growing size, not the entropy of the language. More tokens, another optimizer or cleaner "
        "text move the whole curve."
    )
    page.text(
        "The interval is for a single run at the predicted size. It includes the uncertainty of the law and the "
        f"distance of a run from the law: the spread between seeds, and {share(SHAPE_NOISE)} of the loss for "
        "differences in shape and learning rate between sizes. It does not hold for much larger models or for failed "
        "runs."
    )
    if outcome.standard_error is not None:
        page.text(
            f"All points are evaluated on the same masked words of the same held-out rows. Another sample of text "
            f"would move all of them together by about {outcome.standard_error:.3f} (standard error). The differences "
            "between sizes hardly depend on it, so it is not part of the interval."
        )
    for caveat in outcome.caveats():
        page.message("note", caveat)


def show_plan(console: Console, study: Study) -> None:
    """Print the points of the study and their expected time."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("size", "layers × width", "blocks", "all", "tokens", "seeds", "minutes"):
        table.add_column(name, justify="left" if name == "layers × width" else "right", no_wrap=True)
    points = [*study.points, *study.checks]
    for size, tokens in dict.fromkeys((point.size, point.tokens) for point in points):
        same = [point for point in points if (point.size, point.tokens) == (size, tokens)]
        shape = study.shapes[size]
        expected = "" if study.pace is None else f"{study.pace.total(same) / 60:.1f}"
        note = " (to check)" if size == study.plan.next_size else ""
        table.add_row(f"{size:g}{note}", str(shape), short(shape.encoder), short(shape.all), short(tokens),
                      str(len(same)), expected)  # fmt: skip
    console.print(table)
    if study.pace is not None:
        total = study.pace.total(points)
        console.print(Text(f"{len(points)} runs, about {duration(total)} on this machine: {study.folder}"))


def show_outcome(console: Console, outcome: Outcome) -> None:
    """Print the points, the law, the prediction and its limitations."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("size", "layers × width", "blocks", "all", "tokens", "held-out loss", "law", "time"):
        table.add_column(name, justify="left" if name == "layers × width" else "right", no_wrap=True)
    for cell in outcome.cells:
        table.add_row(*_cells(outcome, cell))
    console.print(table)
    for sentence in law_sentences(outcome):
        console.print(Text(sentence, "yellow" if outcome.law is None else ""))
    if outcome.law is not None:
        console.print(Text(prediction_sentence(outcome), "bold"))
    if outcome.checks:
        console.print(Text(check_sentence(outcome), "bold green" if outcome.verdict == "inside" else "bold yellow"))
    for caveat in outcome.caveats():
        console.print(Text(caveat, "dim"))


def _cells(outcome: Outcome, cell: Cell) -> list[str]:
    law = outcome.law
    spread = f" ± {max(cell.losses) / 2 - min(cell.losses) / 2:.3f}" if len(cell.runs) > 1 else ""
    fitted = "–" if law is None else f"{law.at(outcome.point_of(cell.shape, cell.tokens))[0]:.3f}"
    seconds = sum(run.seconds for run in cell.runs)
    return [f"{cell.shape.size:g}", str(cell.shape), short(cell.shape.encoder), short(cell.shape.all),
            short(cell.tokens), f"{cell.loss:.3f}{spread}", fitted, duration(seconds)]  # fmt: skip


COUNTED = {"encoder": "parameters in its blocks", "all": "parameters"}


def law_sentences(outcome: Outcome) -> list[str]:
    """The law with its intervals, or the reason why there is none."""
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
    intervals = ", ".join(f"{name} {found.low:.2f} to {found.high:.2f}" for name, found in ranges)
    found.append(
        f"Intervals ({law.level:.0%}): {intervals}. A point is expected within {1.645 * law.expected:.3f} of the law; "
        f"the largest distance is {abs(law.residuals).max():.3f}."
    )
    return found


def prediction_sentence(outcome: Outcome) -> str:
    found = outcome.prediction()
    assert found is not None
    shape = outcome.target
    return (
        f"Predicted for size {shape.size:g} ({shape}, {short(shape.count(outcome.plan.count))} "
        f"{COUNTED[outcome.plan.count]}, {short(outcome.target_tokens())} tokens): {found.middle:.3f}, between "
        f"{found.low:.3f} and {found.high:.3f} with {outcome.level:.0%} probability."
    )


def check_sentence(outcome: Outcome) -> str:
    results = []
    for cell in outcome.checks:
        found = outcome.prediction(tokens=cell.tokens)
        assert found is not None
        where = "inside" if cell.loss in found else "outside"
        results.append(f"{cell.loss:.3f}, {where} its interval ({found.low:.3f} to {found.high:.3f})")
    return f"Then trained, size {outcome.target.size:g} has the loss " + "; ".join(results) + "."
