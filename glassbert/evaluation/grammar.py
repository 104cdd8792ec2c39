"""The suite "grammar": accuracy on minimal pairs.

A minimal pair differs in one point ("the dogs on the hill are", "... is"). The sentence with the higher pseudo-log-
likelihood is the model's choice; a tie counts as half. Chance is 50 %.

The main score compares whole sentences, as published figures do. The evidence for an error may be at another word than
the changed one (in "the dog / the dogs ... are" the verb becomes less probable when the noun changes), and the score of
the changed words alone depends on their frequency. The score of the changed words is a second measure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import TextError
from glassbert.evaluation.masked import PseudoLikelihoods, pseudo_likelihoods
from glassbert.evaluation.measures import Measure, estimate, mean, undefined
from glassbert.evaluation.references import reference_for, sources
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options, SuiteResult, Table, suite
from glassbert.metrics.inputs import Value, as_weights, sums_by_group
from glassbert.tasks.reading import read_minimal_pairs, read_table

PATTERNS = ("zorro/*.txt", "blimp/*.jsonl", "minimal-pairs/*.txt", "minimal-pairs/*.jsonl")
QUICK_PAIRS, PAIRS = 60, 300  # per phenomenon; all in a thorough evaluation
EXAMPLES = 12
TIE = 1e-6  # nats: smaller differences are rounding
ZORRO_PHENOMENA = 23
GROUP = "right, by phenomenon"


@dataclass
class Phenomenon:
    """Pairs (right, wrong) of one phenomenon, the rows that are no pair, and the error if the file is unreadable."""

    name: str
    pairs: list[tuple[str, str]]
    refused: list[str] = field(default_factory=list)
    unreadable: str = ""


@suite("grammar", title="Grammar", effort=15)
def grammar(subject: Subject, options: Options) -> SuiteResult:
    """Minimal pairs by pseudo-log-likelihood (of a causal model: likelihood), in total and by phenomenon."""
    subject.require_words()
    phenomena = find_pairs(options)
    most = options.limit(PAIRS, QUICK_PAIRS)
    chosen = [(p, [p.pairs[i] for i in options.sample(len(p.pairs), most, f"pairs of {p.name}")]) for p in phenomena]
    sentences = [sentence for _, pairs in chosen for pair in pairs for sentence in pair]
    found = pseudo_likelihoods(subject, sentences, options.progress)
    return _result(subject, options, chosen, found)


def _result(
    subject: Subject,
    options: Options,
    chosen: Sequence[tuple[Phenomenon, list[tuple[str, str]]]],
    found: PseudoLikelihoods,
) -> SuiteResult:
    result = SuiteResult(notes=[*_notes(chosen, options), *found.notes], marks={GROUP: {"chance": 0.5}})
    whole: list[np.ndarray] = []
    words: list[np.ndarray] = []
    wrong: list[tuple[float, str, str, str]] = []
    keys = []
    rows: list[Measure] = []
    values = iter(found.tokens)
    for phenomenon, pairs in chosen:
        margins, narrow, scored = [], [], []
        for right, bad in pairs:
            one, two = next(values), next(values)
            if one is None or two is None:
                continue
            scored.append((right, bad))
            margins.append(one.sum() - two.sum())
            narrow.append(_changed_words_margin(subject, right, bad, one, two))
        choice = half_for_ties(np.array(margins))
        key = _key(scored)
        rows.append(
            estimate(phenomenon.name, mean, choice, key=key, resamples=options.resamples, unit="share",
                     group=GROUP, note=f"{len(scored):,} pairs")
            if scored
            else undefined(phenomenon.name, phenomenon.unreadable or "none of its pairs could be scored", unit="share",
                           group=GROUP)
        )  # fmt: skip
        if scored:
            whole.append(choice)
            words.append(half_for_ties(np.array(narrow)))
            keys.append(key)
            wrong += [(m, phenomenon.name, *pair) for m, pair in zip(margins, scored, strict=True) if m < -TIE]
    if not whole:
        raise DoesNotApply("none of the pairs could be scored: " + "; ".join(found.notes))
    group = np.repeat(np.arange(len(whole)), [len(one) for one in whole])
    for name, choices, note in (
        ("accuracy", whole, "whole sentences; every phenomenon has the same weight"),
        ("accuracy, changed words only", words, "the pseudo-log-likelihood of the words that differ"),
    ):
        result.rows.append(
            estimate(name, mean_of_means, np.concatenate(choices), group, key=_key([*keys, name]),
                     resamples=options.resamples, unit="share", note=note,
                     reference=_reference(subject, chosen) if choices is whole else "")
        )  # fmt: skip
    result.rows += sorted(rows, key=lambda row: (row.value is None, row.name))
    if len(chosen) == ZORRO_PHENOMENA:
        result.tables.append(sources("zorro", "share"))
    if wrong:
        worst = sorted(wrong)[:EXAMPLES]
        result.tables.append(
            Table("Errors with the largest margin", ["margin, nats", "phenomenon", "right", "preferred"],
                  [(f"{-margin:.1f}", name, right, bad) for margin, name, right, bad in worst], folded=True)
        )  # fmt: skip
    return result


def half_for_ties(margins: np.ndarray) -> np.ndarray:
    """1 if the right sentence has the higher score, 0 if the lower, 0.5 for a tie up to rounding."""
    return np.where(margins > TIE, 1.0, np.where(margins < -TIE, 0.0, 0.5))


def mean_of_means(values: Any, group: Any, weights: Any = None) -> Value:
    """The mean of the group means; groups without weight do not count."""
    weights, groups = as_weights(weights, len(values)), np.asarray(group, np.int64)
    count = int(groups.max()) + 1
    sums, sizes = (sums_by_group(weights * factor, groups, count) for factor in (values, 1.0))
    present = sizes > 0
    means = np.where(present, sums / np.where(present, sizes, 1.0), 0.0).sum(-1) / present.sum(-1)
    return float(means) if np.ndim(means) == 0 else means


def _changed_words_margin(subject: Subject, right: str, wrong: str, one: np.ndarray, two: np.ndarray) -> float:
    """The margin over the tokens between the common prefix and the common suffix."""
    a, b = (subject.tokenizer.encode(text, special_tokens=False).ids for text in (right, wrong))
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    after = 0
    while after < min(len(a), len(b)) - same and a[-1 - after] == b[-1 - after]:
        after += 1
    return float(one[same : len(a) - after].sum() - two[same : len(b) - after].sum())


# ---- files ----


def find_pairs(options: Options) -> list[Phenomenon]:
    files = options.files(*PATTERNS)
    if options.pairs is not None:
        if not options.pairs.exists():
            raise TextError(f"there is no file or folder {options.pairs} with minimal pairs")
        inside = (p for ending in ("*.txt", "*.jsonl", "*.json") for p in options.pairs.rglob(ending))
        files = sorted(inside) if options.pairs.is_dir() else [options.pairs]
    if not files:
        where = (
            f"{options.data} has none of {', '.join(PATTERNS)}" if options.data else "name them by --data or --pairs"
        )
        raise DoesNotApply(f"there are no minimal pairs: {where}")
    found = [_read_or_report(path) for path in files]
    if not any(phenomenon.pairs for phenomenon in found):
        raise TextError(
            f"no file of minimal pairs can be used; the first: {found[0].unreadable or found[0].refused[0]}"
        )
    return found


def _read_or_report(path: Path) -> Phenomenon:
    """A file that cannot be read becomes a row with the error, so that the other files are still used."""
    try:
        return read_pairs(path)
    except TextError as error:
        return Phenomenon(path_name(path), [], unreadable=str(error))


def path_name(path: Path) -> str:
    """The phenomenon of a file: agreement_subject_verb-in_question.txt is "agreement subject verb, in question"."""
    return ", ".join(path.name.split(".")[0].replace("_", " ").rsplit("-", 1))


def read_pairs(path: Path) -> Phenomenon:
    """Zorro: alternating lines, the wrong sentence first. BLiMP: JSON lines with sentence_good and sentence_bad."""
    name = path_name(path)
    if ".json" not in path.name:
        table = read_minimal_pairs(path)
        return Phenomenon(name, list(zip(table.column("good"), table.column("bad"), strict=True)))
    table = read_table(path)
    found = Phenomenon(name, [])
    for row, pair in enumerate(zip(table.column("sentence_good"), table.column("sentence_bad"), strict=True)):
        if all(isinstance(sentence, str) and sentence.strip() for sentence in pair) and pair[0] != pair[1]:
            found.pairs.append(pair)
        else:
            found.refused.append(table.where(row))
    return found


def _notes(chosen: Sequence[tuple[Phenomenon, list[Any]]], options: Options) -> list[str]:
    taken, there = sum(len(pairs) for _, pairs in chosen), sum(len(p.pairs) for p, _ in chosen)
    notes = [f"{taken:,} of {there:,} pairs of {len(chosen)} phenomena" + (", a sample" if taken < there else "")]
    refused = [where for phenomenon, _ in chosen for where in phenomenon.refused]
    if refused:
        notes.append(f"{len(refused):,} rows are no pair of two different sentences and were left out: {refused[0]}")
    return notes


def _reference(subject: Subject, chosen: Sequence[tuple[Phenomenon, Any]]) -> str:
    return reference_for("zorro", "share") if len(chosen) == ZORRO_PHENOMENA else "chance is 50 %"


def _key(content: Any) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]
