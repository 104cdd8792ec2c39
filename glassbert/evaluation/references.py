"""Reference figures of other models with their sources (`references.toml`), and the one nearest in size."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from glassbert.evaluation.measures import write
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import Table
from glassbert.reports import short


@dataclass(frozen=True)
class Reference:
    """One entry of `references.toml`."""

    model: str
    source: str
    parameters: float | None = None
    tokens: float | None = None  # seen in training, repetitions included
    vocabulary: int | None = None
    text: str = ""
    perplexity: float | None = None
    accuracy: float | None = None
    value: float | None = None


@cache
def references(kind: str) -> list[Reference]:
    text = resources.files("glassbert.evaluation").joinpath("references.toml").read_text(encoding="utf-8")
    return [Reference(**entry) for entry in tomllib.loads(text)[kind]]


def reference_for(kind: str, unit: str = "") -> str:
    """All figures of one kind in one line."""
    return ", ".join(f"{one.model} {write(one.value or 0.0, unit)}" for one in references(kind))


def sources(kind: str, unit: str = "") -> Table:
    """The same figures as a table with sources."""
    rows = [(one.model, write(one.value or 0.0, unit), one.source) for one in references(kind)]
    return Table("Sources of the reference figures", ["model", "value", "source"], rows, folded=True)


def nearest(subject: Subject) -> Reference:
    """The language model nearest in log size, and in log tokens seen if known."""

    def distance(other: Reference) -> float:
        total = abs(math.log(subject.parameters / (other.parameters or 1)))
        if subject.tokens_seen and other.tokens:
            total += 0.5 * abs(math.log(subject.tokens_seen / other.tokens))
        return total

    return min(references("language"), key=distance)


def reference_table(subject: Subject, perplexity: float | None, accuracy: float | None) -> Table:
    """The model and the reference models, sorted by size."""
    rows = [
        (one.model, one.parameters, one.tokens, one.vocabulary, one.perplexity, one.accuracy, one.text, one.source)
        for one in references("language")
    ]
    rows.append(
        (f"→ {subject.name}", subject.parameters, subject.tokens_seen, subject.model.config.vocab_size, perplexity,
         accuracy, "this text", "this report")
    )  # fmt: skip
    rows.sort(key=lambda row: (row[1], -(row[4] or 0)))
    shown = [
        (model, short(size or 0.0), "–" if tokens is None else short(tokens), vocabulary, ppl and f"{ppl:.3g}",
         "–" if right is None else f"{100 * right:.1f} %", text, source)
        for model, size, tokens, vocabulary, ppl, right, text, source in rows
    ]  # fmt: skip
    return Table(
        "Reference models by size",
        ["model", "parameters", "tokens seen", "vocabulary", "perplexity", "masked words right", "text", "source"],
        shown,
        "Perplexities of different vocabularies and texts are not comparable: a word of more tokens is easier token by "
        "token. Compare within one vocabulary and text; across them only the order of magnitude is meaningful.",
    )
