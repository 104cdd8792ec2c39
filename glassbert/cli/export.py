"""`glassbert export`: write the model of a run into a folder to publish, or as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from glassbert.cli.options import AsJson, chosen, counted
from glassbert.cli.output import print_json
from glassbert.errors import InputError
from glassbert.training.run_folder import FINETUNING, kind_of_run

FORMATS = ("huggingface", "onnx")


def run(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A finished run; for ONNX also a model folder, a hub id or a packaged model."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="The new folder. ONNX without it: onnx/ in the model's own."
        ),
    ] = None,
    format: Annotated[str, chosen("The layout of the files.", FORMATS)] = FORMATS[0],
    dtype: Annotated[
        str | None, chosen("The precision of the weights. Without it: float16, ONNX float32.", ("float16", "float32"))
    ] = None,
    with_gradients: Annotated[
        bool, typer.Option("--with-gradients", help="ONNX: also loss and gradients, and steps of SGD and AdamW.")
    ] = False,
    head: Annotated[str | None, typer.Option(help="ONNX: another head than the saved one; core leaves it out.")] = None,
    opset: Annotated[
        int | None, counted("ONNX: the version of its operators, from 20 on. Without it: the newest.")
    ] = None,
    name: Annotated[
        str, typer.Option(help="The name in the model card. Default: that of the folder; fine-tuned: of the task.")
    ] = "",
    notes: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="Markdown to add to the model card, such as licences.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the model of a run with tokenizer, model card, recipe, receipt and checksums, or as ONNX.

    glassbert export runs/mine -o mine
    glassbert export runs/reviews -o reviews --dtype float32
    glassbert export runs/reviews --format onnx -o reviews-onnx

    `glassbert.load("mine")` opens the folder, and so does transformers where it has a class for the model.
    `glassbert predict reviews` answers with a fine-tuned one.
    """
    if format not in FORMATS:
        raise InputError(f"there is no format {format!r}; choose one of {', '.join(FORMATS)}")
    if format == "onnx":
        if name or notes is not None:
            raise InputError("--name and --notes belong to the model card, which ONNX has none of; leave them out")
        options: dict[str, Any] = {} if opset is None else {"opset": opset}
        _export_onnx(
            run, output, as_json, dtype=dtype or "float32", head=head, with_gradients=with_gradients, **options
        )
        return
    for option, given in (("--with-gradients", with_gradients), ("--head", head), ("--opset", opset)):
        if given:
            raise InputError(f"{option} belongs to --format onnx; add that, or leave {option} out")
    if output is None:
        raise InputError("name the new folder: -o DIR")
    if kind_of_run(run) == FINETUNING:
        from glassbert.finetuning.release import release
    else:
        from glassbert.training.release import release

    try:
        added = notes.read_text(encoding="utf-8") if notes is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{notes} cannot be read: {error}") from error
    folder = release(run, output, dtype=dtype or "float16", name=name, notes=added)
    _show({"folder": folder}, sorted(path for path in folder.rglob("*") if path.is_file()), as_json)


def _export_onnx(run: str, output: Path | None, as_json: bool, *, dtype: str, **options: Any) -> None:
    from glassbert.export import compare_with_model, export_onnx

    written = export_onnx(run, output, dtype=dtype, **options)
    graph = next(iter(written.graphs.values()))
    inputs, outputs, difference = list(graph.inputs), list(graph.outputs), compare_with_model(written, dtype)
    _show({"inputs": inputs, "outputs": outputs, "difference": difference}, written.files, as_json)
    if as_json:
        return
    console = Console(highlight=False)
    console.print(f"inputs   {', '.join(inputs)}")
    console.print(f"outputs  {', '.join(outputs)}")
    if difference is not None:
        console.print(f"ONNX Runtime and NumPy differ by at most {difference:.1e} in the outputs of a small batch")


def _show(facts: dict[str, Any], files: list[Path], as_json: bool) -> None:
    sizes = {str(path): path.stat().st_size for path in files}
    if as_json:
        print_json({**facts, "files": sizes})
        return
    console = Console(highlight=False)
    for name, size in sizes.items():
        console.print(Text(f"{size:>12,}  {name}"), soft_wrap=True)
