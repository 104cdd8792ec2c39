"""The report in the terminal: the main rows of every suite, its findings, and the reason if it was skipped."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.evaluation.comparison import Comparison
from glassbert.evaluation.evaluation import Evaluation
from glassbert.evaluation.measures import Measure
from glassbert.evaluation.suite import SuiteResult

COLOURS = {"problem": "bold red", "warning": "yellow", "note": "cyan"}
VERDICTS = {"better": "green", "worse": "red", "could be chance": "dim"}


def show(console: Console, evaluation: Evaluation, details: bool = False) -> None:
    """Print the report. `details` adds the rows of the breakdowns."""
    several = len(evaluation.subjects) > 1
    for name in evaluation.suites:
        results = {subject: suites[name] for subject, suites in evaluation.results.items()}
        first = next(iter(results.values()))
        console.print(Text(f"\n{first.title}", style="bold"))
        for subject, result in results.items():
            prefix = f"{subject}: " if several else ""
            if result.skipped_because:
                word = "failed" if result.failed else "left out"
                console.print(Text(f"  {prefix}{word}: {result.skipped_because}", "red" if result.failed else "dim"))
            for finding in result.findings:
                style = COLOURS[finding.severity]
                console.print(Text(f"  {prefix}{finding.severity}: {finding.problem} {finding.evidence}", style))
                console.print(Text(f"    {finding.remedy}", "dim"))
        if several:
            _print(console, _comparison_table(evaluation, name, details))
        else:
            _print(console, _single_table(first, details))
        for note in dict.fromkeys(note for result in results.values() for note in result.notes[:1]):
            console.print(Text(f"  {note}", "dim"))
    if several:
        console.print(
            Text(f"\nDifferences: other model minus {evaluation.subjects[0].name}, with 95 % intervals.", "dim")
        )


def _print(console: Console, table: Table) -> None:
    if table.row_count:
        console.print(table)


def _single_table(result: SuiteResult, details: bool) -> Table:
    table = Table(box=None, pad_edge=True, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=26)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", ratio=1)
    group = ""
    for row in result.rows if details else result.main:
        if row.group != group:
            group = row.group
            table.add_row(Text(group, "italic"), "", "")
        table.add_row(Text(row.name), Text(row.text, "bold"), Text(_about(row)))
    return table


def _about(row: Measure) -> str:
    against = f"({row.reference})" if row.reference else ""
    return "  ".join(part for part in (row.range, against or row.note) if part)


def _comparison_table(evaluation: Evaluation, name: str, details: bool) -> Table:
    rows = [one for one in evaluation.comparison if one.suite == name and (details or not one.group)]
    several = len(evaluation.subjects) > 2
    table = Table(box=None, pad_edge=True, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("", overflow="fold")
    table.add_column(Text(evaluation.subjects[0].name), justify="right")
    table.add_column(Text("other" if several else evaluation.subjects[1].name), justify="right")
    if several:
        table.add_column("which")
    table.add_column("difference", justify="right")
    table.add_column("interval")
    table.add_column("")
    for one in rows:
        _row(table, one, several)
    return table


def _row(table: Table, one: Comparison, several: bool) -> None:
    cells = [Text(one.name), Text(one.first.text), Text(one.second.text), *([Text(one.subject)] if several else [])]
    verdict = Text(one.verdict, VERDICTS.get(one.verdict, ""))
    table.add_row(*cells, Text(one.text, "bold"), Text(one.range, "dim"), verdict)
