"""`glassbert corpus`: build a corpus from text files, and check it."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from glassbert.cli.corpus_report import report
from glassbert.cli.folder_job import check_place
from glassbert.cli.help import new_app
from glassbert.cli.options import Address, AsJson, On, chosen, counted
from glassbert.cli.output import print_json
from glassbert.cli.run_options import options_of, with_settings
from glassbert.tasks.file_settings import FileSettings
from glassbert.text.corpus import Corpus, build_corpus
from glassbert.text.corpus import Progress as BuildProgress
from glassbert.text.corpus.settings import FORMATS, LAYOUTS, ON_BAD_TEXT, READING
from glassbert.training.settings import TOKENIZER_KINDS

app = new_app(help="Build a corpus from text files, and check it before training.")
app.command()(report)

STAGES = {"vocabulary": "training the vocabulary", "reading": "tokenizing", "writing": "writing shards"}


def _choices(meanings: dict[str, str]) -> str:
    return "; ".join(f"{name}: {meaning}" for name, meaning in meanings.items()) + "."


def _build(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, globs in quotes, - for standard input, hf:NAME for a Hugging Face dataset, "
            "python: (the default) for the documentation of your Python installation.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the corpus.")] = Path("corpus"),
    tokenizer: Annotated[
        Path | None, typer.Option(help="A folder with a tokenizer.json or vocab.txt. Default: train a tokenizer.")
    ] = None,
    vocab_size: Annotated[int, counted("Entries of the vocabulary to train.", least=6)] = 8192,
    cased: Annotated[bool, typer.Option("--cased", help="Train a case-sensitive vocabulary.")] = False,
    tokenizer_kind: Annotated[
        str, chosen("The kind of tokenizer to train; bpe is that of bytes.", TOKENIZER_KINDS)
    ] = "wordpiece",
    layout: Annotated[str, chosen(f"The layout of plain text. {_choices(LAYOUTS)}", LAYOUTS)] = "paragraphs",
    format: Annotated[
        str | None, chosen(f"The format of all sources: {', '.join(FORMATS)}. Default: by file name.", FORMATS)
    ] = None,
    text: Annotated[str | None, typer.Option(help="The JSON field or column with the text. Default: detect.")] = None,
    on_bad_text: Annotated[
        str, chosen(f"What to do with bytes that are not UTF-8. {_choices(ON_BAD_TEXT)}", ON_BAD_TEXT)
    ] = "error",
    clean: Annotated[
        bool, typer.Option("--clean/--no-clean", help="Remove control characters, HTML, noise and repeated lines.")
    ] = True,
    min_characters: Annotated[
        int | None, counted("Leave out shorter documents. Default: 20; 0 with --no-clean.", least=0)
    ] = None,
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Keep exact duplicates.")] = False,
    near_duplicates: Annotated[
        float,
        typer.Option(help="Leave out documents with this similarity (Jaccard) to an earlier one.", min=0.2, max=0.99),
    ] = 0.8,
    keep_near_duplicates: Annotated[bool, typer.Option("--keep-near-duplicates", help="Keep near-duplicates.")] = False,
    validation: Annotated[float, typer.Option(help="The share of documents to hold out.", min=0, max=0.99)] = 0.01,
    seed: Annotated[int, counted("Determines which documents are held out.", least=0)] = 0,
    shard_tokens: Annotated[int, counted("Maximum number of tokens per shard.")] = 1 << 24,
    workers: Annotated[int | None, counted("Number of processes; all cores by default.")] = None,
    on: On = "here",
    address: Address = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the corpus in the folder.")] = False,
    as_json: AsJson = False,
    **reading: Any,
) -> None:
    """Build a corpus: read text, clean it, remove duplicates, hold out documents, and write memory-mapped tokens.

    Reads plain text, Markdown, JSON, CSV, TSV, Excel and Parquet, also compressed (gz, xz, bz2, zst), in bounded
    memory. The same input gives the same bytes. If a build is interrupted, run the same command again to continue.
    """
    make_parts = None
    if check_place(on, address) == "ray":
        from glassbert.on_ray.cluster import ray_package
        from glassbert.on_ray.corpus import parts_on_cluster

        ray_package()
        make_parts = parts_on_cluster(address, workers)
    screen = Console(stderr=True)
    start = time.perf_counter()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        console=screen,
        disable=not screen.is_terminal,
    ) as bar:
        on_progress = _ProgressBar(bar)
        corpus = build_corpus(
            sources or [],
            output,
            tokenizer,
            vocab_size=vocab_size,
            lowercase=not cased,
            kind=tokenizer_kind,
            workers=workers,
            make_parts=make_parts,
            overwrite=overwrite,
            progress=on_progress,
            layout=layout,
            format=format,
            field=text,
            on_bad_text=on_bad_text,
            clean=clean,
            min_characters=min_characters,
            exact_duplicates=not keep_duplicates,
            near_duplicates=None if keep_near_duplicates else near_duplicates,
            validation=validation,
            seed=seed,
            shard_tokens=shard_tokens,
            **reading,
        )
    seconds = time.perf_counter() - start
    if as_json:
        names = ("sources", "tokenizer", "counts", "cleaning", "splits")
        print_json({"folder": corpus.folder, "seconds": seconds, **{name: corpus.manifest[name] for name in names}})
        return
    console = Console()
    console.print(summary(corpus))
    if not on_progress.tasks:
        result = f"{corpus.folder} already exists with the same sources and settings."
    else:
        resumed = on_progress.resumed
        resumed_text = f", {resumed / 1e6:,.1f} MB of it by an earlier run" if resumed else ""
        result = f"{corpus.folder}: {on_progress.text / 1e6:,.1f} MB of text in {seconds:,.1f} s{resumed_text}"
    console.print(result, markup=False, highlight=False, soft_wrap=True)
    for note in corpus.manifest.get("notes", []):
        console.print(f"Note: {note}.", markup=False, highlight=False, soft_wrap=True, style="yellow")


build = with_settings(_build, partial(options_of, FileSettings, only=READING))
app.command("build")(build)


class _ProgressBar:
    """Shows one line per stage of a build."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self.tasks: dict[str, tuple[TaskID, float]] = {}
        self.text = self.resumed = 0

    def __call__(self, progress: BuildProgress) -> None:
        if progress.stage not in self.tasks:
            self.tasks[progress.stage] = self.bar.add_task(STAGES[progress.stage], speed=""), time.perf_counter()
        task, start = self.tasks[progress.stage]
        speed = ""
        if progress.stage == "reading":
            self.text, self.resumed = progress.text, progress.resumed
            new = (progress.text - progress.resumed) / 1e6
            speed = f"{progress.text / 1e6:,.0f} MB of text, {new / (time.perf_counter() - start + 1e-9):.1f} MB/s"
        self.bar.update(task, completed=progress.done, total=progress.total or None, speed=speed)


def summary(corpus: Corpus) -> Table:
    """A table of the documents read, left out and kept, and of the size of each split."""
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
