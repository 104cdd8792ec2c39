"""A baseline for every task, fitted in the same run: what would a simple model have reached?

    binary, multiclass   TF-IDF and logistic regression       regression   TF-IDF and ridge regression
    multilabel           one logistic regression a label      ordinal      ridge on the ranks, or logistic steps
    token                each word's most frequent tag        embedding    the cosine of TF-IDF vectors
    span                 the odd words of the nearest sentence

A table whose rows became sentences gets a second one, which sees the columns themselves. The baseline must be a fair
opponent: whether runs of letters help, which model and how freely it may follow its data are chosen by cross-validation
on training data. Large data are sampled for that choice, by size and not by the clock, so that the same data give the
same baseline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import GlassBertError
from glassbert.finetuning.answers import probabilities
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
    learn_classes,
    learn_each_label,
    learn_number,
    learn_ranks_as_numbers,
    learn_ranks_by_steps,
    learn_yes_or_no,
    tree_learner,
)
from glassbert.finetuning.baseline.spans import odd_words
from glassbert.finetuning.baseline.tags import TagCounts
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import truth_of
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.scoring import judge
from glassbert.metrics import Score, log_loss
from glassbert.tasks import TaskData, folds

MISSING = (
    "there is no baseline to compare with: it needs scikit-learn. "
    'Run `pip install "glassbert[tasks]"` and fine-tune again'
)
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
ABOUT = 0.01  # losses this near to each other are alike
FOLDS = 3
CHOOSING, FITTING = 500_000, 60_000_000  # characters of text that the choice, and the fit, look at
LABELS_ASKED = 8  # of many labels, each of which costs a model, the choice looks at the most frequent ones

LINEAR: dict[str, dict[str, Learner]] = {
    "binary": {"logistic regression": learn_yes_or_no},
    "multiclass": {"logistic regression": learn_classes},
    "multilabel": {"a logistic regression for each label": learn_each_label},
    "ordinal": {
        "ridge regression on the ranks": learn_ranks_as_numbers,
        "logistic regression for each step": learn_ranks_by_steps,
    },
    "regression": {"ridge regression": learn_number},
}
FEATURES: dict[str, Callable[[TaskData], Transform]] = {
    "TF-IDF of words": word_features,
    "TF-IDF of words and letters": letter_features,
    "the columns": column_features,
    "the columns but texts": short_column_features,
}


class BaselineMissing(GlassBertError):
    """No baseline could be fitted; the message says why and what to do."""


@dataclass(frozen=True)
class Baseline(Outcome):
    """What a simple model did. `others` are weaker ones that were fitted beside it."""

    name: str = ""
    seconds: float = 0.0
    others: tuple[Baseline, ...] = ()

    def summary(self) -> dict[str, Any]:
        """For the card and result.json."""
        return {
            "name": self.name,
            "scores": self.scores.as_json(),
            "seconds": round(self.seconds, 2),
            **({"others": [other.summary() for other in self.others]} if self.others else {}),
        }


class Way(NamedTuple):
    """One way of answering: what is seen, what learns from it, and whether its freedom has to be chosen."""

    features: str
    learner: str
    learn: Learner
    chosen: bool = True


def fit_baseline(
    train: TaskData, dev: TaskData, card: TaskCard, *, resamples: int = 0, tell: Callable[[str], None] | None = None
) -> Baseline:
    """The strongest of the simple models, judged on `dev` as the card judges ours; raises BaselineMissing."""
    tell = tell or (lambda _: None)
    card = card.replace(temperature=None, thresholds=None)
    ways = _ways(train, card)
    if find_spec("sklearn") is None and (ways or card.head == "embedding"):
        raise BaselineMissing(MISSING)
    fitted = []
    for group in ways:
        begun = time.perf_counter()
        way, strength = _choose(group, train, card, tell)
        name = f"{way.features} + {way.learner}"
        tell(name)
        sample = train.select(_sample(train, FITTING))
        transform = FEATURES[way.features](sample)
        learnt = way.learn(transform(sample), truth_of(sample, card), strength, max(2, len(card.labels)))
        fitted.append(_judged(name, learnt(transform(dev)), dev, card, resamples, begun))
    if not ways:
        begun = time.perf_counter()
        name, outputs = _without_features(train, dev, card)
        fitted.append(_judged(name, outputs, dev, card, resamples, begun))
    fitted.sort(key=lambda one: _merit(one.main, card), reverse=True)
    return replace(fitted[0], others=tuple(fitted[1:]))


def _ways(train: TaskData, card: TaskCard) -> list[list[Way]]:
    """Groups of ways; of each group the best is a baseline."""
    if card.head not in LINEAR:
        return []
    linear = LINEAR[card.head]
    groups = [[Way(see, name, learn) for name, learn in linear.items() for see in FEATURES if "TF-IDF" in see]]
    if train.template is not None and train.pairs is None:
        trees = [Way("the columns but texts", "boosted trees", tree_learner(card.head), chosen=False)]
        groups.append([Way("the columns", name, learn) for name, learn in linear.items()])
        groups[-1] += trees if card.head != "multilabel" else []
    return groups


def _choose(group: Sequence[Way], train: TaskData, card: TaskCard, tell: Callable[[str], None]) -> tuple[Way, float]:
    """The way and the strength that do best on training rows they have not seen.

    The strength is one whose probabilities (or numbers) lose about the least: metrics that only look at answers also
    like models that are much too sure. Ways compete by the card's own metric, each learner with its best features.
    """
    sample = train.select(_sample(train, CHOOSING))
    if len(sample) < 2 * FOLDS:
        return group[0], 1.0
    answers: Callable[[TaskData], Any] = partial(truth_of, card=card)
    if card.head == "multilabel" and len(card.labels) > LABELS_ASKED:
        asked = np.sort(np.argsort(-truth_of(sample, card).sum(0), kind="stable")[:LABELS_ASKED])
        whole, card = card, card.replace(labels=[card.labels[i] for i in asked], label_names=())
        answers = lambda data: truth_of(data, whole)[:, asked]  # noqa: E731
    parts = [(left, held, answers(left), answers(held)) for left, held in folds(sample, FOLDS)]
    truth = np.concatenate([held for *_, held in parts])
    seen: dict[str, list[tuple[Any, Any]]] = {}

    @cache
    def tried(way: Way, strength: float) -> tuple[float, float]:
        """The metric and the loss, higher is better for both."""
        tell(f"choosing: {way.features} + {way.learner}, strength {strength:g}")
        if way.features not in seen:
            transforms = [(FEATURES[way.features](left), left, held) for left, held, *_ in parts]
            seen[way.features] = [(transform(left), transform(held)) for transform, left, held in transforms]
        outputs = [
            way.learn(x, y, strength, max(2, len(card.labels)))(x_held)
            for (x, x_held), (_, _, y, _) in zip(seen[way.features], parts, strict=True)
        ]
        joined = np.concatenate(outputs)
        return _merit(judge(joined, truth, card)[card.metric], card), -_loss(joined, truth, card)

    learners = dict.fromkeys(way.learner for way in group)
    seeing = [max((w for w in group if w.learner == name), key=lambda way: tried(way, 1.0)[0]) for name in learners]
    tuned = [(way, _best_strength(partial(tried, way)) if way.chosen else 1.0) for way in seeing]
    return max(tuned, key=lambda choice: tried(*choice)[0])


def _best_strength(tried: Callable[[float], tuple[float, float]]) -> float:
    """From the middle up or down as long as the loss falls; of those that lose about the least, the best by metric."""
    place = STRENGTHS.index(1.0)
    step = 1 if tried(STRENGTHS[place + 1])[1] >= tried(STRENGTHS[place - 1])[1] else -1
    looked = {STRENGTHS[place + way]: tried(STRENGTHS[place + way]) for way in (-1, 0, 1)}
    while 0 <= place + step < len(STRENGTHS) and tried(STRENGTHS[place + step])[1] > tried(STRENGTHS[place])[1]:
        place += step
        ahead = STRENGTHS[min(max(place + step, 0), len(STRENGTHS) - 1)]
        looked[ahead] = tried(ahead)
    least = max(loss for _, loss in looked.values())
    near = [strength for strength, (_, loss) in looked.items() if loss >= least - ABOUT * abs(least)]
    return max(near, key=lambda strength: tried(strength)[0])


def _loss(outputs: np.ndarray, truth: np.ndarray, card: TaskCard) -> float:
    """What the choice of the strength goes by: the log loss, or the squared error of numbers."""
    chances = probabilities(outputs, card)
    if chances is None:
        return float(np.mean((outputs - truth) ** 2))
    if card.head == "multilabel":
        truth, chances = truth.reshape(-1).astype(np.int64), chances.reshape(-1)
    return float(log_loss(truth, chances))


def _without_features(train: TaskData, dev: TaskData, card: TaskCard) -> tuple[str, Any]:
    if card.head == "token":
        assert train.words is not None and dev.words is not None
        counts = TagCounts(train.words, truth_of(train, card), len(card.labels))
        return "each word's most frequent tag", [counts.scores(words) for words in dev.words]
    if card.head == "embedding":
        if dev.pairs is None:
            raise BaselineMissing("there is no baseline to compare with: it needs pairs of texts")
        return "the cosine of TF-IDF vectors", cosine_vectors(train, dev, scored=dev.targets is not None)
    if card.head == "span":
        return "the odd words of the nearest sentence", odd_words(dev)
    raise BaselineMissing(f"there is no baseline for a {card.head} head")


def _judged(name: str, outputs: Any, dev: TaskData, card: TaskCard, resamples: int, begun: float) -> Baseline:
    truth = truth_of(dev, card)
    scores = judge(outputs, truth, card, resamples=resamples)
    return Baseline(card, dev, truth, outputs, scores, name, time.perf_counter() - begun)


def _merit(score: Score, card: TaskCard) -> float:
    """Higher is better, and a score that does not exist is worst."""
    if score.value is None:
        return -np.inf
    return score.value if card.main_metric.higher_is_better else -score.value


def _sample(data: TaskData, characters: int) -> np.ndarray:
    """Rows drawn at random, in their order, that hold about so many characters together; all of them if they fit."""
    lengths = np.array([len(text) for text in data.texts])
    if data.pairs is not None:
        lengths = lengths + np.array([len(text) for text in data.pairs])
    if lengths.sum() <= characters:
        return np.arange(len(data))
    order = np.random.default_rng(0).permutation(len(data))
    within = np.cumsum(lengths[order]) <= characters
    return np.sort(order[: max(int(within.sum()), min(len(data), 100))])
