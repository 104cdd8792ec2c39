"""`glassbert quickstart`: a Mini-BERT learns thirty-two sentences by heart while you watch."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Annotated, Any

import typer

from glassbert.errors import GlassBertError

BARS = "▁▂▃▄▅▆▇█"
TOP = 5


def run(
    steps: Annotated[int, typer.Option(help="Training steps.", min=1)] = 200,
    engine: Annotated[str, typer.Option(help="auto, numpy or mlx.")] = "auto",
    sentence: Annotated[
        str, typer.Option(help="A sentence with a [MASK], answered again and again while the model learns.")
    ] = "Paris is the [MASK] of France.",
) -> None:
    """Watch a Mini-BERT overfit one batch of real sentences, and let it fill a mask.

    Every forward and backward pass it makes is hand-written. Nothing is downloaded.
    """
    import numpy as np
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from glassbert import MINI_BERT_CONFIG, MiniBERT
    from glassbert.text.sentences import MASK, SENTENCES, SPECIAL_TOKENS, padded_batch, train_tokenizer
    from glassbert.training.overfit import mask_some, overfit_one_batch

    if sentence.count("[MASK]") != 1:
        raise GlassBertError("the sentence must contain [MASK] exactly once, as in 'Paris is the [MASK] of France.'")
    console = Console()
    tokenizer = train_tokenizer()
    length = MINI_BERT_CONFIG.max_position_embeddings
    ids, mask = padded_batch(tokenizer, SENTENCES, length)
    masked, labels = mask_some(ids, MASK, len(SPECIAL_TOKENS))
    row = int(np.flatnonzero(ids[0] == tokenizer.token_to_id("capital"))[0])
    labels[0], masked[0] = -100, ids[0]
    labels[0, row], masked[0, row] = ids[0, row], MASK
    question, question_mask = padded_batch(tokenizer, (sentence,), length)

    model = MiniBERT(engine=engine)
    console.print(
        f"[bold]Mini-BERT[/], {model.get_parameter_count():,} parameters, on {model.engine.name}; "
        f"{len(SENTENCES)} sentences, {int((labels != -100).sum())} words hidden."
    )

    def answers() -> list[tuple[str, float]]:
        logits = model.engine.to_numpy(model.predict(question, question_mask))[0][question[0] == MASK][0]
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        best = np.argsort(-chances)[:TOP]
        return [(tokenizer.id_to_token(int(i)) or f"#{i}", float(chances[i])) for i in best]

    losses: list[float] = []
    began = time.perf_counter()
    with Live(console=console, refresh_per_second=12) as live:
        for loss in overfit_one_batch(model, masked, labels, mask, steps):
            losses.append(loss)
            if len(losses) % 5 == 0 or len(losses) == steps:
                live.update(_picture(losses, steps, sentence, answers(), time.perf_counter() - began))
    word = answers()[0][0]
    if not console.is_terminal:
        console.print()  # in a file the last picture ends without a line break
    before, after = sentence.split("[MASK]")
    console.print(Text.assemble(before, (word, "bold green"), after))
    if losses[-1] > losses[0] / 10 and steps >= 100:
        raise GlassBertError(f"the loss went only from {losses[0]:.2f} to {losses[-1]:.2f}; run `glassbert check`")


def _picture(losses: list[float], steps: int, sentence: str, answers: list[tuple[str, float]], seconds: float) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_row("step", f"{len(losses)} of {steps}, {len(losses) / seconds:.1f} a second")
    table.add_row("", ProgressBar(total=steps, completed=len(losses), width=50))
    table.add_row("loss", f"{losses[0]:.3f} → [bold]{losses[-1]:.4f}[/]")
    table.add_row("", Text(sparkline(losses, 50), style="cyan"))
    table.add_row("question", Text(sentence, style="italic"))
    for word, chance in answers:
        table.add_row("", f"{chance:6.1%}  {'█' * round(20 * chance):20} {word}")
    return Group(table)


def sparkline(values: list[float], width: int) -> str:
    """A curve in one line of text: at most `width` columns, each the mean of its share of the values."""
    columns = min(width, len(values))
    edges = [len(values) * i // columns for i in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    spread = (high - low) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int((mean - low) / spread * len(BARS)))] for mean in means)
