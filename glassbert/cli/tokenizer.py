"""`glassbert tokenizer`: train a vocabulary, show how words are split, and summarise a vocabulary."""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from glassbert.cli.help import new_app
from glassbert.cli.options import AsJson, counted
from glassbert.cli.output import print_json
from glassbert.errors import TextError
from glassbert.text import FastTokenizer, Tokenizer, WordPieceTokenizer, load_tokenizer
from glassbert.text.inspection import VocabularySummary, WordTrace, summarise_vocabulary, trace_words
from glassbert.text.wordpiece_files import FILES

app = new_app(help="Train a vocabulary, show how words are split, summarise a vocabulary.")
COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green", "black on bright_magenta")
UNKNOWN, SPECIAL = "white on red", "black on bright_white"
Folder = Annotated[Path, typer.Argument(help="A folder with a tokenizer.json or vocab.txt, or such a file.")]


# ---- train ---------------------------------------------------------------------------------------------------------


@app.command()
def train(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write the tokenizer to.")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files (also .gz .xz .zst .bz2), JSONL, CSV, Parquet, Markdown, or folders of these. Default: "
            "the documentation of your Python installation."
        ),
    ] = None,
    vocab_size: Annotated[int, counted("Entries of the vocabulary, including special tokens.", least=6)] = 8192,
    cased: Annotated[bool, typer.Option("--cased", help="Keep capitals and accents.")] = False,
    min_frequency: Annotated[int, counted("Minimum number of occurrences of a merged pair.")] = 2,
    hand: Annotated[
        bool, typer.Option("--hand/--fast", help="GlassBERT's trainer, or that of Hugging Face's tokenizers.")
    ] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the tokenizer in the folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a WordPiece vocabulary and write it for GlassBERT and for Hugging Face's AutoTokenizer.

    The vocabulary starts with [PAD] [UNK] [CLS] [SEP] [MASK] and the characters of the text; then the most frequent
    pair of tokens is merged, repeatedly, until there are --vocab-size entries. The same text always gives the same
    vocabulary. Memory does not grow with the text.
    """
    from glassbert.text.corpus.documents import read_documents

    if (output / "tokenizer.json").exists() and not overwrite:
        raise TextError(f"{output} already contains a tokenizer; add --overwrite to replace it")
    kind: type[Tokenizer] = WordPieceTokenizer if hand else FastTokenizer
    screen = Console(stderr=True)
    start = time.monotonic()
    with (
        warnings.catch_warnings(record=True) as caught,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[done]}"),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
        ) as bar,
    ):
        warnings.simplefilter("always")
        task = bar.add_task("Reading", total=None, done="")

        def on_progress(stage: str, done: int, total: int) -> None:
            amount = f"{done:,} of {total:,}" if total else f"{done / 1e6:,.0f} million characters"
            bar.update(task, description=stage.capitalize(), completed=done, total=total or None, done=amount)

        tokenizer = kind.train(read_documents(sources or []), vocab_size, not cased, min_frequency, on_progress)
    tokenizer.save(output)
    for warning in caught:
        screen.print(str(warning.message), style="yellow", markup=False)
    seconds = time.monotonic() - start
    if as_json:
        facts = {"folder": output, "entries": tokenizer.vocab_size, "fingerprint": tokenizer.fingerprint}
        print_json({**facts, "seconds": seconds, "warnings": [warning.message for warning in caught]})
        return
    console = Console()
    console.print(f"{tokenizer.vocab_size:,} entries trained in {seconds:.0f} s, written to {output}", markup=False)
    console.print(f"fingerprint {tokenizer.fingerprint[:16]}", style="dim")
    console.print(f"To inspect it: glassbert tokenizer inspect {shlex.quote(str(output))}", markup=False, style="dim")


# ---- encode --------------------------------------------------------------------------------------------------------


@app.command()
def encode(
    folder: Folder,
    text: Annotated[str, typer.Argument(help='The text; "-" reads it from standard input.')],
    pair: Annotated[str | None, typer.Argument(help="A second text, for example the answer to a question.")] = None,
    max_length: Annotated[int | None, counted("Truncate to this number of tokens.")] = None,
    hand: Annotated[
        bool, typer.Option("--hand/--fast", help="GlassBERT's Python tokenizer, or Hugging Face's tokenizers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how each word of a text is split, and why: what was tried, what matched, why a word is unknown."""
    text = sys.stdin.read().rstrip("\n") if text == "-" else text
    tokenizer: Tokenizer = WordPieceTokenizer.load(folder) if hand else load_tokenizer(folder)
    encoding = tokenizer.encode(text, pair, max_length=max_length)
    if as_json:
        print_json(asdict(encoding), indent=None)
        return
    console = Console()
    console.print(coloured(encoding.tokens, tokenizer))
    console.print(Text(" ".join(map(str, encoding.ids)), "dim"))
    wordpiece = wordpiece_tokenizer(tokenizer)
    if wordpiece is None:
        kind = tokenizer.kind if isinstance(tokenizer, FastTokenizer) else ""
        console.print(f"Reasons are available for WordPiece only; this is {kind}.", style="dim")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("word", "pieces", "why"):
        table.add_column(heading, no_wrap=heading == "word")
    for one in (text, pair):
        for trace in trace_words(wordpiece, one) if one else ():
            tokens = coloured([piece.token for piece in trace.pieces], wordpiece)
            table.add_row(written(trace), tokens, Text(trace.reason))
    console.print(table)


def wordpiece_tokenizer(tokenizer: Tokenizer) -> WordPieceTokenizer | None:
    """The `WordPieceTokenizer` with the same description, or None for other kinds."""
    if isinstance(tokenizer, WordPieceTokenizer):
        return tokenizer
    description = tokenizer.description if isinstance(tokenizer, FastTokenizer) else None
    return WordPieceTokenizer(description) if description else None


def written(trace: WordTrace) -> Text:
    """The word as written and, if different, as normalised; both truncated to 24 characters."""
    shown = trace.written if len(trace.written) <= 24 else f"{trace.written[:23]}…"
    if trace.written == trace.word:
        return Text(shown)
    return Text.assemble(shown, (f" → {trace.word if len(trace.word) <= 24 else trace.word[:23] + '…'}", "dim"))


def coloured(tokens: list[str], tokenizer: Tokenizer) -> Text:
    """Tokens in alternating colours; special tokens white, unknown tokens red."""
    shown = Text()
    turn = 0
    for token in tokens:
        id = tokenizer.vocabulary[token]
        style = UNKNOWN if id == tokenizer.unknown_id else SPECIAL if id in tokenizer.special_ids else ""
        if not style:
            style, turn = COLOURS[turn % len(COLOURS)], turn + 1
        shown.append(token, style).append(" ")
    shown.right_crop(1)
    return shown


# ---- inspect -------------------------------------------------------------------------------------------------------


@app.command()
def inspect(
    folder: Folder,
    as_json: AsJson = False,
) -> None:
    """Summarise a vocabulary: size, special ids, continuations, longest and unreachable entries, characters."""
    tokenizer = load_tokenizer(folder)
    description = tokenizer.description
    summary = summarise_vocabulary(tokenizer, description.normaliser if description else None)
    if as_json:
        facts = {"kind": tokenizer.kind, "fingerprint": tokenizer.fingerprint, **asdict(summary)}
        print_json(facts)
        return
    console = Console()
    grid = Table.grid(padding=(0, 2))
    for label, value in facts_of(tokenizer, summary):
        grid.add_row(Text(label, "bold"), Text(value))
    files = [folder / name for name in FILES if (folder / name).is_file()] if folder.is_dir() else [folder]
    grid.add_row(Text("files", "bold"), Text(", ".join(f"{p.name} ({p.stat().st_size:,} bytes)" for p in files)))
    grid.add_row(Text("fingerprint", "bold"), Text(tokenizer.fingerprint))
    console.print(grid)
    console.print(length_table(summary))


def facts_of(tokenizer: FastTokenizer, summary: VocabularySummary) -> list[tuple[str, str]]:
    facts = [
        ("kind", tokenizer.kind + (f", {switches(tokenizer)}" if tokenizer.description else "")),
        ("entries", f"{summary.entries:,}"),
        ("special", ", ".join(f"{name} {id}" for name, id in summary.special.values())),
        ("continue a word", f"{summary.continuations:,} ({summary.continuations / summary.entries:.0%})"),
        ("characters", ", ".join(f"{count:,} {script}" for script, count in list(summary.characters.items())[:12])),
        ("longest", "  ".join(summary.longest)),
    ]
    if summary.reserved:
        facts.append(("reserved", f"{summary.reserved:,} entries named like [unused0]"))
    for label, tokens, meaning in (
        ("unreachable", summary.unreachable, "that no text can produce"),
        ("only first", summary.only_first, "with an entry only at the start of a word"),
    ):
        if tokens:
            facts.append((label, f"{len(tokens):,} {meaning}: {'  '.join(tokens[:12])}" + " …" * (len(tokens) > 12)))
    return facts


def switches(tokenizer: FastTokenizer) -> str:
    assert tokenizer.description
    normaliser = tokenizer.description.normaliser
    case = "lower case" if normaliser.lowercase else "case kept"
    return f"{case}, accents {'stripped' if normaliser.strips_accents else 'kept'}"


def length_table(summary: VocabularySummary) -> Table:
    """The number of entries per length in characters, as bars."""
    table = Table(title="Entries by length", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("characters", "entries", ""):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    most = max(summary.lengths.values(), default=1)
    for length, count in summary.lengths.items():
        table.add_row(str(length), f"{count:,}", Text("█" * max(1, round(30 * count / most)), "cyan"))
    return table
