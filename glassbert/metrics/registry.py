"""Metrics by name: what they compare, and which direction is better.

A recipe names its main metric, early stopping asks which way is up, a report prints all that fit. A metric of your own
is one function that takes (truth, what `takes` says, weights=None):

    @metric("within_one", takes="labels")
    def within_one(truth, predicted, weights=None):
        return weighted_mean((abs(truth - predicted) <= 1).astype(float), weights)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from glassbert.errors import ConfigError
from glassbert.metrics.accuracies import accuracy, balanced_accuracy
from glassbert.metrics.agreement import cohen_kappa, matthews_correlation, quadratic_weighted_kappa
from glassbert.metrics.answers import answer_f1, exact_match
from glassbert.metrics.calibration import expected_calibration_error
from glassbert.metrics.correlation import kendall, pearson, spearman
from glassbert.metrics.forecast import smape
from glassbert.metrics.precision_curve import average_precision
from glassbert.metrics.precision_recall import f1, precision, recall
from glassbert.metrics.probability import brier_score, log_loss
from glassbert.metrics.regression import mae, r2, rmse
from glassbert.metrics.roc import roc_auc
from glassbert.metrics.span_scores import span_f1, span_precision, span_recall

Takes = Literal["labels", "probabilities", "numbers", "tags", "answers"]


@dataclass(frozen=True)
class Metric:
    name: str
    function: Callable[..., Any]
    takes: Takes  # what is compared with the truth
    higher_is_better: bool = True

    def better(self, value: float, than: float) -> bool:
        return value > than if self.higher_is_better else value < than


METRICS: dict[str, Metric] = {
    entry.name: entry
    for entry in (
        Metric("accuracy", accuracy, "labels"),
        Metric("balanced_accuracy", balanced_accuracy, "labels"),
        Metric("precision", precision, "labels"),
        Metric("recall", recall, "labels"),
        Metric("f1", f1, "labels"),
        Metric("micro_f1", partial(f1, average="micro"), "labels"),
        Metric("macro_f1", partial(f1, average="macro"), "labels"),
        Metric("weighted_f1", partial(f1, average="weighted"), "labels"),
        Metric("matthews", matthews_correlation, "labels"),
        Metric("kappa", cohen_kappa, "labels"),
        Metric("quadratic_kappa", quadratic_weighted_kappa, "labels"),
        Metric("auc", roc_auc, "probabilities"),
        Metric("average_precision", average_precision, "probabilities"),
        Metric("log_loss", log_loss, "probabilities", higher_is_better=False),
        Metric("brier", brier_score, "probabilities", higher_is_better=False),
        Metric("ece", expected_calibration_error, "probabilities", higher_is_better=False),
        Metric("rmse", rmse, "numbers", higher_is_better=False),
        Metric("mae", mae, "numbers", higher_is_better=False),
        Metric("smape", smape, "numbers", higher_is_better=False),
        Metric("r2", r2, "numbers"),
        Metric("pearson", pearson, "numbers"),
        Metric("spearman", spearman, "numbers"),
        Metric("kendall", kendall, "numbers"),
        Metric("span_f1", span_f1, "tags"),
        Metric("span_precision", span_precision, "tags"),
        Metric("span_recall", span_recall, "tags"),
        Metric("exact_match", exact_match, "answers"),
        Metric("answer_f1", answer_f1, "answers"),
    )
}


def get_metric(name: str) -> Metric:
    try:
        return METRICS[name]
    except KeyError:
        raise ConfigError(f"there is no metric {name!r}; there are {', '.join(METRICS)}") from None


def metric(
    name: str, takes: Takes, higher_is_better: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the metric `name`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if name in METRICS:
            raise ConfigError(f"there is a metric {name!r} already")
        METRICS[name] = Metric(name, function, takes, higher_is_better)
        return function

    return register
