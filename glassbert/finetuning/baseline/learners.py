"""The models behind the baselines, one function each: features and targets to a way of answering.

What a learner gives is in the form of our own heads' outputs, so that both are judged by the same code:

    binary        [N]         the logit of the second label
    multiclass    [N, L]      logits; a label that training lacks gets a very low one
    multilabel    [N, L]      a logit for each label
    ordinal       [N, L - 1]  logits of "higher than rank k, if it is not lower"
    regression    [N]         values in the units of the target

`strength` is how freely a model may follow its training data: 1 / regularisation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from glassbert.metrics.inputs import as_numbers
from glassbert.ops.losses import sigmoid

Answering = Callable[[Any], np.ndarray]  # features of N examples to outputs
Learner = Callable[[Any, np.ndarray, float, int], Answering]  # features, targets, strength, number of labels
NEVER = -30.0  # the logit of what training never shows
STEPS = 60
TREES: dict[str, Any] = {"max_iter": 150, "learning_rate": 0.05, "max_leaf_nodes": 15, "random_state": 0}


def learn_yes_or_no(x: Any, y: np.ndarray, strength: float, labels: int) -> Answering:
    """Logistic regression for two labels."""
    if len(np.unique(y)) < 2:
        return _constant(np.array(-NEVER if y[0] else NEVER))
    return _logistic(strength).fit(x, y).decision_function


def learn_classes(x: Any, y: np.ndarray, strength: float, labels: int) -> Answering:
    """Multinomial logistic regression."""
    seen = np.unique(y)
    if len(seen) == 1:
        return _constant(np.where(np.arange(labels) == seen[0], 0.0, NEVER))
    if len(seen) == 2:  # scikit-learn then gives one logit, that of the second
        binary = learn_yes_or_no(x, (y == seen[1]).astype(np.int64), strength, 2)
        return lambda features: _spread(np.stack([0 * (z := binary(features)), z], 1), seen, labels)
    model = _multinomial(strength)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "not converged" after STEPS is good enough here
        model.fit(x, y)
    return lambda features: _spread(model.decision_function(features), seen, labels)


def learn_each_label(x: Any, y: np.ndarray, strength: float, labels: int) -> Answering:
    """One logistic regression for every label."""
    each = [learn_yes_or_no(x, column.astype(np.int64), strength, 2) for column in np.asarray(y).T]
    return lambda features: np.stack([one(features) for one in each], 1)


def learn_number(x: Any, y: np.ndarray, strength: float, labels: int) -> Answering:
    """Ridge regression."""
    model, middle = _ridge(strength), float(np.mean(y))
    model.fit(x, y - middle)
    return lambda features: model.predict(features) + middle


def learn_ranks_as_numbers(x: Any, y: np.ndarray, strength: float, labels: int) -> Answering:
    """Ridge regression on the ranks."""
    return _as_ranks(learn_number, x, y, strength, labels)


def learn_ranks_by_steps(x: Any, y: np.ndarray, strength: float, labels: int) -> Answering:
    """One logistic regression for every step of the scale: is it higher than this?"""
    steps = [learn_yes_or_no(x, (y > step).astype(np.int64), strength, 2) for step in range(labels - 1)]

    def answer(features: Any) -> np.ndarray:
        above = np.stack([sigmoid(step(features)) for step in steps], 1)
        return rank_logits(np.minimum.accumulate(above, 1))  # nobody is above 3 who is not above 2

    return answer


def tree_learner(head: str) -> Learner:
    """Boosted trees, what a practitioner tries first on a table; strength 1 is the usual amount of freedom."""

    def learn(x: Any, y: np.ndarray, strength: float, labels: int) -> Answering:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        if head == "ordinal":
            return _as_ranks(tree_learner("regression"), x, y, strength, labels)
        options = {**TREES, "l2_regularization": 1.0 / strength}
        if head == "regression":
            numbers = HistGradientBoostingRegressor(**options).fit(_dense(x), y)
            return lambda features: numbers.predict(_dense(features))
        seen = np.unique(y)
        if len(seen) < 2:
            return (learn_yes_or_no if head == "binary" else learn_classes)(x, y, strength, labels)
        trees = HistGradientBoostingClassifier(**options).fit(_dense(x), y)
        if head == "binary":
            return lambda features: trees.decision_function(_dense(features))
        return lambda features: _spread(np.log(np.maximum(trees.predict_proba(_dense(features)), 1e-12)), seen, labels)

    return learn


def _as_ranks(learn: Learner, x: Any, y: np.ndarray, strength: float, labels: int) -> Answering:
    """Numbers as ranks: the middle one is the rounded number, the doubt around it that of its errors on a held-out
    fifth; on the rows it was fitted to it would be too sure of itself."""
    numbers, held = y.astype(np.float64), np.arange(len(y)) % 5 == 4
    value = learn(x, numbers, strength, 1)
    tried = learn(x[~held], numbers[~held], strength, 1) if held.any() else value
    doubt = max(float(np.sqrt(np.mean((tried(x[held]) - y[held]) ** 2))) if held.any() else 1.0, 0.05)
    edges = np.arange(labels - 1) + 0.5
    return lambda features: rank_logits(_normal_above((edges - value(features)[:, None]) / doubt))


def rank_logits(above: np.ndarray) -> np.ndarray:
    """P(rank > k) for every k, [N, L - 1], as the logits our ordinal head would give."""
    above = np.clip(as_numbers(above, "above"), 1e-9, 1 - 1e-9)
    before = np.concatenate([np.ones((len(above), 1)), above[:, :-1]], 1)
    step = np.clip(above / before, 1e-9, 1 - 1e-9)  # P(rank > k | rank > k - 1)
    return np.log(step) - np.log1p(-step)


def _normal_above(z: np.ndarray) -> np.ndarray:
    """The chance that a normal number is above z."""
    from scipy.special import ndtr

    return ndtr(-z)


def _logistic(strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, solver="liblinear", max_iter=STEPS, random_state=0)


def _multinomial(strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, solver="lbfgs", max_iter=STEPS, tol=1e-3)


def _ridge(strength: float) -> Any:
    from sklearn.linear_model import Ridge

    return Ridge(alpha=1.0 / strength, solver="sparse_cg", tol=1e-4)


def _spread(scores: np.ndarray, seen: np.ndarray, labels: int) -> np.ndarray:
    """Scores of the labels that were seen, in their columns among all."""
    if len(seen) == labels:
        return scores
    lowest = scores.min(1, keepdims=True) + NEVER
    wide = np.repeat(lowest, labels, 1)
    wide[:, seen] = scores
    return wide


def _constant(row: np.ndarray) -> Answering:
    return lambda features: np.repeat(row[None], features.shape[0], 0).astype(np.float64)


def _dense(x: Any) -> np.ndarray:
    return x.toarray() if hasattr(x, "toarray") else np.asarray(x)
