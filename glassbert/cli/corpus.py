"""`glassbert corpus`: text files in, memory-mapped tokens out, and a report on their health."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from glassbert.cli.corpus_report import report
from glassbert.text.corpus import Corpus, build_corpus
from glassbert.text.corpus import Progress as Reached
from glassbert.text.corpus.settings import FORMATS, LAYOUTS, ON_BAD_TEXT

app = typer.Typer(no_args_is_help=True, help="Make a corpus of text files, and see whether it is healthy.")
app.command()(report)

STAGES = {"vocabulary": "learning a vocabulary", "reading": "tokenising", "pouring": "writing shards"}


def _choices(meanings: dict[str, str]) -> str:
    return "; ".join(f"{name}: {meaning}" for name, meaning in meanings.items()) + "."


@app.command()
def build(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, globs in quotes, - for standard input, hf:NAME for a Hugging Face dataset, "
            "python: (the default) for the English of your Python installation.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")] = Path("corpus"),
    tokenizer: Annotated[
        Path | None, typer.Option(help="A folder with a tokenizer.json or vocab.txt; without it one is trained.")
    ] = None,
    vocab_size: Annotated[int, typer.Option(help="Entries of the vocabulary to train.", min=6)] = 8192,
    cased: Annotated[bool, typer.Option("--cased", help="Train a vocabulary that tells A from a.")] = False,
    layout: Annotated[str, typer.Option(help=f"How plain text lies. {_choices(LAYOUTS)}")] = "paragraphs",
    format: Annotated[
        str | None, typer.Option(help=f"What all sources hold, whatever their names: {', '.join(FORMATS)}.")
    ] = None,
    field: Annotated[str | None, typer.Option(help="The JSON field or column with the text; found if usual.")] = None,
    on_bad_text: Annotated[str, typer.Option(help=f"What is not UTF-8. {_choices(ON_BAD_TEXT)}")] = "error",
    clean: Annotated[bool, typer.Option("--clean/--no-clean", help="Remove what is no text.")] = True,
    min_characters: Annotated[int, typer.Option(help="Leave out shorter documents.", min=0)] = 20,
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Keep documents that are equal.")] = False,
    near_duplicates: Annotated[
        float, typer.Option(help="Leave out documents that share so much with an earlier one.", min=0.2, max=0.99)
    ] = 0.8,
    keep_near_duplicates: Annotated[
        bool, typer.Option("--keep-near-duplicates", help="Keep documents that are almost equal.")
    ] = False,
    validation: Annotated[float, typer.Option(help="The share of documents to hold out.", min=0, max=0.99)] = 0.01,
    seed: Annotated[int, typer.Option(help="Decides which documents are held out.", min=0)] = 0,
    shard_tokens: Annotated[int, typer.Option(help="Tokens in a shard, at most.", min=1)] = 1 << 24,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.", min=1)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is in the folder.")] = False,
) -> None:
    """Make a corpus: read text, clean it, drop duplicates, split it and tokenise it into memory-mapped shards.

    Reads plain text, Markdown, JSON lines, CSV, TSV and Parquet, each also compressed (gz, xz, bz2, zst), in little
    memory whatever the size. The same input gives the same bytes. If it is interrupted, the same command goes on where
    it stopped.
    """
    screen = Console(stderr=True)
    began = time.perf_counter()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        console=screen,
        disable=not screen.is_terminal,
    ) as bar:
        show = _Bar(bar)
        corpus = build_corpus(
            sources or [],
            output,
            tokenizer,
            vocab_size=vocab_size,
            lowercase=not cased,
            workers=workers,
            force=force,
            progress=show,
            layout=layout,
            format=format,
            field=field,
            on_bad_text=on_bad_text,
            clean=clean,
            min_characters=min_characters,
            exact_duplicates=not keep_duplicates,
            near_duplicates=None if keep_near_duplicates else near_duplicates,
            validation=validation,
            seed=seed,
            shard_tokens=shard_tokens,
        )
    console = Console()
    console.print(summary(corpus))
    seconds = time.perf_counter() - began
    if not show.tasks:
        last = f"{corpus.folder} was there already, from the same sources with the same settings."
    else:
        again = f", {show.resumed / 1e6:,.1f} MB of it by an earlier run" if show.resumed else ""
        last = f"{corpus.folder}: {show.text / 1e6:,.1f} MB of text in {seconds:,.1f} s{again}"
    console.print(last, markup=False, highlight=False, soft_wrap=True)


class _Bar:
    """A line of the progress bar for every stage of a build."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self.tasks: dict[str, tuple[TaskID, float]] = {}
        self.text = self.resumed = 0

    def __call__(self, reached: Reached) -> None:
        if reached.stage not in self.tasks:
            self.tasks[reached.stage] = self.bar.add_task(STAGES[reached.stage], speed=""), time.perf_counter()
        task, began = self.tasks[reached.stage]
        speed = ""
        if reached.stage == "reading":
            self.text, self.resumed = reached.text, reached.resumed
            new = (reached.text - reached.resumed) / 1e6
            speed = f"{reached.text / 1e6:,.0f} MB of text, {new / (time.perf_counter() - began + 1e-9):.1f} MB/s"
        self.bar.update(task, completed=reached.done, total=reached.total or None, speed=speed)


def summary(corpus: Corpus) -> Table:
    """What was read, what was left out and why, and what there is now."""
    counts = corpus.manifest["counts"]
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    rows = [("documents read", counts["documents_read"])]
    for name in ("exact_duplicates", "near_duplicates", "too_short", "noise", "unreadable"):
        if counts.get(name):
            rows.append((f"  left out: {name.replace('_', ' ')}", counts[name]))
    rows += [("documents kept", counts["documents_kept"])]
    for split in corpus.splits.values():
        rows += [(f"{split.name}: {what}", getattr(split, what)) for what in ("documents", "sentences", "tokens")]
    rows.append(("vocabulary", corpus.vocab_size))
    for label, value in rows:
        table.add_row(label, f"{value:,}")
    table.add_row("unknown tokens", f"{counts['unknown_tokens'] / max(counts['tokens'], 1):.3%}")
    return table
