"""The report of a fine-tuning: one HTML file that says how good the model is, how sure that is, and how to use it.

From the top: the score with its interval and whether it beats the baseline by more than chance; every metric; how it
was learned; what was taken for what; the worst errors as text; the data; commands; a receipt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.finetuning.baseline import Baseline
from glassbert.finetuning.calibration import Calibration
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report import figures as draw
from glassbert.finetuning.report.answers import answers_in_detail
from glassbert.finetuning.report.errors import worst_errors
from glassbert.finetuning.report.usage import how_to_use
from glassbert.finetuning.report.verdict import verdict
from glassbert.finetuning.report.words import TASKS, between, change, give_or_take, inside_sentence, name_of, written
from glassbert.reports import Page, figures, share
from glassbert.tasks import Finding
from glassbert.training.display import duration
from glassbert.training.log import read_log

if TYPE_CHECKING:
    from glassbert.finetuning.seeds import SeedResult

MOST_BARS = 30
RESAMPLES = 1000


def write_report(
    path: str | Path,
    *,
    settings: Mapping[str, Any],
    outcome: Outcome,
    outcomes: Mapping[int, Outcome],
    baseline: Baseline | None = None,
    calibration: Calibration | None = None,
    findings: Sequence[Finding] = (),
    notes: Sequence[str] = (),
    seeds: Sequence[SeedResult] = (),
    log: str | Path | None = None,
) -> Path:
    """Write the page. `outcome` is the saved model's, `outcomes` those of all seeds, on the same held-out examples."""
    path = Path(path)
    card, receipt = outcome.card, _receipt(path.parent)
    page = Page(card.title, f"`{settings.get('model') or 'A model'}`, fine-tuned to give {TASKS[card.head]}.")
    _headline(page, outcome, outcomes, baseline, receipt)
    _scores(page, outcome, outcomes, baseline)
    _learning(page, outcome, seeds, log, settings)
    answers_in_detail(page, outcome, baseline, calibration)
    worst_errors(page, outcome)
    _data(page, outcome, findings, notes, receipt)
    how_to_use(page, outcome, path.parent)
    _settings(page, settings, receipt, baseline)
    return page.write(path)


def _headline(
    page: Page,
    outcome: Outcome,
    outcomes: Mapping[int, Outcome],
    baseline: Baseline | None,
    receipt: Mapping[str, Any],
) -> None:
    metric, main = outcome.card.metric, outcome.main
    found = verdict(outcome, baseline, baseline.name, RESAMPLES) if baseline is not None else None
    facts: list[tuple[str, Any, str]] = [(name_of(metric), written(main.value, metric), between(main, metric))]
    if baseline is not None:
        facts.append(("Baseline", written(baseline.main.value, metric), baseline.name))
    if found is not None and found.difference is not None:
        low, high = (change(value, metric) for value in (found.difference.low, found.difference.high))
        interval = f"{low.removesuffix(' points')} to {high}"
        facts.append(("Difference", change(found.difference.value, metric), interval))
    known = [one.main.value for one in outcomes.values() if one.main.value is not None]
    if len(known) > 1:
        spread = f"± {change(float(np.std(known, ddof=1)), metric).lstrip('+±')} from seed to seed"
        facts.append((f"Mean of {len(known)} seeds", written(float(np.mean(known)), metric), spread))
    learned = receipt.get("examples", {}).get("train")
    facts.append(("Held-out examples", len(outcome), f"learned from {learned:,}" if learned else ""))
    page.facts(facts)
    if main.value is None:
        page.warning(f"{name_of(metric)} cannot be told: {main.reason}.", "Hold out examples of every label.")
    if found is not None:
        page.message(found.level, found.sentence, found.remedy, found.evidence)
    elif baseline is None:
        page.message(
            "note",
            "There is no baseline to compare with.",
            'Run `pip install "glassbert[tasks]"` and fine-tune again, unless you turned it off: a score alone says '
            "little about whether the task needed this model.",
        )


def _scores(page: Page, outcome: Outcome, outcomes: Mapping[int, Outcome], baseline: Baseline | None) -> None:
    page.heading("How good it is")
    others = [baseline, *baseline.others] if baseline is not None else []
    several = len(outcomes) > 1
    headers = ["", "this model", "95 % interval", *([f"mean of {len(outcomes)} seeds"] if several else [])]
    rows = []
    for name, score in outcome.scores.items():
        row = [name_of(name), written(score.value, name), between(score, name)]
        if several:
            values = [one.scores[name].value for one in outcomes.values() if name in one.scores]
            known = [value for value in values if value is not None]
            row.append(give_or_take(float(np.mean(known)), _deviation(known), name) if known else "–")
        row += [written(one.scores[name].value if name in one.scores else None, name) for one in others]
        rows.append(row)
    called = ["baseline", *(f"baseline {place}" for place in range(2, len(others) + 1))][: len(others)]
    simple = "; ".join(f"{name}: {one.name}" for name, one in zip(called, others, strict=True))
    page.table([*headers, *called], rows, caption=f"{simple[:1].upper()}{simple[1:]}." if others else "")
    metric = outcome.card.metric
    kept = {seed: one.outputs is outcome.outputs for seed, one in outcomes.items()}
    names = {seed: f"seed {seed}, kept" if kept[seed] else f"seed {seed}" for seed in outcomes}
    dots = [_dot(names[seed] if several else "this model", one, 0) for seed, one in outcomes.items()]
    dots += [_dot(one.name, one, 1) for one in others]
    drawn = [dot for dot in dots if dot is not None]
    if len(drawn) > 1:
        page.figure(
            lambda: draw.comparison(drawn, name_of(metric), lambda value: written(value, metric)),
            f"{name_of(metric)} with 95 % bootstrap intervals: where other samples of {len(outcome):,} examples would "
            "have put it.",
        )
    page.text(
        "The epoch"
        + (" and the seed were" if several else " was")
        + " chosen by these same examples, so new ones may fare a little worse."
    )


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _dot(name: str, outcome: Outcome, colour: int) -> draw.Measured | None:
    score = outcome.main
    return None if score.value is None else draw.Measured(name, score.value, score.low, score.high, colour)


def _learning(
    page: Page,
    outcome: Outcome,
    seeds: Sequence[SeedResult],
    log: str | Path | None,
    settings: Mapping[str, Any],
) -> None:
    lines = list(read_log(Path(log))) if log is not None and Path(log).exists() else []
    losses, scores = learning_curves(lines, outcome.card.metric, float(settings.get("epochs") or 1))
    if not any(len(x) > 1 for x, _ in [*losses.values(), *scores.values()]):
        return
    page.heading("How it learned")
    with page.columns() as (left, right):
        left.figure(lambda: draw.learning(losses, "loss on training examples"), "The loss on what it learns from.")
        right.figure(
            lambda: draw.learning(scores, f"{inside_sentence(outcome.card.metric)} on held-out examples"),
            "After every epoch, on examples it never learns from. The best one was kept.",
        )
    if seeds:
        rows = [
            [f"seed {one.seed}", written(one.score, outcome.card.metric), f"{one.epoch:g} of {one.epochs:g}", one.steps,
             duration(one.seconds), f"{one.examples_per_second:,.0f}", one.stopped]
            for one in seeds
        ]  # fmt: skip
        headers = ["", name_of(outcome.card.metric), "best after epoch", "steps", "time", "examples/s", "ended"]
        page.table(headers, rows)


Curves = dict[str, tuple[list[float], list[float]]]


def learning_curves(lines: Sequence[Mapping[str, Any]], metric: str, epochs: float) -> tuple[Curves, Curves]:
    """Training loss and held-out score over epochs, for every seed."""
    losses: Curves = {}
    scores: Curves = {}
    for line in lines:
        name = f"seed {line.get('seed', 0)}"
        if line.get("kind") == "train" and line.get("loss") is not None:
            x, y = losses.setdefault(name, ([], []))
            x.append(line["progress"] * epochs)
            y.append(line["loss"])
        elif line.get("kind") == "evaluation" and line.get("scores", {}).get(metric) is not None:
            x, y = scores.setdefault(name, ([], []))
            x.append(line["epoch"])
            y.append(line["scores"][metric])
    return losses, scores


def _data(
    page: Page, outcome: Outcome, findings: Sequence[Finding], notes: Sequence[str], receipt: Mapping[str, Any]
) -> None:
    page.heading("The data")
    card = outcome.card
    for finding in findings:
        page.message(finding.severity, finding.problem, finding.remedy, finding.evidence)
    if not findings:
        page.good("No empty texts, no leaks, no copies between training and held-out examples were found.")
    if notes:
        page.text(" ".join(note if note.endswith((".", "!", "?")) else f"{note}." for note in notes))
    if card.labels and outcome.truth is not None and len(card.labels) <= MOST_BARS:
        counts = label_counts(outcome)
        page.figure(
            lambda: figures.bars(list(card.label_names), counts / max(1.0, float(counts.sum())), write=share),
            "The labels of the held-out examples." if card.head != "token" else "The tags of the held-out words.",
        )
    if card.template is not None:
        page.text(f"A row of the table becomes a sentence, such as: “{outcome.data.texts[0][:400]}”")
        with page.details("What became of each column") as inside:
            inside.table(["column", "kind", "in the sentence", "why"], card.template.rows(outcome.data.table))


def label_counts(outcome: Outcome) -> np.ndarray:
    """How often each label is true."""
    labels = len(outcome.card.labels)
    if outcome.card.head == "multilabel":
        return np.asarray(outcome.truth).sum(0)
    truth = np.concatenate(list(outcome.truth)) if outcome.card.head == "token" else np.asarray(outcome.truth)
    return np.bincount(truth.astype(np.int64), minlength=labels)


def _settings(page: Page, settings: Mapping[str, Any], receipt: Mapping[str, Any], baseline: Baseline | None) -> None:
    page.heading("Receipt")
    if receipt.get("command"):
        page.text("The command that made it:")
        page.code(receipt["command"])
    facts = {
        **receipt.get("machine", {}),
        "begun": receipt.get("begun", "").replace("T", " ").replace("+00:00", " UTC"),
        **receipt.get("versions", {}),
    }
    if baseline is not None:
        facts["time of the baseline"] = duration(baseline.seconds + sum(one.seconds for one in baseline.others))
    rows = [[key.replace("_", " "), str(value)] for key, value in facts.items() if value]
    if rows:
        page.table(["machine and versions", ""], rows)
    with page.details("Every setting") as inside:
        inside.code(json.dumps(dict(settings), indent=2, ensure_ascii=False))


def _receipt(run: Path) -> dict[str, Any]:
    """What the run noted when it began; nothing where there is no such file."""
    try:
        content = json.loads((run / "settings.json").read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}
