"""`glassbert quantize`: a trained model in 8 or 4 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from glassbert.cli.model_argument import MODEL_HELP, named_model
from glassbert.cli.options import AsJson, Threads, chosen, counted
from glassbert.cli.output import print_json
from glassbert.cli.predict import progress_bar
from glassbert.cli.with_option import Extensions
from glassbert.errors import InputError

MOST_ROWS = 12


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The new folder.")],
    bits: Annotated[int, typer.Option(metavar="8|4", help="Bits of a weight.")] = 8,
    method: Annotated[
        str,
        chosen(
            "How activations are rounded where weights have 8 bits: by the range of each token, or by --data.",
            ("dynamic", "static"),
        ),
    ] = "dynamic",
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Texts for calibration and measurement: lines, or a table with a column text; for a fine-tuned model "
            "a file like that of its training. Default: the held-out examples of the run, or Python's documentation.",
        ),
    ] = None,
    max_loss: Annotated[
        float | None,
        typer.Option(
            metavar="LOSS",
            help="The largest loss of the score of the model's own task, such as 0.005. Matrices that cost most get "
            "more bits until it is met.",
        ),
    ] = None,
    group: Annotated[
        int | None,
        counted("Weights of a row with one scale; 0: the whole row. Default: 32 in 4 bits, 0 in 8.", least=0),
    ] = None,
    symmetric: Annotated[
        bool | None,
        typer.Option(
            "--symmetric/--asymmetric", help="Codes symmetric around 0. Default: in 8 bits.", show_default=False
        ),
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity/--no-sensitivity", help="Measure what each matrix costs.")
    ] = True,
    extensions: Extensions = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Write a model with weights in 8 or 4 bits, and report what it lost on its own task.

    glassbert quantize runs/reviews --bits 8 -o reviews-int8
    glassbert quantize runs/mine --bits 4 --data texts.txt --max-loss 0.01 -o mine-int4

    `glassbert.load("reviews-int8")`, predict, embed, fill-mask and evaluate open the folder; `finetune --low-rank 8`
    trains over it. `glassbert export reviews-int8 --format onnx` writes it for ONNX Runtime's integer kernels.
    """
    from glassbert.quantization import QuantizationSettings, quantize

    settings = QuantizationSettings(bits, group, symmetric, method)
    if max_loss is not None and not sensitivity:
        raise InputError("--max-loss is decided by what each matrix costs; leave out --no-sensitivity")
    screen = Console(stderr=True)
    with progress_bar(screen) as progress:
        found = quantize(
            named_model(model), output, settings, data=data, max_loss=max_loss, sensitivity=sensitivity,
            threads=threads, progress=lambda done, total, what: progress(done, total),
        )  # fmt: skip
    if as_json:
        print_json(found.as_json())
        return
    from glassbert.quantization.report import cost_headers, cost_rows, megabytes, score_rows

    console = Console(highlight=False)
    console.print(
        f"{megabytes(found.bytes_before)} -> {megabytes(found.bytes_after)}, {found.smaller:.2f}x smaller; "
        f"{len(found.model.quantized)} matrices"
    )
    console.print(f"Measured on {found.task}, with intervals of 95 %", markup=False)
    console.print(_table(["score", "float", "quantised", "loss"], score_rows(found.compared)))
    if found.costs:
        rows = cost_rows(found)
        console.print(_table(cost_headers(found), rows[:MOST_ROWS]))
        if len(rows) > MOST_ROWS:
            console.print(f"and {len(rows) - MOST_ROWS} more, which cost less: see quantization.html")
    for note in found.notes:
        console.print(f"Note: {note}.", style="yellow", markup=False)
    console.print(f"Written: {output}", soft_wrap=True, markup=False)


def _table(headers: list[str], rows: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, header in enumerate(headers):
        table.add_column(header, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*map(str, row))
    return table
