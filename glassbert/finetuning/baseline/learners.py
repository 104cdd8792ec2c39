"""The models of the baselines. Each function fits one and returns its prediction function.

Predictions have the form of the outputs of GlassBERT's heads, so that both are scored by the same code:

    binary        [N]         the logit of the second label
    multiclass    [N, L]      logits; a label that is not in training gets a very low one
    multilabel    [N, L]      a logit for each label
    ordinal       [N, L - 1]  logits of P(rank > k | rank > k - 1)
    regression    [N]         values in the units of the target

`strength` is 1 / regularisation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from glassbert.metrics.inputs import as_numbers
from glassbert.ops.losses import sigmoid

Predict = Callable[[Any], np.ndarray]  # from features of N examples to outputs
Learner = Callable[[Any, np.ndarray, float, int], Predict]  # features, targets, strength, number of labels
UNSEEN_LOGIT = -30.0  # of a label that is not in training
MAX_STEPS = 60
MANY_CELLS = 5_000_000
TREES: dict[str, Any] = {"max_iter": 150, "learning_rate": 0.05, "max_leaf_nodes": 15, "random_state": 0}


def fit_binary(x: Any, y: np.ndarray, strength: float, labels: int) -> Predict:
    """Logistic regression for two labels."""
    if len(np.unique(y)) < 2:
        return _constant(np.array(-UNSEEN_LOGIT if y[0] else UNSEEN_LOGIT))
    return _logistic(strength).fit(x, y).decision_function


def fit_multiclass(x: Any, y: np.ndarray, strength: float, labels: int) -> Predict:
    """Multinomial logistic regression."""
    seen = np.unique(y)
    if len(seen) == 1:
        return _constant(np.where(np.arange(labels) == seen[0], 0.0, UNSEEN_LOGIT))
    if len(seen) == 2:  # scikit-learn then returns only the logit of the second
        binary = fit_binary(x, (y == seen[1]).astype(np.int64), strength, 2)
        return lambda features: _all_columns(np.stack([0 * (z := binary(features)), z], 1), seen, labels)
    model = _multinomial(strength)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ConvergenceWarning: MAX_STEPS is accurate enough for a baseline
        model.fit(x, y)
    return lambda features: _all_columns(model.decision_function(features), seen, labels)


def fit_multilabel(x: Any, y: np.ndarray, strength: float, labels: int) -> Predict:
    """One logistic regression per label."""
    each = [fit_binary(x, column.astype(np.int64), strength, 2) for column in np.asarray(y).T]
    return lambda features: np.stack([one(features) for one in each], 1)


def fit_regression(x: Any, y: np.ndarray, strength: float, labels: int) -> Predict:
    """Ridge regression."""
    model, mean = _ridge(strength), float(np.mean(y))
    model.fit(x, y - mean)
    return lambda features: model.predict(features) + mean


def fit_ordinal_regression(x: Any, y: np.ndarray, strength: float, labels: int) -> Predict:
    """Ridge regression on the ranks."""
    return _fit_ranks(fit_regression, x, y, strength, labels)


def fit_ordinal_thresholds(x: Any, y: np.ndarray, strength: float, labels: int) -> Predict:
    """One logistic regression per threshold k, for P(rank > k)."""
    steps = [fit_binary(x, (y > step).astype(np.int64), strength, 2) for step in range(labels - 1)]

    def predict(features: Any) -> np.ndarray:
        above = np.stack([sigmoid(step(features)) for step in steps], 1)
        return rank_logits(np.minimum.accumulate(above, 1))  # P(rank > k) must not increase with k

    return predict


def tree_learner(head: str) -> Learner:
    """Gradient boosted trees for tables."""

    def learn(x: Any, y: np.ndarray, strength: float, labels: int) -> Predict:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        if head == "ordinal":
            return _fit_ranks(tree_learner("regression"), x, y, strength, labels)
        options = {**TREES, "l2_regularization": 1.0 / strength}
        if head == "regression":
            numbers = HistGradientBoostingRegressor(**options)
            _with_suitable_threads(numbers.fit, x, y)
            return lambda features: _with_suitable_threads(numbers.predict, features)
        seen = np.unique(y)
        if len(seen) < 2:
            return (fit_binary if head == "binary" else fit_multiclass)(x, y, strength, labels)
        trees = HistGradientBoostingClassifier(**options)
        _with_suitable_threads(trees.fit, x, y)
        if head == "binary":
            return lambda features: _with_suitable_threads(trees.decision_function, features)
        return lambda features: _all_columns(
            np.log(np.maximum(_with_suitable_threads(trees.predict_proba, features), 1e-12)), seen, labels
        )

    return learn


def _with_suitable_threads(work: Callable[..., Any], x: Any, *more: Any) -> Any:
    """work(x, ...) with one OpenMP thread, unless the table is large: on a busy machine several wait for each other."""
    limit = 1 if x.shape[0] * x.shape[1] <= MANY_CELLS else None
    with threadpool_limits(limit, user_api="openmp"):
        return work(_dense(x), *more)


def _fit_ranks(learn: Learner, x: Any, y: np.ndarray, strength: float, labels: int) -> Predict:
    """Turn a regression into rank logits: a normal distribution around the predicted number.

    Its deviation is the RMSE on a held-out fifth of the rows, because errors on the fitted rows are too small.
    """
    numbers, held = y.astype(np.float64), np.arange(len(y)) % 5 == 4
    value = learn(x, numbers, strength, 1)
    without_held = learn(x[~held], numbers[~held], strength, 1) if held.any() else value
    deviation = max(float(np.sqrt(np.mean((without_held(x[held]) - y[held]) ** 2))) if held.any() else 1.0, 0.05)
    edges = np.arange(labels - 1) + 0.5
    return lambda features: rank_logits(_normal_tail((edges - value(features)[:, None]) / deviation))


def rank_logits(above: np.ndarray) -> np.ndarray:
    """P(rank > k) for every k, [N, L - 1], as logits in the form of the ordinal head."""
    above = np.clip(as_numbers(above, "above"), 1e-9, 1 - 1e-9)
    previous = np.concatenate([np.ones((len(above), 1)), above[:, :-1]], 1)
    step = np.clip(above / previous, 1e-9, 1 - 1e-9)  # P(rank > k | rank > k - 1)
    return np.log(step) - np.log1p(-step)


def _normal_tail(z: np.ndarray) -> np.ndarray:
    """P(x > z) for a standard normal x."""
    from scipy.special import ndtr

    return ndtr(-z)


def _logistic(strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, solver="liblinear", max_iter=MAX_STEPS, random_state=0)


def _multinomial(strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, solver="lbfgs", max_iter=MAX_STEPS, tol=1e-3)


def _ridge(strength: float) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=1.0 / strength, solver="sparse_cg", tol=1e-4)


def _all_columns(scores: np.ndarray, seen: np.ndarray, labels: int) -> np.ndarray:
    """Put the scores of the labels in `seen` into their columns among all labels."""
    if len(seen) == labels:
        return scores
    lowest = scores.min(1, keepdims=True) + UNSEEN_LOGIT
    wide = np.repeat(lowest, labels, 1)
    wide[:, seen] = scores
    return wide


def _constant(row: np.ndarray) -> Predict:
    return lambda features: np.repeat(row[None], features.shape[0], 0).astype(np.float64)


def _dense(x: Any) -> np.ndarray:
    return x.toarray() if hasattr(x, "toarray") else np.asarray(x)
