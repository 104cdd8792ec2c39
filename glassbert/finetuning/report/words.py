"""How a report says its numbers: names of metrics for people, and values as shares or as numbers."""

from __future__ import annotations

from glassbert.metrics import Score
from glassbert.reports import number

NAMES = {
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "micro_f1": "Micro F1",
    "macro_f1": "Macro F1",
    "weighted_f1": "Weighted F1",
    "matthews": "Matthews' correlation",
    "kappa": "Cohen's kappa",
    "quadratic_kappa": "Quadratic kappa",
    "auc": "AUC",
    "average_precision": "Average precision",
    "log_loss": "Log loss",
    "brier": "Brier score",
    "ece": "Calibration error",
    "rmse": "RMSE",
    "mae": "Mean absolute error",
    "smape": "SMAPE",
    "r2": "R²",
    "pearson": "Pearson's correlation",
    "spearman": "Spearman's correlation",
    "kendall": "Kendall's correlation",
    "span_f1": "Span F1",
    "span_precision": "Span precision",
    "span_recall": "Span recall",
    "exact_match": "Exact match",
    "answer_f1": "Answer F1",
}
SHARES = frozenset(("accuracy", "balanced_accuracy", "precision", "recall", "exact_match"))
TASKS = {
    "binary": "one of two labels",
    "multiclass": "one of several labels",
    "multilabel": "any number of labels",
    "ordinal": "a rank",
    "regression": "a number",
    "token": "a tag for every word",
    "span": "a passage that answers a question",
    "embedding": "how close two texts are",
}


def name_of(metric: str) -> str:
    """A metric as people call it; one of the user's own by its own name."""
    return NAMES.get(metric, metric.replace("_", " "))


def inside_sentence(metric: str) -> str:
    """The same in the middle of a sentence: names and abbreviations keep their capitals."""
    name = name_of(metric)
    kept = name.isupper() or name[:2] in ("F1", "R²") or "'" in name or name in ("RMSE", "SMAPE", "AUC")
    return name if kept else name[0].lower() + name[1:]


def written(value: float | None, metric: str) -> str:
    """A value of this metric: 86.2 %, or 0.873."""
    if value is None:
        return "–"
    return f"{_digits(value, metric)} %" if metric in SHARES else _digits(value, metric)


def between(score: Score, metric: str) -> str:
    """The interval of a score, or why there is none."""
    if score.low is None or score.high is None:
        return score.reason
    return _two(score.low, "–", score.high, metric)


def give_or_take(mean: float, deviation: float, metric: str) -> str:
    """A mean and its spread: 86.2 ± 0.4 %."""
    return _two(mean, "±", deviation, metric)


def _two(first: float, sign: str, second: float, metric: str) -> str:
    both = f"{_digits(first, metric)} {sign} {_digits(second, metric, like=first)}"
    return f"{both} %" if metric in SHARES else both


def _digits(value: float, metric: str, like: float | None = None) -> str:
    """The value with the digits that it needs, or that `like` needs."""
    size = abs(value if like is None else like)
    if metric in SHARES:
        return f"{100 * value:.1f}".replace("-", "−")
    return f"{value:.3f}".replace("-", "−") if size == 0 or 0.01 <= size < 10 else number(value)


def change(value: float, metric: str) -> str:
    """A difference with its sign; of shares in points."""
    sign = "+" if value > 0 else "−" if value < 0 else "±"
    size = f"{abs(value):.3f}" if abs(value) < 10 else number(abs(value))
    return f"{sign}{abs(100 * value):.1f} points" if metric in SHARES else f"{sign}{size}"
