"""`glassbert corpus report`: check a corpus; the report as tables, as an HTML page or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from glassbert.cli.options import AsJson
from glassbert.cli.output import print_json
from glassbert.reports import number, share, short
from glassbert.text.corpus.health import Health, examine, health_page
from glassbert.text.corpus.health.page import VERDICTS
from glassbert.text.corpus.reader import Corpus

COLOURS = {"problem": "bold red", "warning": "yellow", "note": "cyan", "good": "green"}


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A corpus made by `glassbert corpus build`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write an HTML page with plots to FILE.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a corpus before training: statistics, problems and remedies.

    Counts documents, sentences and tokens; finds copies, HTML, noise, very long lines, unknown words, held-out text
    in the training text, and more. With -o it writes a page with plots and samples. The exit code is 1 if there is a
    problem that should be repaired before training, and 0 otherwise.
    """
    corpus = Corpus.open(folder)
    screen = Console(stderr=True)
    with Progress(
        TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
        console=screen, transient=True, disable=not screen.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=sum(split.tokens for split in corpus.splits.values()))
        health = examine(corpus, lambda tokens: bar.advance(task, tokens))
    if output is not None:
        health_page(health).write(output)
    if as_json:
        print_json(health.as_dict())
    else:
        show(Console(), health)
        if output is not None:
            typer.echo(f"Page with plots and samples: {output}")
    if health.verdict == "problem":
        raise typer.Exit(1)


def show(console: Console, health: Health) -> None:
    """Print the sources, the most important numbers and the findings."""
    console.print(source_table(health))
    console.print(number_table(health))
    for finding in health.findings:
        console.print(Text.assemble((f"{finding.level}: ", COLOURS[finding.level]), (finding.text, "bold")))
        for line in (finding.evidence, *(f"“{sample}”" for sample in finding.samples[:2])):
            console.print(Padding(Text(line, "dim"), (0, 0, 0, 4)))
        console.print(Padding(Text(f"→ {finding.remedy.replace('`', '')}"), (0, 0, 1, 4)))
    console.print(Text(VERDICTS[health.verdict], COLOURS[health.verdict]))


def source_table(health: Health) -> Table:
    table = Table(title="Sources", title_justify="left", title_style="bold", pad_edge=False, box=None)
    table.add_column("source", ratio=1)
    for heading in ("documents", "tokens", "unknown", "tokens/word", "letters"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, one in health.largest_sources():
        table.add_row(
            Text(name), number(one["documents"]), number(one["tokens"]), share(one["unknown_share"]),
            f"{one['tokens_per_word']:.2f}", share(one["letters_share"]),
        )  # fmt: skip
    for split_name, split in health.splits.items():
        table.add_row(Text(f"total, {split_name}", "dim"), number(split["documents"]), number(split["tokens"]))
    return table


def number_table(health: Health) -> Table:
    """A table with two named numbers per line."""
    measures, lengths = health.measures, health.document_lengths
    rows = [
        ("tokens", short(measures["tokens"])),
        ("vocabulary entries", number(measures["vocabulary"])),
        ("tokens per word", f"{measures['tokens_per_word']:.2f}"),
        ("entries never seen", share(measures["never_seen_share"])),
        ("unknown tokens", share(measures["unknown_share"])),
        ("entries seen rarely", share(measures["rarely_seen_share"])),
        ("median document", f"{number(lengths.quantile(0.5))} tokens"),
        ("repeated sentences", share(measures["repeated_sentences_share"])),
        ("longest document", f"{number(lengths.quantile(1.0))} tokens"),
        ("repeated documents", share(measures["repeated_documents_share"])),
        ("copies removed", share(measures["removed_duplicates_share"])),
        ("held-out sentences in training", share(measures["leaked_sentences_share"])),
    ]
    table = Table(
        title="Numbers", title_justify="left", title_style="bold", pad_edge=False, box=None, show_header=False
    )
    for _ in range(2):
        table.add_column(ratio=1)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(width=2)
    for left, right in zip(rows[::2], rows[1::2], strict=True):
        table.add_row(*left, "", *right, "")
    return table
