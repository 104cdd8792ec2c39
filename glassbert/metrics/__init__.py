"""Metrics with confidence intervals, in NumPy. The formulas are at the top of each module.

    from glassbert.metrics import Scores, accuracy, bootstrap, roc_auc

    roc_auc(truth, scores)                           a float; raises `Undefined` with the reason where it has no value
    bootstrap(roc_auc, truth, scores)                the value with its confidence interval
    paired_difference(accuracy, truth, ours, theirs) the difference of two systems, with interval and p-value

Every metric takes `weights`, [N] or [R, N]; see `inputs.py`.
"""

from glassbert.metrics.classification import (
    LabelCounts,
    accuracy,
    balanced_accuracy,
    cohen_kappa,
    confusion_matrix,
    count_labels,
    f1,
    matthews_correlation,
    precision,
    quadratic_weighted_kappa,
    recall,
    top_k_accuracy,
)
from glassbert.metrics.inputs import Undefined
from glassbert.metrics.intervals import Difference, Interval, bootstrap, paired_difference
from glassbert.metrics.probabilities import (
    CalibrationCurve,
    apply_temperature,
    brier_score,
    calibration_curve,
    expected_calibration_error,
    fit_scaling,
    fit_temperature,
    log_loss,
)
from glassbert.metrics.ranking import (
    PrecisionRecallCurve,
    RocCurve,
    Thresholds,
    average_precision,
    precision_recall_curve,
    roc_auc,
    roc_curve,
    tune_thresholds,
)
from glassbert.metrics.registry import METRICS, Metric, get_metric, metric
from glassbert.metrics.regression import (
    kendall,
    linear_cka,
    mae,
    mase,
    pearson,
    r2,
    rmse,
    seasonal_naive_error,
    smape,
    spearman,
)
from glassbert.metrics.scores import Score, Scores, measure
from glassbert.metrics.shares import Share, counted, exact_interval
from glassbert.metrics.text import (
    Span,
    answer_f1,
    broken_spans,
    count_spans,
    exact_match,
    perplexity,
    sentence_spans,
    span_f1,
    span_precision,
    span_recall,
    spans,
)

__all__ = [
    "METRICS",
    "CalibrationCurve",
    "Difference",
    "Interval",
    "LabelCounts",
    "Metric",
    "PrecisionRecallCurve",
    "RocCurve",
    "Score",
    "Scores",
    "Share",
    "Span",
    "Thresholds",
    "Undefined",
    "accuracy",
    "answer_f1",
    "apply_temperature",
    "average_precision",
    "balanced_accuracy",
    "bootstrap",
    "brier_score",
    "broken_spans",
    "calibration_curve",
    "cohen_kappa",
    "confusion_matrix",
    "count_labels",
    "count_spans",
    "counted",
    "exact_interval",
    "exact_match",
    "expected_calibration_error",
    "f1",
    "fit_scaling",
    "fit_temperature",
    "get_metric",
    "kendall",
    "linear_cka",
    "log_loss",
    "mae",
    "mase",
    "matthews_correlation",
    "measure",
    "metric",
    "paired_difference",
    "pearson",
    "perplexity",
    "precision",
    "precision_recall_curve",
    "quadratic_weighted_kappa",
    "r2",
    "recall",
    "rmse",
    "roc_auc",
    "roc_curve",
    "seasonal_naive_error",
    "sentence_spans",
    "smape",
    "span_f1",
    "span_precision",
    "span_recall",
    "spans",
    "spearman",
    "top_k_accuracy",
    "tune_thresholds",
]
