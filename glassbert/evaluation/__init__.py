"""Evaluation: suites of measures with intervals, and one report for one or more models.

    from glassbert.evaluation import Subject, evaluate

    report = evaluate([Subject.open("runs/mini"), Subject.open("runs/larger")], quick=True)
    report.results["mini"]["grammar"]["accuracy"].value
    report.write("evaluation/")

The built-in suites are sanity, language, grammar, probes, transfer, embeddings and cost. A suite of your own is a
function with a decorator: see `suite`.
"""

from importlib import import_module

from glassbert.evaluation.evaluation import Evaluation, evaluate
from glassbert.evaluation.measures import Measure, Sample, estimate, mean, rate, undefined
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import (
    MEASURES,
    SUITES,
    DoesNotApply,
    Options,
    Picture,
    Suite,
    SuiteResult,
    Table,
    get_suites,
    measure,
    suite,
)

# Importing a suite registers it; this is the order of the report.
for _name in ("sanity", "language", "grammar", "probes", "transfer", "embeddings", "cost"):
    import_module(f"glassbert.evaluation.{_name}")

__all__ = [
    "MEASURES",
    "SUITES",
    "DoesNotApply",
    "Evaluation",
    "Measure",
    "Options",
    "Picture",
    "Sample",
    "Subject",
    "Suite",
    "SuiteResult",
    "Table",
    "estimate",
    "evaluate",
    "get_suites",
    "mean",
    "measure",
    "rate",
    "suite",
    "undefined",
]
