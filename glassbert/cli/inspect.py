"""`glassbert inspect`: explain one prediction, or draw pictures of a whole model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from glassbert.checkpoints.packaged import DEFAULT_MODEL
from glassbert.cli.model_argument import MODEL_HELP, model_and_text, named_model
from glassbert.cli.options import AsJson, Engine, counted, split_names
from glassbert.cli.output import print_json
from glassbert.cli.with_option import Extensions
from glassbert.errors import InputError
from glassbert.insight import (
    LoadedModel,
    Prediction,
    Scene,
    draw_pictures,
    explain,
    get_insights,
    open_model,
    prediction_page,
    read_texts,
    untrained,
)
from glassbert.insight.pictures import DrawnInsight
from glassbert.training.settings import MASK_SENTENCE

ONE, WHOLE = "One prediction", "The whole model"


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = DEFAULT_MODEL,
    text: Annotated[str, typer.Argument(help="A text with [MASK]; for a classifier any text.")] = "",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML page about the prediction.")
    ] = Path("inspect.html"),
    answer: Annotated[
        str | None,
        typer.Option(help="The word or label to explain; default: the most probable.", rich_help_panel=ONE),
    ] = None,
    mask: Annotated[int, counted("Which [MASK] to explain if there are several, from 1.", rich_help_panel=ONE)] = 1,
    top: Annotated[int, counted("How many answers to show.", rich_help_panel=ONE)] = 8,
    pictures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write pictures of the whole model into this folder.", rich_help_panel=WHOLE),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The texts to read: a text file, a CoNLL-U file (adds syntax), or a corpus (its held-out text).",
            rich_help_panel=WHOLE,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="A model to compare with, or `untrained`: the same model with its initial weights.",
            rich_help_panel=WHOLE,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only these pictures; repeat it or use commas.", rich_help_panel=WHOLE),
    ] = None,
    limit: Annotated[int, counted("The number of texts to read.", rich_help_panel=WHOLE)] = 256,
    extensions: Extensions = None,
    engine: Engine = "auto",
    as_json: AsJson = False,
) -> None:
    """Explain one prediction, or draw pictures of a whole model.

    glassbert inspect RUN "Paris is the [MASK] of France."
    shows the answers, the attributions of the words, the answers after every layer and the most important heads, in the
    terminal and as one HTML page.

    glassbert inspect RUN --pictures DIR --against untrained --dev dev.conllu
    draws attention, heads, syntax, pruning, saliency, geometry, gradient flow and evolution, and writes their arrays.
    """
    model, text = model_and_text(model, text)
    if pictures is None and not text:
        raise InputError(
            f'nothing to inspect: give a text, as in glassbert inspect {model} "{MASK_SENTENCE}", or --pictures DIR '
            "for the whole model"
        )
    loaded = open_model(named_model(model), engine)
    if pictures is not None:
        drawn = make_pictures(loaded, pictures, text, dev, against, split_names(only), limit, engine)
        if as_json:
            listed = [{"name": d.insight.name, "title": d.insight.title, "left_out": d.skipped_because} for d in drawn]
            print_json({"folder": str(pictures), "pictures": listed})
        else:
            show_pictures(Console(highlight=False), drawn)
            typer.echo(f"All pictures on one page: {pictures / 'index.html'}")
        return
    for name, given in (("--dev", dev), ("--against", against), ("--only", only)):
        if given:
            raise InputError(f"{name} needs --pictures DIR; it does not apply to a single prediction")
    heads = loaded.model.config.num_hidden_layers * loaded.model.config.num_attention_heads
    with Bar("explaining", heads) as bar:
        found = explain(loaded, text, answer=answer, mask=mask, top=top, on_progress=bar.tick)
    prediction_page(found).write(output)
    if as_json:
        print_json(found.as_dict())
    else:
        show(Console(highlight=False), found)
        typer.echo(f"Page written: {output}")


def show(console: Console, found: Prediction) -> None:
    """Print answers, coloured tokens and the most important heads."""
    table = Table.grid(padding=(0, 2))
    for one in found.answers:
        bar = "" if one.chance is None else "█" * round(30 * one.chance)
        table.add_row(
            Text("" if one.chance is None else f"{one.chance:6.1%}"), Text(one.name, "bold"), Text(bar, "blue")
        )
    console.print(table)
    console.print()
    console.print(coloured_tokens(found), soft_wrap=True)
    whole = found.integrated
    console.print(
        Text(
            f"Blue raises the score of “{found.answer.name}”, orange lowers it: {whole.difference:+.2f} nats in total.",
            "dim",
        ),
        soft_wrap=True,
    )
    console.print()
    for head in found.heads:
        links = ", ".join(f"{found.tokens[x.query]} → {found.tokens[x.key]} {x.weight:.2f}" for x in head.links)
        name = (f"head {head.layer}.{head.head}", "bold")
        console.print(Text.assemble(name, f"  {head.change:+6.2f} without it  ", (links, "dim")), soft_wrap=True)
    if found.layers:
        by_layer = "  ".join(f"{layer.name.replace('layers.', '')}: {layer.answers[0].name}" for layer in found.layers)
        console.print(Text(f"layer by layer  {by_layer}", "dim"), soft_wrap=True)


def coloured_tokens(found: Prediction) -> Text:
    """The tokens, coloured by their attributions."""
    values = found.integrated.attributions
    largest = float(abs(values).max()) or 1.0
    text = Text()
    for position, (token, value) in enumerate(zip(found.tokens, values, strict=True)):
        strength = abs(value) / largest
        style = "reverse " * (position == found.position)
        if strength >= 0.05:
            style += ("blue" if value > 0 else "dark_orange3") + (" bold" if strength >= 0.4 else "")
        text.append("" if token.startswith("##") or not position else " ")
        text.append(token.removeprefix("##"), style.strip() or None)
    return text


UNTRAINED = "untrained"


def make_pictures(
    loaded: LoadedModel, folder: Path, text: str, dev: Path | None, against: str | None, only: Sequence[str],
    limit: int, engine: str,
) -> list[DrawnInsight]:  # fmt: skip
    """Draw all pictures, or those named in `only`, into a folder."""
    from glassbert.tasks.conll import read_conllu

    insights = get_insights(only)
    models = [loaded, *_other(loaded, against, engine)]
    texts = [] if dev is None else read_texts(dev, limit)
    annotated = read_conllu(dev) if dev is not None and ".conllu" in dev.suffixes else None
    with Bar("", len(insights)) as bar:
        scene = Scene(models, texts, annotated, text or _sentence(loaded), bar.pulse)
        return draw_pictures(scene, folder, insights, on_start=bar.begin)


def _other(loaded: LoadedModel, against: str | None, engine: str) -> list[LoadedModel]:
    if against is None:
        return []
    other = untrained(loaded) if against == UNTRAINED else open_model(against, engine)
    return [dataclasses.replace(other, name=f"{other.name} (2)") if other.name == loaded.name else other]


def _sentence(loaded: LoadedModel) -> str:
    """The `sentence` setting of the run, or the default sentence."""
    settings = {} if loaded.run is None else loaded.run.read_settings()["settings"]
    return settings.get("sentence") or MASK_SENTENCE


def show_pictures(console: Console, drawn: Sequence[DrawnInsight]) -> None:
    for one in drawn:
        state = Text("drawn", "green") if one.view else Text(f"left out: {one.skipped_because}", "yellow")
        console.print(Text.assemble((f"{one.insight.name:11}", "bold"), state), soft_wrap=True)


class Bar:
    """A progress bar on stderr, if that is a terminal: `parts` in total, and a pass count within a part."""

    def __init__(self, name: str, parts: int):
        screen = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:11}"), BarColumn(), TextColumn("{task.fields[passes]}"), TimeElapsedColumn(),
            console=screen, transient=True, disable=not screen.is_terminal,
        )  # fmt: skip
        self._task = self._progress.add_task(name, total=parts, passes="")
        self._begun = self._passes = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, name: str) -> None:
        """Start the next part."""
        self._progress.update(self._task, description=name, completed=self._begun, passes="")
        self._begun, self._passes = self._begun + 1, 0

    def pulse(self) -> None:
        """Count one pass within the part."""
        self._passes += 1
        self._progress.update(self._task, passes=f"{self._passes} passes")

    def tick(self) -> None:
        """Count one finished part."""
        self._progress.advance(self._task)
