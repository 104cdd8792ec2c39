"""Sanity: are model, run and data healthy? What must hold for every model, before asking how good it is.

Each check gives its number; each failure its likely cause and a remedy. `check_batches(batches, tokenizer)` looks at
batches of your own making.
"""

from __future__ import annotations

from collections.abc import Iterator

from glassbert.evaluation.measures import Measure
from glassbert.evaluation.sanity.batches import check_batches
from glassbert.evaluation.sanity.behaviour import REPEATS, check_behaviour, check_tokenizer, check_weights
from glassbert.evaluation.sanity.check import Check
from glassbert.evaluation.sanity.learning import check_learning
from glassbert.evaluation.sanity.log import check_log
from glassbert.evaluation.sanity.text import check_text
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import Options, SuiteResult, Table, suite
from glassbert.tasks.checks import by_severity
from glassbert.text.generator import MLMDataGenerator

__all__ = ["Check", "check_batches", "check_behaviour", "check_learning", "check_log", "check_text", "checks", "sanity"]

BATCHES, ROWS = 4, 64


@suite("sanity", title="Sanity")
def sanity(subject: Subject, options: Options) -> SuiteResult:
    """Everything that can be checked: model, learning, data and log."""
    found = list(checks(subject, options))
    asked = [check for check in found if not check.skipped]
    passed = sum(check.passed for check in asked)
    return SuiteResult(
        rows=[
            Measure("checks passed", passed / len(asked), unit="share", note=f"{passed} of {len(asked)}",
                    reference="a healthy model passes all")
        ],
        tables=[
            Table("Checks", ["what must hold", "", "measured"],
                  [(check.name, check.verdict, check.measured or check.skipped) for check in found])
        ],
        findings=by_severity([check.finding for check in found if check.finding is not None]),
    )  # fmt: skip


def checks(subject: Subject, options: Options | None = None) -> Iterator[Check]:
    """One after the other; a model whose weights are no numbers, or that cannot read its tokens, is asked no more."""
    progress = (options or Options()).progress
    weights, tokenizer = check_weights(subject), check_tokenizer(subject)
    yield weights
    yield tokenizer
    if weights.passed and not (subject.tokenizer.vocab_size > subject.model.config.vocab_size):
        behaviour = list(check_behaviour(subject))
        yield from behaviour
        if not any(check.name == REPEATS and not check.passed for check in behaviour):
            yield from check_learning(subject, progress)
        else:
            yield Check("everything else about the model", skipped="what varies by itself cannot be compared")
    else:
        yield Check("everything else about the model", skipped="see above")
    if subject.history is not None:
        yield from check_log(subject.history)
    else:
        yield Check("the log of the run", skipped="there is none")
    if subject.corpus is not None:
        yield from check_text(subject.corpus)
        yield from check_batches(_batches(subject), subject.tokenizer)
    else:
        yield Check("the text of the run", skipped="there is none")


def _batches(subject: Subject) -> Iterator[object]:
    """The first batches of the held-out rows, made as those for training are."""
    assert subject.corpus is not None
    generator = MLMDataGenerator(subject.corpus, subject.tokenizer, min(subject.longest, 64), ROWS, split="validation")
    return (generator.batch(0, index) for index in range(min(BATCHES, len(generator))))
