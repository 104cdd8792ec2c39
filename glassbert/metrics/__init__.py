"""Metrics: how good is it, and how sure is that? NumPy alone, one idea a file, the formula above the code.

    from glassbert.metrics import Scores, accuracy, bootstrap, roc_auc

    roc_auc(truth, scores)                           a number; `Undefined` with the reason where there is none
    bootstrap(roc_auc, truth, scores)                with its interval
    paired_difference(accuracy, truth, ours, theirs) is the difference more than chance?

Every metric takes `weights`, [N] or [R, N]; see `inputs.py`.
"""

from glassbert.metrics.accuracies import accuracy, balanced_accuracy, top_k_accuracy
from glassbert.metrics.agreement import cohen_kappa, matthews_correlation, quadratic_weighted_kappa
from glassbert.metrics.answers import answer_f1, exact_match
from glassbert.metrics.calibration import CalibrationCurve, calibration_curve, expected_calibration_error
from glassbert.metrics.confusion import confusion_matrix
from glassbert.metrics.correlation import kendall, pearson, spearman
from glassbert.metrics.forecast import mase, seasonal_naive_error, smape
from glassbert.metrics.intervals import Difference, Interval, bootstrap, paired_difference
from glassbert.metrics.language import perplexity
from glassbert.metrics.precision_curve import PrecisionRecallCurve, average_precision, precision_recall_curve
from glassbert.metrics.precision_recall import LabelCounts, count_labels, f1, precision, recall
from glassbert.metrics.probability import brier_score, log_loss
from glassbert.metrics.registry import METRICS, Metric, get_metric, metric
from glassbert.metrics.regression import mae, r2, rmse
from glassbert.metrics.roc import RocCurve, roc_auc, roc_curve
from glassbert.metrics.scores import Score, Scores, measure
from glassbert.metrics.similarity import linear_cka
from glassbert.metrics.span_scores import count_spans, span_f1, span_precision, span_recall
from glassbert.metrics.tags import Span, broken_spans, sentence_spans, spans
from glassbert.metrics.temperature import apply_temperature, fit_temperature
from glassbert.metrics.thresholds import Thresholds, tune_thresholds
from glassbert.metrics.undefined import Undefined

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
    "exact_match",
    "expected_calibration_error",
    "f1",
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
