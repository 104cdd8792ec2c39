"""Metrics by name: what kind of prediction each takes, and whether higher is better.

Settings name a main metric, early stopping compares its values, reports print all metrics that fit. To add a metric,
register a function (truth, predicted, weights=None); `takes` is the kind of `predicted`:

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
from glassbert.metrics.classification import (
    accuracy,
    balanced_accuracy,
    cohen_kappa,
    f1,
    matthews_correlation,
    precision,
    quadratic_weighted_kappa,
    recall,
)
from glassbert.metrics.probabilities import brier_score, expected_calibration_error, log_loss
from glassbert.metrics.ranking import average_precision, roc_auc
from glassbert.metrics.regression import kendall, mae, pearson, r2, rmse, smape, spearman
from glassbert.metrics.text import answer_f1, exact_match, span_f1, span_precision, span_recall

Takes = Literal["labels", "probabilities", "numbers", "tags", "answers"]


@dataclass(frozen=True)
class Metric:
    """A metric function, the kind of predictions it takes, and its direction."""

    name: str
    function: Callable[..., Any]
    takes: Takes  # the kind of predictions
    higher_is_better: bool = True

    def better(self, value: float, than: float) -> bool:
        """Whether `value` is better than `than`."""
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
    """The metric of this name."""
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
            raise ConfigError(f"there is already a metric {name!r}; choose another name")
        METRICS[name] = Metric(name, function, takes, higher_is_better)
        return function

    return register
