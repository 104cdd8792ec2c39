"""The report of a fine-tuning run: one HTML file.

Sections: main score with its interval and the comparison with the baseline; all metrics; learning curves; sections by
head (`sections.py`); the worst errors; the data; usage; settings and versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.finetuning import distilled
from glassbert.finetuning.baseline import Baseline
from glassbert.finetuning.calibration import Calibration
from glassbert.finetuning.card import choice_sentence
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report import figures as report_figures
from glassbert.finetuning.report.errors import worst_errors
from glassbert.finetuning.report.sections import head_sections
from glassbert.finetuning.report.texts import (
    TASKS,
    format_difference,
    format_interval,
    format_mean,
    format_value,
    how_to_use,
    metric_in_sentence,
    metric_name,
    verdict,
)
from glassbert.reports import Page, figures, share
from glassbert.tasks import Finding
from glassbert.training.display import duration
from glassbert.training.log import read_log

if TYPE_CHECKING:
    from glassbert.finetuning.seeds import SeedResult

MAX_LABEL_BARS = 30
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
    unit: str = "seed",
    distillation: dict[str, Any] | None = None,
) -> Path:
    """Write the page.

    outcome    that of the saved model, or of all folds of a cross-validation together
    outcomes   those of all seeds, on the same examples, or (`unit` "fold") of all folds
    """
    path = Path(path)
    card, receipt = outcome.card, _receipt(path.parent)
    page = Page(card.title, f"`{settings.get('model') or 'A model'}`, fine-tuned to predict {TASKS[card.head]}.")
    _headline(page, outcome, outcomes, baseline, receipt, unit)
    if distillation is not None:
        page.heading("Teacher and student")
        page.table(list(distilled.HEADERS), distilled.rows_of(distillation), caption=distilled.sentence(distillation))
    _scores(page, outcome, outcomes, baseline, unit)
    _learning(page, outcome, seeds, log, settings)
    head_sections(page, outcome, baseline, calibration)
    worst_errors(page, outcome)
    _data(page, outcome, findings, notes)
    how_to_use(page, outcome, path.parent)
    _run_facts(page, settings, receipt, baseline)
    return page.write(path)


def _headline(
    page: Page,
    outcome: Outcome,
    outcomes: Mapping[int, Outcome],
    baseline: Baseline | None,
    receipt: Mapping[str, Any],
    unit: str,
) -> None:
    metric, main = outcome.card.metric, outcome.main
    found = verdict(outcome, baseline, baseline.name, RESAMPLES) if baseline is not None else None
    facts: list[tuple[str, Any, str]] = [
        (metric_name(metric), format_value(main.value, metric), format_interval(main, metric))
    ]
    if baseline is not None:
        facts.append(("Baseline", format_value(baseline.main.value, metric), baseline.name))
    if found is not None and found.difference is not None:
        low, high = (format_difference(value, metric) for value in (found.difference.low, found.difference.high))
        value, unit_name = (
            format_difference(found.difference.value, metric),
            "points" if high.endswith("points") else "",
        )
        interval = f"{unit_name}; {low} to {high}".removeprefix("; ").replace(" points", "")
        facts.append(("Difference", value.removesuffix(" points"), interval))
    known = [one.main.value for one in outcomes.values() if one.main.value is not None]
    if len(known) > 1:
        spread = f"± {format_difference(float(np.std(known, ddof=1)), metric).lstrip('+±')} from {unit} to {unit}"
        facts.append((f"Mean of {len(known)} {unit}s", format_value(float(np.mean(known)), metric), spread))
    trained_on = receipt.get("examples", {}).get("train")
    facts.append(("Held-out examples", len(outcome), f"trained on {trained_on:,}" if trained_on else ""))
    page.facts(facts)
    if main.value is None:
        page.warning(f"{metric_name(metric)} is undefined: {main.reason}.", "Hold out examples of every label.")
    if found is not None:
        page.message(found.level, found.sentence, found.remedy, found.evidence)
    elif baseline is None:
        page.message(
            "note",
            "There is no baseline to compare with.",
            "Fine-tune again without --no-baseline: a score alone does not show whether the task needs this model.",
        )


def _scores(
    page: Page, outcome: Outcome, outcomes: Mapping[int, Outcome], baseline: Baseline | None, unit: str
) -> None:
    page.heading("Scores")
    others = [baseline, *baseline.others] if baseline is not None else []
    several = len(outcomes) > 1
    headers = ["", "this model", "95 % interval", *([f"mean of {len(outcomes)} {unit}s"] if several else [])]
    rows = []
    for name, score in outcome.scores.items():
        row = [metric_name(name), format_value(score.value, name), format_interval(score, name)]
        if several:
            values = [one.scores[name].value for one in outcomes.values() if name in one.scores]
            known = [value for value in values if value is not None]
            row.append(format_mean(float(np.mean(known)), _deviation(known), name) if known else "–")
        row += [format_value(one.scores[name].value if name in one.scores else None, name) for one in others]
        rows.append(row)
    columns = ["baseline", *(f"baseline {index}" for index in range(2, len(others) + 1))][: len(others)]
    legend = "; ".join(f"{name}: {one.name}" for name, one in zip(columns, others, strict=True))
    page.table([*headers, *columns], rows, caption=f"{legend[:1].upper()}{legend[1:]}." if others else "")
    metric = outcome.card.metric
    kept = {seed: one.outputs is outcome.outputs for seed, one in outcomes.items()}
    names = {seed: f"{unit} {seed}, kept" if kept[seed] else f"{unit} {seed}" for seed in outcomes}
    points = [_point(names[seed] if several else "this model", one, 0) for seed, one in outcomes.items()]
    if several and unit == "seed" and not any(kept.values()):
        points.append(_point("their average, kept", outcome, 0))
    points += [_point(one.name, one, 1) for one in others]
    drawn = [point for point in points if point is not None]
    if len(drawn) > 1:
        page.figure(
            lambda: report_figures.comparison(drawn, metric_name(metric), lambda value: format_value(value, metric)),
            f"{metric_name(metric)} with 95 % intervals over the examples."
            + (f" The intervals do not include the differences from {unit} to {unit}." if several else ""),
        )
    page.text(choice_sentence(outcome.card, len(outcomes) if unit == "seed" else 1))


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _point(name: str, outcome: Outcome, colour: int) -> report_figures.ScoreWithInterval | None:
    score = outcome.main
    if score.value is None:
        return None
    return report_figures.ScoreWithInterval(name, score.value, score.low, score.high, colour)


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
    page.heading("Training")
    last = outcome.card.chosen_on == "nothing"
    with page.columns() as (left, right):
        left.figure(lambda: report_figures.learning(losses, "loss on training examples"), "Training loss.")
        right.figure(
            lambda: report_figures.learning(scores, metric_in_sentence(outcome.card.metric)),
            f"Score on the {'choosing' if outcome.card.chosen_apart else 'held-out'} examples at every evaluation. "
            + ("The last weights are kept." if last else "The best weights are kept."),
        )
    if seeds:
        rows = [
            [f"seed {one.seed}", format_value(one.score, outcome.card.metric), f"{one.epoch:g} of {one.epochs:g}",
             ", ".join(f"{epoch:g}" for epoch in one.averaged) or "–", one.steps, duration(one.seconds),
             f"{one.examples_per_second:,.0f}", one.stopped]
            for one in seeds
        ]  # fmt: skip
        kept = "kept epoch" if last else "best epoch"
        headers = ["", metric_name(outcome.card.metric), kept, "averaged", "steps", "time", "examples/s",
                   "stopped"]  # fmt: skip
        page.table(headers, rows)


Curves = dict[str, tuple[list[float], list[float]]]


def learning_curves(lines: Sequence[Mapping[str, Any]], metric: str, epochs: float) -> tuple[Curves, Curves]:
    """Training loss and held-out score by epoch, for every seed."""
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


def _data(page: Page, outcome: Outcome, findings: Sequence[Finding], notes: Sequence[str]) -> None:
    page.heading("Data")
    card = outcome.card
    for finding in findings:
        page.message(finding.severity, finding.problem, finding.remedy, finding.evidence)
    if not findings:
        page.good("No empty texts, leaked targets or duplicates between training and held-out examples were found.")
    if notes:
        page.text(" ".join(note if note.endswith((".", "!", "?")) else f"{note}." for note in notes))
    if card.labels and outcome.truth is not None and len(card.labels) <= MAX_LABEL_BARS:
        counts = label_counts(outcome)
        page.figure(
            lambda: figures.bars(list(card.label_names), counts / max(1.0, float(counts.sum())), write=share),
            "The labels of the held-out examples." if card.head != "token" else "The tags of the held-out words.",
        )
    if card.template is not None:
        first = {name: outcome.data.table.column(name)[0] for name in card.template.columns}
        beside = " Numbers go to the model as numbers, beside the name of their column." if card.reads_numbers else ""
        page.text(f"The model reads a row of the table as “{card.template.shown(first)[:400]}”.{beside}")
        with page.details("How each column is used") as inside:
            inside.table(["column", "type", "in the sentence", "reason"], card.template.rows(outcome.data.table))


def label_counts(outcome: Outcome) -> np.ndarray:
    """The number of examples (or words) per label."""
    labels = len(outcome.card.labels)
    if outcome.card.head == "multilabel":
        return np.asarray(outcome.truth).sum(0)
    truth = np.concatenate(list(outcome.truth)) if outcome.card.head == "token" else np.asarray(outcome.truth)
    return np.bincount(truth.astype(np.int64), minlength=labels)


def _run_facts(page: Page, settings: Mapping[str, Any], receipt: Mapping[str, Any], baseline: Baseline | None) -> None:
    page.heading("Settings and versions")
    if receipt.get("command"):
        page.text("Command of this run:")
        page.code(receipt["command"])
    facts = {
        **receipt.get("machine", {}),
        "started": receipt.get("begun", "").replace("T", " ").replace("+00:00", " UTC"),
        **receipt.get("versions", {}),
    }
    if baseline is not None:
        facts["time of the baseline"] = duration(baseline.seconds + sum(one.seconds for one in baseline.others))
    rows = [[key.replace("_", " "), str(value)] for key, value in facts.items() if value]
    if rows:
        page.table(["machine and versions", ""], rows)
    with page.details("All settings") as inside:
        inside.code(json.dumps(dict(settings), indent=2, ensure_ascii=False))


def _receipt(run: Path) -> dict[str, Any]:
    """The content of settings.json; empty if it cannot be read."""
    try:
        content = json.loads((run / "settings.json").read_text(encoding="utf-8"))
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}
