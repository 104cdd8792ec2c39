"""How to use the model: the commands and the lines of Python, for the kind of answer it gives."""

from __future__ import annotations

import shlex
from pathlib import Path

from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.scoring import marks_spans
from glassbert.reports import Page

LONGEST = 90


def how_to_use(page: Page, outcome: Outcome, run: Path) -> None:
    page.heading("Use it")
    page.code("\n".join(commands(outcome, run)))
    page.code(python(outcome, run))
    page.text(OPENS.get(outcome.card.head, OPENS[""]))


OPENS = {
    "": "The folder `model` also opens in transformers, where it has a class for this encoder and head.",
    "embedding": "The folder `model` holds the encoder; cosines of its vectors say how close two texts are.",
}


def commands(outcome: Outcome, run: Path) -> list[str]:
    """One for a single example of the held-out ones, one for a file."""
    data, card = outcome.data, outcome.card
    ask = f"glassbert predict {shlex.quote(str(run))}"
    if card.template is not None:
        cells = [(name, data.table.column(name)[0]) for name in card.template.columns[:4]]
        single = " ".join([ask, *(f"-c {shlex.quote(f'{name}={value}')}" for name, value in cells)])
    else:
        single = f"{ask} {shlex.quote(_brief(data.texts[0]))}"
        if data.pairs is not None:
            single += f" --pair {shlex.quote(_brief(data.pairs[0]))}"
    answers = "vectors.npy" if card.head == "embedding" and data.pairs is None else "answers.csv"
    return [single, f"{ask} --file {'new.txt' if _takes_lines(card) else 'new.csv'} --output {answers}"]


def python(outcome: Outcome, run: Path) -> str:
    card = outcome.card
    given = '"a text"' if card.pair is None else '("a text", "another")'
    if card.template is not None:
        given = "table"
    lines = [
        "from glassbert.finetuning import Predictor",
        "",
        f'found = Predictor.load("{run}").predict({given})',
        "found.answers()",
    ]
    if marks_spans(card):
        lines.append("found.entities")
    elif card.labels:
        lines.append("found.probabilities()")
    return "\n".join(lines)


def _takes_lines(card: TaskCard) -> bool:
    return card.template is None and card.pair is None and not card.reading.get("format")


def _brief(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0]
