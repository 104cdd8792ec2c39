"""`glassbert quickstart`: train a small BERT on the built-in text in five minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from glassbert.cli.options import AsJson, Engine, counted

MINUTES = 4.5
RECIPE = "small-best"
SENTENCES = (
    "If the file does not [MASK], an error is raised.",
    "This function returns a [MASK] of strings.",
    "The default [MASK] is None.",
    "Raise an exception if the [MASK] is not valid.",
)


def run(
    minutes: Annotated[float | None, typer.Option(help="How long to train.", show_default=str(MINUTES))] = None,
    steps: Annotated[int | None, counted("Train this number of steps instead.")] = None,
    engine: Engine = "auto",
    sentence: Annotated[str, typer.Option(help="A sentence whose [MASK] is predicted during training.")] = SENTENCES[1],
    run: Annotated[
        Path | None, typer.Option("--run", help="The folder of the run. Without it: runs/quickstart-DATE.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a small BERT from scratch and fill masks with it: text, tokenizer, model, report. Nothing is downloaded.

    The text is the documentation in your Python installation. A tokenizer with 8,192 entries is trained on it, then a
    BERT with hand-written forward and backward passes, which is evaluated on held-out documents. The recipe small-best
    chooses its shape for the minutes and the machine: in five minutes on a CPU a narrow model learns more than
    Mini-BERT, which `glassbert pretrain --preset mini` trains.
    """
    from rich.console import Console
    from rich.text import Text

    from glassbert.cli.pretrain import show_recipe, train_and_show
    from glassbert.training.fill_mask import fill_mask
    from glassbert.training.run_folder import new_run_folder
    from glassbert.training.trainer import Trainer

    console = Console(highlight=False, stderr=as_json)
    console.print(Text("GlassBERT: Python's documentation → tokenizer → a small BERT → filled masks", style="bold"))
    budget: dict[str, Any] = {"steps": steps} if steps else {"minutes": minutes or MINUTES}
    trainer = Trainer(
        None,
        run or new_run_folder("runs", "quickstart").path,
        recipe=RECIPE,
        engine=engine,
        sentence=sentence,
        **budget,
    )
    show_recipe(trainer.settings)
    splits = trainer.data.description["splits"]
    console.print(
        f"{splits['train']['tokens']:,} tokens of {splits['train']['documents']:,} documents to train on, "
        f"{splits['validation']['tokens']:,} held out; {trainer.model.get_parameter_count():,} parameters."
    )
    train_and_show(trainer, as_json)
    if as_json:
        return
    console.print(Text("\nPredictions of the trained model:", style="bold"))
    for example in SENTENCES:
        before, after = example.split("[MASK]")
        best, *others = (answer.word for answer in fill_mask(trainer.model, trainer.data.tokenizer, example)[0])
        line = Text.assemble("  ", before, (best, "bold green"), after, (f"   (or {', '.join(others[:3])})", "dim"))
        console.print(line, soft_wrap=True)
