"""`fit_baseline`: fits simple models on the examples of a task and returns the best one.

    binary, multiclass   TF-IDF and logistic regression       regression   TF-IDF and ridge regression
    multilabel           one logistic regression a label      ordinal      ridge on the ranks, or logistic steps
    token                most frequent tag of each word        embedding    the cosine of TF-IDF vectors
    span                 words of the nearest sentence that are not in the question

A table whose rows became sentences gets a second baseline on the columns themselves. Features, model and regularisation
are chosen by cross-validation on training data. Large data are sampled for that choice by size, not by time, so that
the same data always give the same baseline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import GlassBertError, needs
from glassbert.finetuning.baseline.features import (
    Transform,
    column_features,
    cosine_vectors,
    letter_features,
    short_column_features,
    word_features,
)
from glassbert.finetuning.baseline.learners import (
    Learner,
    fit_binary,
    fit_multiclass,
    fit_multilabel,
    fit_ordinal_regression,
    fit_ordinal_thresholds,
    fit_regression,
    tree_learner,
)
from glassbert.finetuning.baseline.rules import TagCounts, overlap_answers
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import truth_of
from glassbert.finetuning.outcome import Outcome, probabilities
from glassbert.finetuning.scoring import compute_scores
from glassbert.metrics import Score, log_loss
from glassbert.tasks import TaskData, folds

MISSING = needs("the baseline", "scikit-learn")
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
LOSS_TOLERANCE = 0.01  # relative difference below which losses count as equal
FOLDS = 3
SELECTION_CHARACTERS, FIT_CHARACTERS = 500_000, 60_000_000  # limits on the text for model selection and for the fit
SELECTION_LABELS = 8  # multilabel: selection uses only the most frequent labels, because each costs a model

LINEAR: dict[str, dict[str, Learner]] = {
    "binary": {"logistic regression": fit_binary},
    "multiclass": {"logistic regression": fit_multiclass},
    "multilabel": {"a logistic regression for each label": fit_multilabel},
    "ordinal": {
        "ridge regression on the ranks": fit_ordinal_regression,
        "logistic regression for each step": fit_ordinal_thresholds,
    },
    "regression": {"ridge regression": fit_regression},
}
FEATURES: dict[str, Callable[[TaskData], Transform]] = {
    "TF-IDF of words": word_features,
    "TF-IDF of words and letters": letter_features,
    "the columns": column_features,
    "the columns but texts": short_column_features,
}


class BaselineMissing(GlassBertError):
    """No baseline can be fitted; the message gives the reason and the remedy."""


@dataclass(frozen=True)
class Baseline(Outcome):
    """The outcome of a simple model. `others` are the weaker baselines."""

    name: str = ""
    seconds: float = 0.0
    others: tuple[Baseline, ...] = ()

    def summary(self) -> dict[str, Any]:
        """As stored in task.json and result.json."""
        return {
            "name": self.name,
            "scores": self.scores.as_json(),
            "seconds": round(self.seconds, 2),
            **({"others": [other.summary() for other in self.others]} if self.others else {}),
        }


class Candidate(NamedTuple):
    """A combination of features and learner; `tuned`: whether its strength is selected by cross-validation."""

    features: str
    learner: str
    learn: Learner
    tuned: bool = True


def fit_baseline(train: TaskData, dev: TaskData, card: TaskCard, *, resamples: int = 0) -> Baseline:
    """The best simple model by `card.metric` on `dev`. Raises BaselineMissing."""
    card = card.uncalibrated
    groups = _candidates(train, card)
    if find_spec("sklearn") is None and (groups or card.head == "embedding"):
        raise BaselineMissing(MISSING)
    fitted = []
    for group in groups:
        start = time.perf_counter()
        candidate, strength = select_candidate(group, train, card)
        name = f"{candidate.features} + {candidate.learner}"
        sample = train.select(_sample(train, FIT_CHARACTERS))
        transform = FEATURES[candidate.features](sample)
        predict = candidate.learn(transform(sample), truth_of(sample, card), strength, max(2, len(card.labels)))
        fitted.append(_evaluated(name, predict(transform(dev)), dev, card, resamples, start))
    if not groups:
        start = time.perf_counter()
        name, outputs = _rule_outputs(train, dev, card)
        fitted.append(_evaluated(name, outputs, dev, card, resamples, start))
    fitted.sort(key=lambda baseline: _comparable(baseline.main, card), reverse=True)
    return replace(fitted[0], others=tuple(fitted[1:]))


def _candidates(train: TaskData, card: TaskCard) -> list[list[Candidate]]:
    """Groups of candidates; the best of each group becomes a baseline."""
    if card.head not in LINEAR:
        return []
    linear = LINEAR[card.head]
    tf_idf = [features for features in FEATURES if "TF-IDF" in features]
    groups = [[Candidate(features, name, learn) for name, learn in linear.items() for features in tf_idf]]
    if train.template is not None and train.pairs is None:
        groups.append(column_candidates(card))
    return groups


def column_candidates(card: TaskCard) -> list[Candidate]:
    """Models of the columns of a table: linear ones, and boosted trees."""
    trees = [Candidate("the columns but texts", "boosted trees", tree_learner(card.head), tuned=False)]
    linear = [Candidate("the columns", name, learn) for name, learn in LINEAR[card.head].items()]
    return linear + (trees if card.head != "multilabel" else [])


def select_candidate(group: Sequence[Candidate], train: TaskData, card: TaskCard) -> tuple[Candidate, float]:
    """The candidate and strength that are best in cross-validation on training rows.

    The strength is selected among those with about the lowest loss, because metrics on labels alone also favour
    overconfident models. Candidates compete by `card.metric`, each learner with its best features.
    """
    sample = train.select(_sample(train, SELECTION_CHARACTERS))
    if len(sample) < 2 * FOLDS:
        return group[0], 1.0
    answers: Callable[[TaskData], Any] = partial(truth_of, card=card)
    if card.head == "multilabel" and len(card.labels) > SELECTION_LABELS:
        frequent = np.sort(np.argsort(-truth_of(sample, card).sum(0), kind="stable")[:SELECTION_LABELS])
        whole, card = card, card.replace(labels=[card.labels[i] for i in frequent], label_names=())
        answers = lambda data: truth_of(data, whole)[:, frequent]  # noqa: E731
    parts = [(left, held, answers(left), answers(held)) for left, held in folds(sample, FOLDS)]
    truth = np.concatenate([held for *_, held in parts])
    matrices: dict[str, list[tuple[Any, Any]]] = {}

    @cache
    def evaluate(candidate: Candidate, strength: float) -> tuple[float, float]:
        """The metric and the negative loss; higher is better for both."""
        if candidate.features not in matrices:
            transforms = [(FEATURES[candidate.features](left), left, held) for left, held, *_ in parts]
            matrices[candidate.features] = [(transform(left), transform(held)) for transform, left, held in transforms]
        outputs = [
            candidate.learn(x, y, strength, max(2, len(card.labels)))(x_held)
            for (x, x_held), (_, _, y, _) in zip(matrices[candidate.features], parts, strict=True)
        ]
        joined = np.concatenate(outputs)
        return _comparable(compute_scores(joined, truth, card)[card.metric], card), -output_loss(joined, truth, card)

    learners = dict.fromkeys(candidate.learner for candidate in group)
    best_features = [
        max((c for c in group if c.learner == name), key=lambda c: evaluate(c, 1.0)[0]) for name in learners
    ]
    tuned = [(c, _best_strength(partial(evaluate, c)) if c.tuned else 1.0) for c in best_features]
    return max(tuned, key=lambda choice: evaluate(*choice)[0])


def _best_strength(evaluate: Callable[[float], tuple[float, float]]) -> float:
    """Search from 1.0 up or down while the loss falls; among losses within `LOSS_TOLERANCE`, the best metric wins."""
    index = STRENGTHS.index(1.0)
    step = 1 if evaluate(STRENGTHS[index + 1])[1] >= evaluate(STRENGTHS[index - 1])[1] else -1
    evaluated = {strength: evaluate(strength) for strength in STRENGTHS[index - 1 : index + 2]}
    while 0 <= index + step < len(STRENGTHS) and evaluate(STRENGTHS[index + step])[1] > evaluate(STRENGTHS[index])[1]:
        index += step
        ahead = STRENGTHS[min(max(index + step, 0), len(STRENGTHS) - 1)]
        evaluated[ahead] = evaluate(ahead)
    lowest = max(loss for _, loss in evaluated.values())
    close = [strength for strength, (_, loss) in evaluated.items() if loss >= lowest - LOSS_TOLERANCE * abs(lowest)]
    return max(close, key=lambda strength: evaluate(strength)[0])


def output_loss(outputs: np.ndarray, truth: np.ndarray, card: TaskCard) -> float:
    """The loss for selecting the strength: log loss, or squared error for numbers."""
    probs = probabilities(outputs, card)
    if probs is None:
        return float(np.mean((outputs - truth) ** 2))
    if card.head == "multilabel":
        truth, probs = truth.reshape(-1).astype(np.int64), probs.reshape(-1)
    return float(log_loss(truth, probs))


def _rule_outputs(train: TaskData, dev: TaskData, card: TaskCard) -> tuple[str, Any]:
    if card.head == "token":
        assert train.words is not None and dev.words is not None
        counts = TagCounts(train.words, truth_of(train, card), len(card.labels))
        return "each word's most frequent tag", [counts.scores(words) for words in dev.words]
    if card.head == "embedding":
        if dev.pairs is None:
            raise BaselineMissing("no baseline: an embedding baseline needs pairs of texts")
        return "the cosine of TF-IDF vectors", cosine_vectors(train, dev, scored=dev.targets is not None)
    if card.head == "span":
        return "the words of the nearest sentence that the question lacks", overlap_answers(dev)
    raise BaselineMissing(f"no baseline exists for a {card.head} head")


def _evaluated(name: str, outputs: Any, dev: TaskData, card: TaskCard, resamples: int, start: float) -> Baseline:
    truth = truth_of(dev, card)
    scores = compute_scores(outputs, truth, card, resamples=resamples)
    return Baseline(card, dev, truth, outputs, scores, name, time.perf_counter() - start)


def _comparable(score: Score, card: TaskCard) -> float:
    """The score, negated if lower is better; -inf for an undefined score."""
    if score.value is None:
        return -np.inf
    return score.value if card.main_metric.higher_is_better else -score.value


def _sample(data: TaskData, characters: int) -> np.ndarray:
    """Sorted random rows with about this many characters in total; all rows if they fit."""
    lengths = np.array([len(text) for text in data.texts])
    if data.pairs is not None:
        lengths = lengths + np.array([len(text) for text in data.pairs])
    if lengths.sum() <= characters:
        return np.arange(len(data))
    order = np.random.default_rng(0).permutation(len(data))
    fits = np.cumsum(lengths[order]) <= characters
    return np.sort(order[: max(int(fits.sum()), min(len(data), 100))])
