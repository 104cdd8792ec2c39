"""Outputs of a model on examples, and their scores.

    outputs = score_examples(model, examples)
    scores = compute_scores(outputs, examples.truth, card)

Forward only, without dropout, in batches of rows of similar length. The logits of the windows of one text are averaged.
A word in several windows uses the window in which it is farthest from an edge.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from glassbert.errors import InputError, NotFinite
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import Examples
from glassbert.finetuning.outcome import choices, probabilities
from glassbert.finetuning.ranks import cross_fitted_ranks
from glassbert.finetuning.rows import Progress
from glassbert.finetuning.tags import marks_spans
from glassbert.metrics import METRICS, Scores, Undefined, get_metric, log_loss, tune_thresholds
from glassbert.metrics.inputs import as_weights, check_lengths
from glassbert.models.model import Model
from glassbert.training.evaluate import evaluation_mode

BATCH_TOKENS = 8_192
LITTLE_PADDING = 0.08  # of a batch: computing that much takes less time than leaving it out
COMPILED_MULTIPLE = 16  # row lengths on an engine that compiles: fewer lengths, fewer compilations
# The metrics of each head, besides `card.metric`.
HEAD_METRICS: dict[str, tuple[str, ...]] = {
    "binary": ("accuracy", "auc", "f1", "average_precision", "matthews", "log_loss", "brier", "ece"),
    "multiclass": ("accuracy", "macro_f1", "log_loss", "ece"),
    "ordinal": ("quadratic_kappa", "mae", "accuracy", "log_loss"),
    "multilabel": ("micro_f1", "macro_f1", "accuracy"),
    "regression": ("rmse", "mae", "pearson", "spearman", "r2"),
    "token": ("accuracy",),
    "span": ("exact_match", "answer_f1"),
    "embedding": ("spearman", "pearson"),
}
SPAN_METRICS = ("span_f1", "span_precision", "span_recall")  # for BIO tags


def score_examples(
    model: Model, examples: Examples, *, batch_tokens: int = BATCH_TOKENS, progress: Progress | None = None
) -> Any:
    """Raw outputs for every example, of the shapes in the table of `glassbert.finetuning.outcome`."""
    return join_rows(model, examples, row_outputs(model, examples, batch_tokens=batch_tokens, progress=progress))


def join_rows(model: Model, examples: Examples, rows: list[np.ndarray]) -> Any:
    """Outputs of examples from those of their rows: the windows of a text are one example."""
    head = examples.card.head
    if head == "token":
        assert examples.pieces is not None
        return examples.pieces.to_words(rows)
    if head == "span":
        return _best_spans(examples, rows)
    values = np.stack(rows) if rows else np.zeros((0, 1))
    if head == "embedding":
        return values.reshape(len(examples), 2, -1) if examples.group == 2 else values
    owners = examples.rows.owners
    sums = np.add.reduceat(values, np.searchsorted(owners, np.arange(len(examples))), axis=0)
    means = sums / np.bincount(owners, minlength=len(examples))[:, None]
    if head == "regression":
        assert model.head is not None
        means = model.head.decode(means)
    return means[:, 0] if head in ("binary", "regression") else means


def row_outputs(
    model: Model, examples: Any, *, batch_tokens: int = BATCH_TOKENS, progress: Progress | None = None
) -> list[np.ndarray]:
    """The output of the head for every row, float64, without padding. `examples` has `lengths`, `group`, `inputs`."""
    lengths = examples.lengths
    rows: list[Any] = [None] * (len(lengths) * examples.group)
    multiple = COMPILED_MULTIPLE if model.engine.compiles else 1
    multiple = min(multiple, model.config.max_length)
    done = 0
    with evaluation_mode(model):
        for units in batches_longest_first(lengths, batch_tokens // examples.group):
            batch = {
                name: values
                for name, values in examples.inputs(units, multiple).items()
                if name not in ("labels", "scores")
            }
            mask = batch["attention_mask"]
            skip = 1 - mask.sum() / mask.size > LITTLE_PADDING
            output = model.engine.to_numpy(model.predict(**batch, skip_padding=bool(skip))).astype(np.float64)
            require_finite(output)
            members = (units[:, None] * examples.group + np.arange(examples.group)).reshape(-1)
            real = mask.sum(1)
            for index, row in enumerate(members.tolist()):
                rows[row] = _without_padding(output[index], int(real[index]), examples.card.head)
            done += len(units)
            if progress is not None:
                progress(done, len(lengths))
    return rows


def require_finite(output: np.ndarray) -> None:
    """Raise if a score is NaN or infinite: no answer can be given from it."""
    if not np.isfinite(output).all():
        raise NotFinite(
            "the model's scores are not finite, so it has no answers: its weights are damaged or diverged in training "
            "(a lower --learning-rate avoids that); `glassbert verify` compares its files with their checksums"
        )


def batches_longest_first(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """All units, the longest first, in batches whose padded size is at most `batch_tokens`."""
    order, batches, begin = np.argsort(-lengths, kind="stable"), [], 0
    while begin < len(order):
        end = begin + max(1, batch_tokens // int(lengths[order[begin]]))
        batches.append(order[begin:end])
        begin = end
    return batches


def _without_padding(output: np.ndarray, length: int, head: str) -> np.ndarray:
    if head == "token":
        return output[:length]
    return output[:, :length] if head == "span" else output


def _best_spans(examples: Examples, rows: list[np.ndarray]) -> list[Any]:
    assert examples.spans is not None
    edges = np.searchsorted(examples.rows.owners, np.arange(len(examples) + 1)).tolist()
    return [examples.spans.best(rows, i, range(edges[i], edges[i + 1])) for i in range(len(examples))]


# ---- scores ----------------------------------------------------------------------------------------------------


def compute_scores(outputs: Any, truth: Any, card: TaskCard, *, resamples: int = 0, seed: int = 0) -> Scores:
    """All metrics of the head, `card.metric` first; with `resamples` each has a bootstrap interval.

    If a multilabel card has no thresholds, or a card of ranks no cuts, they are tuned on the other half of the
    examples: tuned on the same examples they would look better than they are.
    """
    if truth is None:
        return retrieval_scores(outputs, card, resamples=resamples, seed=seed)
    columns = MetricInputs(outputs, truth, card)
    names = dict.fromkeys((card.metric, *HEAD_METRICS[card.head], *(SPAN_METRICS if marks_spans(card) else ())))
    scores = Scores()
    for name in names:
        function, *pair = columns.for_metric(name)
        scores.add(name, function, *pair, resamples=resamples, seed=seed)
    return scores


def choice_loss(outputs: Any, truth: Any, card: TaskCard) -> float | None:
    """The loss that decides between equal scores: log loss, or squared error; None where there is neither."""
    if truth is None or card.head == "span":
        return None
    probs = probabilities(outputs, card)
    try:
        if probs is None:
            return float(np.mean((np.asarray(choices(outputs, card), np.float64) - truth) ** 2))
        if card.head == "token":
            return float(log_loss(np.concatenate(truth), np.concatenate(probs)))
        if card.head == "multilabel":
            return float(log_loss(np.asarray(truth).reshape(-1).astype(np.int64), probs.reshape(-1)))
        return float(log_loss(truth, probs))
    except Undefined:
        return None


def retrieval_scores(outputs: Any, card: TaskCard, *, resamples: int = 0, seed: int = 0) -> Scores:
    """For pairs without scores: the share of texts whose partner is the nearest of all partners."""
    if not card.embeds_pairs:
        raise InputError("there are no targets to score the predictions with; name their column with --target")
    vectors = np.asarray(outputs, np.float64)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    nearest = (vectors[:, 0] @ vectors[:, 1].T).argmax(1)
    scores = Scores()
    scores.add(
        "accuracy", METRICS["accuracy"].function, np.arange(len(nearest)), nearest, resamples=resamples, seed=seed
    )
    return scores


class MetricInputs:
    """Truth and predictions in the form that each kind of metric takes."""

    def __init__(self, outputs: Any, truth: Any, card: TaskCard):
        self.outputs, self.truth, self.card = outputs, truth, card
        self.chosen = choices(outputs, card)
        if card.head == "multilabel":
            self.truth = np.asarray(truth).astype(np.int64)
            if card.thresholds is None:
                self.chosen = cross_fitted_labels(self.truth, probabilities(outputs, card))
        if card.needs_cuts and card.cuts is None:
            self.chosen = cross_fitted_ranks(np.asarray(truth), probabilities(outputs, card))

    def for_metric(self, name: str) -> tuple[Callable[..., Any], Any, Any]:
        metric, card = get_metric(name), self.card
        if metric.takes == "tags":
            return metric.function, self._tags(self.truth), self._tags(self.chosen)
        if metric.takes == "probabilities":
            probs = probabilities(self.outputs, card)
            if probs is None or card.head == "token":
                raise InputError(f"{name} needs probabilities of whole texts, which the {card.head} head does not have")
            return metric.function, self.truth, probs
        if card.head == "token":
            return partial(_word_metric, metric.function), self.truth, self.chosen
        return metric.function, self.truth, self.chosen

    def _tags(self, sentences: Any) -> list[list[str]]:
        return [[self.card.labels[int(tag)] for tag in tags] for tags in sentences]


def cross_fitted_labels(truth: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Labels [N, L] of even rows with thresholds tuned on odd rows, and the reverse."""
    chosen = np.zeros(truth.shape, np.int64)
    for half in (slice(0, None, 2), slice(1, None, 2)):
        others = slice(1 - half.start, None, 2)
        if len(truth[others]):
            chosen[half] = tune_thresholds(truth[others], scores[others]).apply(scores[half])
    return chosen


def _word_metric(metric: Callable[..., Any], truth: Any, predicted: Any, weights: Any = None) -> Any:
    """A metric over the words of all sentences. `weights` are per sentence: resamples draw whole sentences."""
    check_lengths(truth=truth, predicted=predicted)
    if metric is METRICS["accuracy"].function:  # counted by sentence first, which makes resamples fast
        counts = np.array([len(tags) for tags in truth], np.float64)
        right = np.array([(np.asarray(a) == np.asarray(b)).sum() for a, b in zip(truth, predicted, strict=True)])
        weights = as_weights(weights, len(counts))
        shares = (weights @ right) / np.maximum(weights @ counts, 1.0)
        return float(shares) if np.ndim(shares) == 0 else shares
    if weights is not None:
        weights = np.repeat(as_weights(weights, len(truth)), [len(tags) for tags in truth], axis=-1)
    return metric(np.concatenate(truth), np.concatenate(predicted), weights=weights)
