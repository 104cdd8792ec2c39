"""`glassbert generate`: continue a prompt with a causal model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from glassbert.cli.options import AsJson, Engine, counted
from glassbert.cli.output import print_json
from glassbert.cli.with_option import Extensions
from glassbert.generation import generate, stream
from glassbert.generation.continuation import require_causal
from glassbert.text.loading import load_with_tokenizer


def run(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A run, a checkpoint, or a folder with a model.")],
    prompt: Annotated[str, typer.Argument(help="The beginning of a text.")],
    tokens: Annotated[int | None, counted("The number of tokens; by default as many as fit, up to 128.")] = None,
    temperature: Annotated[float, typer.Option(help="Below 1: the probable tokens become more probable.")] = 1.0,
    top_k: Annotated[int | None, counted("Draw only from the k most probable tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw only from the most probable tokens with this probability together.")
    ] = None,
    seed: Annotated[int, counted("The seed of the random numbers.", least=0)] = 0,
    engine: Engine = "auto",
    extensions: Extensions = None,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt; the text appears token by token.

    glassbert generate runs/gpt2 "The function returns" --temperature 0.8 --top-p 0.9
    """
    loaded, tokenizer = load_with_tokenizer(model, engine=engine)
    require_causal(loaded)
    options: dict[str, Any] = {
        "tokens": tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed,
    }  # fmt: skip
    if as_json:
        print_json(generate(loaded, tokenizer, prompt, **options)._asdict())
        return
    begun = False
    for piece in stream(loaded, tokenizer, prompt, **options):
        typer.echo(piece if begun else prompt + piece, nl=False)
        begun = True
    typer.echo("" if begun else prompt)
