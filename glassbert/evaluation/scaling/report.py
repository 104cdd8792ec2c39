"""The report of a study: the curve, what it says, what it does not say, and every run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.evaluation.scaling.law import DEPARTURE, Law
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
        "Each point is a training run, named by its size; its bar is how far chance and shape may put a run from the "
        "law. The band holds the laws that the points allow, the diamond what they say of a size they do not include.",
    )
    if outcome.law is not None:
        _law(page, outcome)
    _points(page, outcome)
    _reading(page, outcome)
    with page.details("The plan, to repeat it") as inside:
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
            f"Which parameters count is a choice. By {names[other]} the prediction would be {found.middle:.3f} "
            f"({found.low:.3f} to {found.high:.3f}); the points lie {theirs:.3f} from that curve and {ours:.3f} from "
            "this one (root of the summed squares)."
        )


def _points(page: Page, outcome: Outcome) -> None:
    page.heading("The points")
    rows = []
    for cell in [*outcome.cells, *outcome.checks]:
        at = "–" if outcome.law is None else f"{outcome.law.at(outcome.place(cell.shape, cell.tokens))[0]:.3f}"
        seeds = ", ".join(f"{loss:.3f}" for loss in cell.losses)
        accuracy = sum(run.accuracy for run in cell.runs) / len(cell.runs)
        seconds = sum(run.seconds for run in cell.runs)
        rows.append([f"{cell.shape.size:g}", str(cell.shape), short(cell.shape.encoder), short(cell.shape.all),
                     short(cell.tokens), seeds, at, share(accuracy), f"{cell.runs[0].learning_rate:g}",
                     duration(seconds)])  # fmt: skip
    names = ["size", "layers × width", "blocks", "all", "tokens", "held-out loss", "law", "words right", "rate", "time"]
    page.table(names, rows, "Several losses are several seeds. Every run is in the folder runs/, with its own report.")


def _reading(page: Page, outcome: Outcome) -> None:
    page.heading("What this means, and what not")
    page.text(
        "The law is about this recipe on this text: these tokens, this schedule, this way of growing. The floor is "
        "what such runs would tend to if they grew and nothing else changed, not the entropy of the language. More "
        "tokens, another optimizer or cleaner text move the whole curve."
    )
    page.text(
        "The interval is for a single run at the predicted size. It holds the laws that the points allow, and the "
        f"distance of a run from the law: the spread between seeds, and {share(DEPARTURE)} of the loss for what seeds "
        "do not show, since sizes differ in shape as well and no learning rate suits all of them alike. It is not a "
        "promise for much larger models, and a broken run is outside of it."
    )
    if outcome.shift is not None:
        page.text(
            f"All points answer the same masked words of the same held-out rows. Another sample of such text would "
            f"move them all together by about {outcome.shift:.3f} (standard error); what the sizes differ by hardly "
            "depends on it, so it is not part of the interval."
        )
    for caveat in outcome.caveats():
        page.message("note", caveat)


def show_plan(console: Console, study: Study) -> None:
    """What will be trained, and how long that is expected to take."""
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
        console.print(Text(f"{len(points)} runs, about {duration(total)} on this machine as it is now: {study.folder}"))


def show_outcome(console: Console, outcome: Outcome) -> None:
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
    at = "–" if law is None else f"{law.at(outcome.place(cell.shape, cell.tokens))[0]:.3f}"
    seconds = sum(run.seconds for run in cell.runs)
    return [f"{cell.shape.size:g}", str(cell.shape), short(cell.shape.encoder), short(cell.shape.all),
            short(cell.tokens), f"{cell.loss:.3f}{spread}", at, duration(seconds)]  # fmt: skip


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
