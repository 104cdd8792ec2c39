"""`glassbert inspect`: look into one prediction, or draw the inside of a whole model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from glassbert.errors import InputError
from glassbert.insight import (
    Opened,
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
from glassbert.insight.pictures import Drawn
from glassbert.training.settings import MASK_SENTENCE

ONE, WHOLE = "One prediction", "The whole model"


def run(
    model: Annotated[str, typer.Argument(metavar="RUN", help="A run, or a folder with a model and its tokenizer.")],
    text: Annotated[str, typer.Argument(help="A text with a [MASK]; for a classifier any text.")] = "",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the page about the prediction is written.")
    ] = Path("inspect.html"),
    answer: Annotated[
        str | None, typer.Option(help="Explain this word or label instead of the likeliest one.", rich_help_panel=ONE)
    ] = None,
    mask: Annotated[
        int, typer.Option(min=1, help="Which [MASK] to explain, where there are several.", rich_help_panel=ONE)
    ] = 1,
    top: Annotated[int, typer.Option(min=1, help="How many answers to show.", rich_help_panel=ONE)] = 8,
    pictures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Draw the inside of the whole model into this folder.", rich_help_panel=WHOLE),
    ] = None,
    on: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="What it reads meanwhile: a text file, a CoNLL-U file (adds syntax), or a corpus (its held-out text).",
            rich_help_panel=WHOLE,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="Another model beside it, or `untrained`: itself before the first step.",
            rich_help_panel=WHOLE,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this picture; may be repeated.", rich_help_panel=WHOLE),
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="How many texts to read at most.", rich_help_panel=WHOLE)] = 256,
    engine: Annotated[str, typer.Option(help="auto, numpy or mlx.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Why this answer? What is inside?

    glassbert inspect RUN "Paris is the [MASK] of France."
    shows the answers, the words that brought them about, the layers in which they formed and the heads that mattered,
    on the screen and as one HTML page.

    glassbert inspect RUN --pictures DIR --against untrained --on dev.conllu
    draws attention, heads, syntax, pruning, saliency, geometry, gradient flow and growth, with their plain arrays.
    """
    if pictures is None and not text:
        raise InputError(
            f'say what to look at: a text, as in glassbert inspect {model} "{MASK_SENTENCE}", or --pictures DIR for '
            "the whole model"
        )
    opened = open_model(model, engine)
    if pictures is not None:
        drawn = make_pictures(opened, pictures, text, on, against, only or [], texts, engine)
        if as_json:
            listed = [{"name": d.insight.name, "title": d.insight.title, "left_out": d.skipped_because} for d in drawn]
            typer.echo(json.dumps({"folder": str(pictures), "pictures": listed}))
        else:
            show_pictures(Console(highlight=False), drawn)
            typer.echo(f"All of them on one page: {pictures / 'index.html'}")
        return
    for name, given in (("--on", on), ("--against", against), ("--only", only)):
        if given:
            raise InputError(f"{name} belongs to --pictures DIR, which draws the whole model")
    heads = opened.model.config.num_hidden_layers * opened.model.config.num_attention_heads
    with Bar("looking", heads) as bar:
        found = explain(opened, text, answer=answer, mask=mask, top=top, told=bar.tick)
    prediction_page(found).write(output)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), ensure_ascii=False))
    else:
        show(Console(highlight=False), found)
        typer.echo(f"The page: {output}")


def show(console: Console, found: Prediction) -> None:
    """Answers, shaded tokens and the heads that mattered, on the screen."""
    table = Table.grid(padding=(0, 2))
    for one in found.answers:
        bar = "" if one.chance is None else "█" * round(30 * one.chance)
        table.add_row(
            Text("" if one.chance is None else f"{one.chance:6.1%}"), Text(one.name, "bold"), Text(bar, "blue")
        )
    console.print(table)
    console.print()
    console.print(shaded(found), soft_wrap=True)
    whole = found.integrated
    console.print(
        Text(f"Blue speaks for “{found.answer.name}”, orange against it: {whole.difference:+.2f} nats in all.", "dim"),
        soft_wrap=True,
    )
    console.print()
    for head in found.heads:
        links = ", ".join(f"{found.tokens[x.query]} → {found.tokens[x.key]} {x.weight:.2f}" for x in head.links)
        name = (f"head {head.layer}.{head.head}", "bold")
        console.print(Text.assemble(name, f"  {head.change:+6.2f} without it  ", (links, "dim")), soft_wrap=True)
    if found.layers:
        said = "  ".join(f"{layer.name.replace('layers.', '')}: {layer.answers[0].name}" for layer in found.layers)
        console.print(Text(f"layer by layer  {said}", "dim"), soft_wrap=True)


def shaded(found: Prediction) -> Text:
    """The tokens, in the colour of what they add."""
    values = found.integrated.attributions
    largest = float(abs(values).max()) or 1.0
    text = Text()
    for place, (token, value) in enumerate(zip(found.tokens, values, strict=True)):
        strength = abs(value) / largest
        style = "reverse " * (place == found.place)
        if strength >= 0.05:
            style += ("blue" if value > 0 else "dark_orange3") + (" bold" if strength >= 0.4 else "")
        text.append("" if token.startswith("##") or not place else " ")
        text.append(token.removeprefix("##"), style.strip() or None)
    return text


UNTRAINED = "untrained"


def make_pictures(
    opened: Opened, folder: Path, text: str, on: Path | None, against: str | None, only: Sequence[str], most: int,
    engine: str,
) -> list[Drawn]:  # fmt: skip
    """Draw everything, or only what was named, into a folder."""
    from glassbert.tasks.conll import read_conllu

    insights = get_insights(only)
    models = [opened, *_other(opened, against, engine)]
    texts = [] if on is None else read_texts(on, most)
    annotated = read_conllu(on) if on is not None and ".conllu" in on.suffixes else None
    with Bar("", len(insights)) as bar:
        scene = Scene(models, texts, annotated, text or _sentence(opened), bar.pulse)
        return draw_pictures(scene, folder, insights, began=bar.begin)


def _other(opened: Opened, against: str | None, engine: str) -> list[Opened]:
    if against is None:
        return []
    other = untrained(opened) if against == UNTRAINED else open_model(against, engine)
    return [dataclasses.replace(other, name=f"{other.name} (2)") if other.name == opened.name else other]


def _sentence(opened: Opened) -> str:
    """The sentence that a run was asked again and again, or the usual one."""
    settings = {} if opened.run is None else opened.run.read_settings()["settings"]
    return settings.get("sentence") or MASK_SENTENCE


def show_pictures(console: Console, drawn: Sequence[Drawn]) -> None:
    for one in drawn:
        state = Text("drawn", "green") if one.view else Text(f"left out: {one.skipped_because}", "yellow")
        console.print(Text.assemble((f"{one.insight.name:11}", "bold"), state), soft_wrap=True)


class Bar:
    """A progress bar on the error stream, if that is a screen: so many parts, and passes within a part."""

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
        """The next part, by its name."""
        self._progress.update(self._task, description=name, completed=self._begun, passes="")
        self._begun, self._passes = self._begun + 1, 0

    def pulse(self) -> None:
        """One more pass within the part."""
        self._passes += 1
        self._progress.update(self._task, passes=f"{self._passes} passes")

    def tick(self) -> None:
        """One more part is done."""
        self._progress.advance(self._task)
