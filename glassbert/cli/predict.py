"""`glassbert predict`: predictions of a fine-tuned model for a text or every row of a file."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from glassbert.checkpoints.packaged import DEFAULT_MODEL
from glassbert.cli.folder_job import Overwrite, RowsPerPart, Workers, is_folder_job, run_folder_job
from glassbert.cli.model_argument import kernels_for, model_and_text
from glassbert.cli.options import Address, On, Threads, chosen, counted
from glassbert.cli.output import check_not_input, print_json
from glassbert.cli.run_options import options_of, with_settings
from glassbert.cli.with_option import Extensions
from glassbert.engines import ENGINES
from glassbert.errors import InputError
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.predictions import WRITERS, Predictions
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.ranks import mean_ranks
from glassbert.reading.encodings import decode
from glassbert.tasks.file_settings import FileSettings
from glassbert.tasks.table import split_lines

SHOWN_LABELS, SHOWN_ROWS, SHOWN_CHARACTERS = 10, 12, 200


def _run(
    model: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A fine-tuning run, its model, a Hugging Face folder, or a hub id."),
    ] = DEFAULT_MODEL,
    text: Annotated[str | None, typer.Argument(help="The text.")] = None,
    pair: Annotated[str | None, typer.Option(help="The second text, for models on pairs.")] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", "-c", metavar="NAME=VALUE", help="A cell of a table row; repeat the flag."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            help="A file with one example per row; - reads one text per line from stdin. A folder, a glob in quotes or "
            "s3://bucket/folder: all files there.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help=f"The output file: {', '.join(WRITERS)} (vectors); of a folder, a folder."),
    ] = None,
    score: Annotated[
        bool, typer.Option("--score", help="Print scores; the file must contain the true targets.")
    ] = False,
    text_column: Annotated[
        str | None, typer.Option("--text", help="The text column, if its name differs from training.")
    ] = None,
    batch_tokens: Annotated[int, counted("Tokens computed at a time.", least=8)] = 8192,
    on: On = "here",
    address: Address = None,
    workers: Workers = None,
    rows_per_part: RowsPerPart = 4096,
    overwrite: Overwrite = False,
    engine: Annotated[str, chosen("onnxruntime runs an exported model.", (*ENGINES, "onnxruntime"))] = "auto",
    extensions: Extensions = None,
    threads: Threads = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON on standard output: one object per line.")
    ] = False,
    **reading: Any,
) -> None:
    """Predict with a fine-tuned model.

    A text, two texts, a table row, or a file:
    glassbert predict runs/reviews "A film to remember."
    glassbert predict runs/stsb "A man sings." --pair "Someone is singing."
    glassbert predict runs/titanic -c Sex=female -c Pclass=1 -c Age=38
    glassbert predict runs/reviews --file new.csv --output answers.csv
    glassbert predict runs/reviews --file "new/*.parquet" --output answers --on ray --workers 8

    Probabilities are calibrated if that lowered the log loss of held-out examples; the report of the run says so.
    """
    if column is None and file is None and text is None:
        model, only_text = model_and_text(model, text)
        text = only_text or None
    given, options = _input(text, pair, column, file, text_column, FileSettings.from_dict(reading).reading())
    if is_folder_job(file, on, workers, address):
        if score:
            raise InputError("--score is for one file; remove it, or score a file of the output")
        run_folder_job(
            "predict", model, str(file), output, on=on, address=address, workers=workers, rows=rows_per_part,
            overwrite=overwrite, engine=engine, threads=threads, batch_tokens=batch_tokens, as_json=as_json,
            options=options,
        )  # fmt: skip
        return
    path = None if output is None else Path(output)
    if path is not None and path.suffix.lower() not in WRITERS:
        raise InputError(f"{path}: unknown file extension; use one of {', '.join(WRITERS)}")
    if path is not None and file is not None:
        check_not_input(file, path)
    kernels = kernels_for(text, pair, *(column or ())) if file is None else "fast"
    predictor = Predictor.load(model, engine=engine, threads=threads, kernels=kernels)
    screen = Console(stderr=True)
    _check_texts(given, pair, predictor.card)
    with progress_bar(screen) as progress:
        predict = predictor.judge if score else predictor.predict
        found = predict(given, batch_tokens=batch_tokens, progress=progress, **options)
    if found.notes:
        screen.print(Text(f"Note: {'; '.join(found.notes)}.", style="yellow"), soft_wrap=True)
    if path is not None:
        found.save(path)
        written = f"{len(found):,} predictions written to {output} ({found.per_second:,.0f} examples/s)"
        screen.print(Text(written), soft_wrap=True)
    if as_json:
        for row in found.rows():
            print_json(row, indent=None)
    elif file is None:
        show_one(Console(highlight=False), found)
    elif path is None:
        show_many(Console(highlight=False), found)
    if score and not as_json:
        Console(highlight=False).print(Text(str(found.scores)))


def _input(
    text: str | None,
    pair: str | None,
    cells: list[str] | None,
    file: str | None,
    text_column: str | None,
    reading: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """The input for `Predictor.predict` and its reader options."""
    inputs = [name for name, value in (("a text", text), ("--column", cells), ("--file", file)) if value is not None]
    if len(inputs) != 1:
        got = " and ".join(inputs) if inputs else "none of them"
        raise InputError(f"give exactly one input: a text, a row with --column, or a --file; got {got}")
    if pair is not None and text is None:
        raise InputError("--pair needs a text; in a file, the second text is a column")
    if reading and file in (None, "-") and set(reading) - {"encoding"}:
        raise InputError(f"--{next(iter(reading)).replace('_', '-')} is for a --file; remove it")
    if file == "-":
        return lines_of_stdin(reading.get("encoding")), {}
    if file is not None:
        return Path(file), {**reading, **({} if text_column is None else {"text": text_column})}
    if cells is not None:
        bad = next((cell for cell in cells if "=" not in cell), None)
        if bad is not None:
            raise InputError(f"--column takes NAME=VALUE, as in --column age=38; got {bad!r}")
        return dict(cell.split("=", 1) for cell in cells), {}
    if text is not None and not text.strip():
        raise InputError("the text is empty")
    return text if pair is None else (text, pair), {}


def _check_texts(given: Any, pair: str | None, card: TaskCard) -> None:
    """Raise if texts of the command line or of standard input are not what the model reads."""
    if isinstance(given, (Path, dict)):
        return
    if card.reads_numbers and card.template is not None:
        names = ", ".join(card.template.columns)
        raise InputError(f"this model reads rows of a table: give --column NAME=VALUE, or a --file; it reads {names}")
    if pair is not None and card.pair is None:
        raise InputError("this model reads one text; leave out --pair")
    if pair is None and card.pair is not None and card.head != "embedding":
        ways = f"a --file with the columns {card.text!r} and {card.pair!r}"
        ways = ways if isinstance(given, list) else f"--pair, or {ways}"
        raise InputError(f"this model reads two texts; give {ways}")


def lines_of_stdin(encoding: str | None = None) -> list[str]:
    """The lines of standard input that are not blank, in UTF-8 or another encoding."""
    content, _ = decode(sys.stdin.buffer.read(), "standard input", encoding)
    lines = [line for line in split_lines(content) if line.strip()] if content else []
    if not lines:
        raise InputError("stdin is empty; give one text per line")
    return lines


@contextmanager
def progress_bar(screen: Console) -> Iterator[Any]:
    bar = Progress(
        TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(), console=screen, transient=True, disable=not screen.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task("", total=None, speed="")

        def progress(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, speed="" if speed is None else f"{speed:,.0f}/s")

        yield progress


def show_one(console: Console, found: Predictions) -> None:
    """Print one prediction with the probabilities of the labels."""
    show = {"token": _show_words, "multilabel": _show_labels, "embedding": _show_vector, "span": _show_spans}
    show.get(found.card.head, _show_label)(console, found)


def _show_label(console: Console, found: Predictions) -> None:
    probs = found.by_label()
    if probs is None:
        console.print(Text(f"{found.answers()[0]:.4g}", style="bold"))
        return
    ranked = sorted(probs[0].items(), key=lambda item: -item[1])
    if found.card.head == "ordinal":
        ranked = list(probs[0].items())  # in the order of the ranks
    answer = found.answers()[0]
    _bars(console, ranked[:SHOWN_LABELS], {answer})
    if found.card.head == "ordinal" and probs[0][answer] < max(probs[0].values()):
        console.print(Text(_why_this_rank(found), style="dim"))


def _why_this_rank(found: Predictions) -> str:
    """Why the answer is not the most probable rank."""
    answer, names, cuts = found.answers()[0], found.card.label_names, found.card.cuts
    if cuts is None:
        return f"{answer} is the median: half of the probability is at or below it."
    mean = float(mean_ranks(np.asarray(found.probabilities()))[0])
    rank = names.index(answer)
    ends = [f"from {cuts[rank - 1]:.2f}"] if rank else []
    ends += [f"below {cuts[rank]:.2f}"] if rank < len(cuts) else []
    return f"The mean rank is {mean:.2f} (0 is {names[0]}, {len(cuts)} is {names[-1]}); {answer}: {' and '.join(ends)}."


def _show_labels(console: Console, found: Predictions) -> None:
    probs = (found.by_label() or [{}])[0]
    ranked = sorted(probs.items(), key=lambda item: -item[1])[:SHOWN_LABELS]
    thresholds = dict(zip(found.card.label_names, found.card.thresholds or [0.5] * len(probs), strict=False))
    _bars(console, ranked, set(found.answers()[0]), thresholds)
    if not found.answers()[0]:
        console.print(Text("No label reaches its threshold.", style="dim"))


def _bars(
    console: Console, ranked: list[tuple[str, float]], chosen: set[str], thresholds: dict[str, float] | None = None
) -> None:
    table = Table.grid(padding=(0, 2))
    for label, prob in ranked:
        style = "bold green" if label in chosen else ""
        threshold_text = [Text(f"from {thresholds[label]:.2f}", style="dim")] if thresholds else []
        table.add_row(
            f"{prob:6.1%}", Text(label, style=style), *threshold_text, Text("█" * round(30 * prob), style="green")
        )
    console.print(table)


def _show_words(console: Console, found: Predictions) -> None:
    words, tags = (found.data.words or [[]])[0], found.answers()[0]
    if found.entities is not None:
        line, position = Text(), 0
        for entity in found.entities[0]:
            line.append(" ".join([*words[position : entity.start], ""]))
            line.append(f"[{entity.text}]", style="bold green").append(f" {entity.type} ", style="dim")
            position = entity.end
        console.print(line.append(" ".join(words[position:])), soft_wrap=True)
        if not found.entities[0]:
            console.print(Text("No entity was found.", style="dim"))
        return
    line = Text()
    for word, tag in zip(words, tags, strict=True):
        line.append(word, style="bold").append(f"/{tag} ", style="green")
    console.print(line, soft_wrap=True)


def _show_spans(console: Console, found: Predictions) -> None:
    context = (found.data.pairs or [""])[0]
    best = found.outputs[0][0]
    if not best.text:
        console.print(Text("The context contains no answer.", style="dim"))
        return
    console.print(Text(best.text, style="bold green"))
    around = Text(context[max(0, best.start - 80) : best.start], style="dim")
    console.print(around.append(best.text, style="bold").append(context[best.end : best.end + 80], style="dim"))


def _show_vector(console: Console, found: Predictions) -> None:
    if found.data.pairs is not None:
        console.print(Text.assemble("cosine ", (f"{found.answers()[0]:.4f}", "bold")))
        return
    vector = found.vectors[0]
    start = ", ".join(f"{value:.4f}" for value in vector[:6])
    console.print(f"[{start}, ...] {len(vector)} numbers, unit length; --output vectors.npy or --json gives them all",
                  markup=False)  # fmt: skip


def show_many(console: Console, found: Predictions) -> None:
    """Print the first predictions and the count of each label."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column("prediction", no_wrap=True)
    if found.confidence is not None:
        table.add_column("probability", justify="right", no_wrap=True)
    table.add_column("text", ratio=1, no_wrap=True, overflow="ellipsis")
    for i in range(min(SHOWN_ROWS, len(found))):
        prob = [f"{found.confidence[i]:.1%}"] if found.confidence is not None else []
        table.add_row(Text(_brief(found, i)), *prob, Text(found.data.texts[i][:SHOWN_CHARACTERS].strip(), style="dim"))
    console.print(table)
    if len(found) > SHOWN_ROWS:
        console.print(Text(f"... and {len(found) - SHOWN_ROWS:,} more; --output FILE writes all of them", style="dim"))
    if found.card.labels and found.card.head != "token":
        answers = [one for shown in found.answers() for one in (shown if isinstance(shown, list) else [shown])]
        counts = ", ".join(f"{name} {count:,}" for name, count in Counter(answers).most_common(SHOWN_LABELS))
        console.print(Text(f"\n{counts}"))
    console.print(Text(f"{len(found):,} examples, {found.per_second:,.0f} per second", style="dim"))


def _brief(found: Predictions, i: int) -> str:
    if found.entities is not None:
        shown = ", ".join(f"{entity.text} ({entity.type})" for entity in found.entities[i]) or "–"
    elif found.card.head == "embedding" and found.data.pairs is None:
        shown = f"[{', '.join(f'{value:.3f}' for value in found.vectors[i][:3])}, ...]"
    else:
        answer = found.answers()[i]
        shown = (
            " ".join(answer) if isinstance(answer, list) else f"{answer:.4g}" if isinstance(answer, float) else answer
        )
    return shown if len(shown) <= 40 else shown[:39] + "…"


run = with_settings(_run, partial(options_of, FileSettings))
