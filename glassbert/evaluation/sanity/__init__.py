"""The suite "sanity": checks of model, gradients, run log and training data that every healthy model passes.

Each check reports a number, and each failure a likely cause and a remedy. `check_batches(batches, tokenizer)` checks
your own batches.
"""

from __future__ import annotations

from collections.abc import Iterator

from glassbert.evaluation.measures import Check, Measure
from glassbert.evaluation.sanity.behaviour import REPEATS, check_behaviour, check_tokenizer, check_weights
from glassbert.evaluation.sanity.data import check_batches, check_text
from glassbert.evaluation.sanity.learning import check_learning
from glassbert.evaluation.sanity.log import check_log
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import Options, SuiteResult, Table, suite
from glassbert.tasks.checks import by_severity
from glassbert.text.generator import MLMDataGenerator

__all__ = ["Check", "check_batches", "check_behaviour", "check_learning", "check_log", "check_text", "checks", "sanity"]

BATCHES, ROWS = 4, 64


@suite("sanity", title="Sanity", effort=1)
def sanity(subject: Subject, options: Options) -> SuiteResult:
    """All checks: model, learning, log and data."""
    found = list(checks(subject, options))
    checked = [check for check in found if not check.skipped]
    passed = sum(check.passed for check in checked)
    return SuiteResult(
        rows=[
            Measure("checks passed", passed / len(checked), unit="share", note=f"{passed} of {len(checked)}",
                    reference="a healthy model passes all")
        ],
        tables=[
            Table("Checks", ["check", "", "measured"],
                  [(check.name, check.verdict, check.measured or check.skipped) for check in found])
        ],
        findings=by_severity([check.finding for check in found if check.finding is not None]),
    )  # fmt: skip


def checks(subject: Subject, options: Options | None = None) -> Iterator[Check]:
    """Run all checks. If weights are not finite or ids exceed the vocabulary, the other model checks are skipped."""
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
            yield Check("all other checks of the model", skipped="the output is not deterministic")
    else:
        yield Check("all other checks of the model", skipped="see above")
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
    """The first batches of the held-out rows, masked as in training."""
    assert subject.corpus is not None
    generator = MLMDataGenerator(
        subject.corpus, subject.tokenizer, min(subject.max_length, 64), ROWS, split="validation"
    )
    return (generator.batch(0, index) for index in range(min(BATCHES, len(generator))))
