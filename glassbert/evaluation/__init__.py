"""Evaluation: what has a model learned, and how do we know?

    from glassbert.evaluation import Subject, evaluate

    report = evaluate([Subject.open("runs/mini"), Subject.open("runs/larger")], quick=True)
    report.results["mini"]["grammar"]["accuracy"].value
    report.write("evaluation/")

Suites ask (sanity, language, grammar, probes, transfer, embeddings, cost), measures answer with their intervals, and
one report shows it all. A question of your own is a function with a decorator: see `suite`.
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

# In the order of the report. Importing a suite enters it.
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
