"""The report as an HTML page: headline measures, subjects, one section per suite, and the machine and versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.evaluation.comparison import CHANCE, Comparison
from glassbert.evaluation.evaluation import Evaluation
from glassbert.evaluation.measures import Measure, write
from glassbert.evaluation.suite import SuiteResult, Table
from glassbert.reports import Html, Page, Section, figures, short
from glassbert.reports.drawing import LIGHT, escape_math, label, plot_style
from glassbert.training.display import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNS = {
    "better": "▲ better",
    "worse": "▼ worse",
    "more": "▲ more",
    "less": "▼ less",
    CHANCE: "≈ could be chance",
    "the same": "= the same",
}
CHECK_SIGNS = {
    "ok": "✓ ok",
    "problem": "✕ problem",
    "warning": "! warning",
    "note": "i note",
    "not checked": "– not checked",
}


def evaluation_page(evaluation: Evaluation) -> Page:
    subjects = evaluation.subjects
    options = evaluation.options
    kind = (
        "Quick evaluation on small samples" if options.quick
        else "Thorough evaluation on all data" if options.thorough
        else "Evaluation; the notes of a suite name its samples"
    )  # fmt: skip
    page = Page(
        evaluation.title,
        f"{kind}; {duration(evaluation.seconds)}; {evaluation.made.replace('T', ' ').replace('+00:00', ' UTC')}.",
        footer="Intervals are 95 % confidence intervals over documents, sentences or pairs, never over tokens.",
    )
    if len(subjects) == 1:
        _headlines(page, evaluation)
    _subjects(page, evaluation)
    if len(subjects) > 1:
        _overview(page, evaluation)
    for name in evaluation.suites:
        _suite(page, evaluation, name)
    _provenance(page, evaluation)
    return page


def _headlines(page: Page, evaluation: Evaluation) -> None:
    """The headline measures of every suite, as cards."""
    (results,) = evaluation.results.values()
    facts = []
    for result in results.values():
        for row in result.headlines:
            facts.append((f"{_short(result.title)}: {row.name}", row.text, row.range))
    if facts:
        page.facts(facts)


def _subjects(page: Page, evaluation: Evaluation) -> None:
    rows = []
    for subject in evaluation.subjects:
        config = subject.model.config
        seen = "not known" if subject.tokens_seen is None else short(subject.tokens_seen)
        head = "none" if subject.model.head is None else subject.model.head.kind
        size = f"{config.num_hidden_layers} layers of {config.hidden_size}"
        rows.append((subject.name, short(subject.parameters), size, config.vocab_size, subject.max_length, head, seen))
    page.table(["model", "parameters", "encoder", "vocabulary", "longest input", "head", "tokens seen"], rows)


def _overview(page: Page, evaluation: Evaluation) -> None:
    """The headline measures of every suite, compared."""
    page.heading("Overview")
    rows: list[Comparison] = []
    for name in evaluation.suites:
        top = {row.name for suites in evaluation.results.values() for row in suites[name].headlines}
        rows += [one for one in evaluation.comparison if one.suite == name and not one.group and one.name in top]
    _compared_table(page, evaluation, rows, with_suite=True)
    with_interval = [one for one in evaluation.comparison if one.difference is not None]
    page.text(
        f"Differences are relative to {evaluation.subjects[0].name}, on the same data. A difference is called better "
        f"or worse if its interval excludes zero. This page has {len(with_interval)} such comparisons; between equal "
        "models one in twenty would be called better or worse by chance, so quote the main rows, not the best one."
    )


def _suite(page: Page, evaluation: Evaluation, name: str) -> None:
    results = {subject: suites[name] for subject, suites in evaluation.results.items()}
    first = next(iter(results.values()))
    page.heading(first.title)
    for subject, result in results.items():
        prefix = f"{subject}: " if len(results) > 1 else ""
        if result.skipped_because:
            level = "problem" if result.failed else "note"
            page.message(level, f"{prefix}{'Failed' if result.failed else 'Left out'}: {result.skipped_because}")
        for finding in result.findings:
            page.message(finding.severity, prefix + finding.problem, finding.remedy, finding.evidence)
    if all(result.skipped_because for result in results.values()):
        return
    if len(results) == 1:
        _measures(page, first.main)
    else:
        _side_by_side(page, evaluation, results, name)
    _groups(page, evaluation, results)
    shown: list[Table] = []
    for subject, result in results.items():
        for picture in result.figures:
            page.figure(picture.draw, (f"{subject}: " if len(results) > 1 else "") + picture.caption)
        for table in result.tables:
            shared = all(table in one.tables for one in results.values() if not one.skipped_because)
            if table not in shown:
                _table(page, table, "" if shared else subject, folded=len(results) > 1)
            shown += [table] if shared else []
    _notes(page, results)


def _measures(page: Section, rows: Sequence[Measure]) -> None:
    if not rows:
        return
    page.table(
        ["", "value", "95 % interval", ""],
        [(row.name, no_wrap(row.text), *_interval_and_notes(row)) for row in rows],
    )


def _interval_and_notes(row: Measure) -> tuple[str, str]:
    """The interval, and the note with the reference values; or the reason if there is no value."""
    if row.value is None:
        return "", row.reason
    about = [row.note, f"compare: {row.reference}" if row.reference else ""]
    return no_wrap(row.range), "; ".join(part for part in about if part)


def _short(title: str) -> str:
    """The part of a title before the colon."""
    return title.split(":")[0]


def no_wrap(text: str) -> Html:
    """Text that stays on one line."""
    return Html(f'<span style="white-space: nowrap">{escape(text)}</span>')


def _side_by_side(page: Page, evaluation: Evaluation, results: dict[str, SuiteResult], name: str) -> None:
    """Differences of shared measures, and below them the measures of one subject only."""
    rows = [one for one in evaluation.comparison if one.suite == name and not one.group]
    _compared_table(page, evaluation, rows)
    shared = {one.name for one in rows}
    for subject, result in results.items():
        alone = [row for row in result.main if row.name not in shared]
        if alone:
            page.text(f"{subject} only:")
            _measures(page, alone)


def _compared_table(
    page: Section, evaluation: Evaluation, rows: Sequence[Comparison], with_suite: bool = False
) -> None:
    if not rows:
        return
    several = len(evaluation.subjects) > 2
    baseline, *others = (subject.name for subject in evaluation.subjects)
    headers = ["", baseline, *(["of"] if several else []), "other" if several else others[0], "difference",
               "95 % interval", ""]  # fmt: skip
    titles = {name: one.title for name, one in next(iter(evaluation.results.values())).items()}
    shown = []
    for one in rows:
        label = f"{_short(titles[one.suite])}: {one.name}" if with_suite else one.name
        shown.append(
            [label, no_wrap(one.first.text), *([one.subject] if several else []), no_wrap(one.second.text),
             one.text, one.range if one.difference is None else no_wrap(one.range),
             no_wrap(SIGNS.get(one.verdict, ""))]
        )  # fmt: skip
    page.table(headers, shown)


def _groups(page: Page, evaluation: Evaluation, results: dict[str, SuiteResult]) -> None:
    """Breakdowns: one figure for all subjects, and a collapsed table."""
    names = list(dict.fromkeys(group for result in results.values() for group in result.groups))
    for group in names:
        rows = {subject: result.groups.get(group, []) for subject, result in results.items()}
        marks = next((result.marks[group] for result in results.values() if group in result.marks), None)
        title = group[0].upper() + group[1:]
        if any(row.value is not None for some in rows.values() for row in some):
            page.figure(lambda rows=rows, marks=marks: group_figure(rows, marks), f"{title}.")  # type: ignore[misc]
        with page.details(f"{title}: the numbers") as inside:
            if len(results) == 1:
                _measures(inside, next(iter(rows.values())))
            else:
                some = [one for one in evaluation.comparison if one.group == group]
                _compared_table(inside, evaluation, some)


def _table(page: Page, table: Table, subject: str, folded: bool) -> None:
    title = f"{table.title} ({subject})" if subject else table.title
    rows = [[CHECK_SIGNS.get(cell, cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows]
    if not rows:
        return
    if table.folded or folded:
        with page.details(title) as inside:
            inside.table(table.headers, rows)
            if table.note:
                inside.text(table.note)
        return
    page.table(table.headers, rows, caption=title)
    if table.note:
        page.text(table.note)


def _notes(page: Page, results: dict[str, SuiteResult]) -> None:
    lines = list(dict.fromkeys(
        f"{subject}: {note}" if len({tuple(one.notes) for one in results.values()}) > 1 else note
        for subject, result in results.items() for note in result.notes
    ))  # fmt: skip
    if lines:
        page.text("Method: " + "; ".join(lines) + ".")


def _provenance(page: Page, evaluation: Evaluation) -> None:
    page.heading("Command, machine and versions")
    page.text("The same weights, data and version give the same figures; times depend on the machine and its load.")
    if evaluation.command:
        page.code(evaluation.command)
    content = evaluation.as_json()
    facts: dict[str, Any] = {
        key: content[key] for key in ("made", "quick", "resamples", "machine", "versions", "subjects")
    }
    with page.details("Machine, versions, checksums") as inside:
        inside.code(json.dumps(facts, indent=2, ensure_ascii=False))


MARKERS = "osD^vP"
MAX_MEASURE = 46  # characters of the name of a measure in a figure


def group_figure(rows: Mapping[str, Sequence[Measure]], marks: Mapping[str, float] | None = None) -> Figure:
    """One line per measure, the first on top: a dot for the value, a bar for its interval, one colour per subject.

    `marks` are vertical reference lines, such as chance.
    """
    names = list(dict.fromkeys(row.name for some in rows.values() for row in some if row.value is not None))
    unit = next(row.unit for some in rows.values() for row in some)
    height = 0.75 + len(names) * (0.235 + 0.06 * (len(rows) - 1))
    figure, axes = figures.new(7, height)
    with plot_style():
        for number, (subject, some) in enumerate(rows.items()):
            known = [row for row in some if row.value is not None]
            if not known:
                continue
            offset = (number - (len(rows) - 1) / 2) * 0.26
            heights = np.array([names.index(row.name) for row in known]) + offset
            values = np.array([float(row.value or 0.0) for row in known])
            ink = figures.colour(number)
            for row, y in zip(known, heights, strict=True):
                if row.interval is not None:
                    axes.hlines(y, *row.interval, color=ink, linewidth=1.6, alpha=0.55)
            axes.scatter(
                values,
                heights,
                s=24,
                marker=MARKERS[number % 6],
                color=ink,
                linewidths=0,
                label=label(subject),
                zorder=3,
            )
            if len(rows) == 1:
                ends = np.array([row.interval[1] if row.interval else row.value for row in known], float)
                for row, y, end in zip(known, heights, ends, strict=True):
                    axes.annotate(escape_math(row.text), (end, y), xytext=(6, 0), textcoords="offset points",
                                  va="center", fontsize=8.5)  # fmt: skip
        for name, at in (marks or {}).items():
            axes.axvline(at, color=LIGHT["muted"], linewidth=1, linestyle=(0, (3, 3)))
            axes.annotate(escape_math(name), (at, 1), xycoords=("data", "axes fraction"), xytext=(3, 3),
                          textcoords="offset points", fontsize=8.5, color=LIGHT["muted"])  # fmt: skip
        axes.set_yticks(range(len(names)), [label(name, MAX_MEASURE) for name in names])
        axes.tick_params(axis="y", labelcolor=LIGHT["ink"])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(False, axis="y")
        if unit == "share":
            low, high = axes.get_xlim()
            axes.set_xlim(max(low, -0.02), min(max(high, low + 0.1), 1.12 if len(rows) == 1 else 1.02))
        axes.margins(x=0.1)
        is_share = unit == "share"
        axes.xaxis.set_major_formatter(
            lambda value, _: (
                "" if is_share and not -1e-9 <= value <= 1 + 1e-9 else write(round(value, 10), unit * is_share)
            )
        )
        axes.set_xlabel(escape_math("" if unit == "share" else unit))
        if len(rows) > 1:
            figure.legend(loc="outside lower center", ncols=min(len(rows), 3))
    return figure
