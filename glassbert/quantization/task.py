"""The model's own task: what is measured before and after quantisation.

    judged        a fine-tuned model on examples with true answers: its own metric
    words         a language model on held-out text: masked words (or next ones) that are the first choice
    similarities  a model of vectors: do its cosines of texts stay what they were?
    agreement     a fine-tuned model on texts without answers: how often the answer stays the same

`answers` runs a model; `compare` gives the scores of two models with intervals, and their difference on the same
resamples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.evaluation.held_out import published_masks, target_positions
from glassbert.evaluation.masked import blocks, score
from glassbert.finetuning.examples import truth_of
from glassbert.finetuning.outcome import choices
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.scoring import MetricInputs, batches_longest_first, score_examples
from glassbert.metrics import METRICS, Undefined, pearson
from glassbert.metrics.intervals import Interval, bootstrap, paired_difference
from glassbert.models.model import Model
from glassbert.quantization.calibration import BATCH, Inputs, text_batches
from glassbert.tasks import TaskData
from glassbert.text.tokenizer import Tokenizer

RESAMPLES = 1_000
LENGTH = 128
PAIRS = 2_000  # pairs of texts whose cosines are compared
FEWEST = 8  # examples for calibration and costs, however long they are
ANSWERS = ("labels", "scores")


@dataclass(frozen=True)
class Compared:
    """A score of the float model and of the quantised one, and what was lost, each with its interval.

    `loss` is above 0 where the quantised model is worse. An interval is None where resamples show none.
    """

    name: str
    before: float
    after: float
    before_interval: tuple[float, float] | None
    after_interval: tuple[float, float] | None
    loss: float
    loss_interval: tuple[float, float] | None
    examples: int

    def as_json(self) -> dict[str, Any]:
        return {
            "metric": self.name,
            "float": {"value": self.before, "interval": self.before_interval},
            "quantized": {"value": self.after, "interval": self.after_interval},
            "loss": {"value": self.loss, "interval": self.loss_interval},
            "examples": self.examples,
        }


class OwnTask(ABC):
    """What a model is measured on."""

    what: str  # a sentence for the report
    name: str  # of the metric

    @abstractmethod
    def batches(self, count: int, length: int) -> list[Inputs]:
        """Inputs for calibration and costs: so many examples, evenly over all, of about `length` tokens each."""

    @abstractmethod
    def half(self, which: int) -> OwnTask:
        """The task with every second example: the even ones (0) or the odd ones (1)."""

    @abstractmethod
    def answers(self, model: Model) -> Any: ...

    @abstractmethod
    def compare(self, before: Any, after: Any) -> Compared: ...

    def further(self, before: Any, after: Any) -> list[Compared]:
        """Scores to report besides the main one."""
        return []

    def loss(self, before: Any, after: Any) -> float:
        return self.compare(before, after).loss


def spread(values: Any, count: int) -> Any:
    """So many values, evenly over the list."""
    return values[:: max(1, len(values) // count)][:count]


def _compared(
    name: str, metric: Callable[..., Any], truth: Any, before: Any, after: Any, higher: bool, count: int
) -> Compared:
    scores = [_with_interval(bootstrap, metric, truth, one) for one in (before, after)]
    lost = _with_interval(paired_difference, metric, truth, before, after)
    value = float(metric(truth, before) - metric(truth, after))
    sign = 1.0 if higher else -1.0
    bounds = None if lost is None else (min(sign * lost.low, sign * lost.high), max(sign * lost.low, sign * lost.high))
    intervals = [None if one is None else (one.low, one.high) for one in scores]
    return Compared(
        name, float(metric(truth, before)), float(metric(truth, after)), intervals[0], intervals[1], sign * value,
        bounds, count,
    )  # fmt: skip


def _with_interval(function: Callable[..., Any], *columns: Any) -> Interval | None:
    try:
        return function(*columns, resamples=RESAMPLES)
    except Undefined:
        return None


class Encoded(OwnTask):
    """Examples as the task card of a fine-tuned model encodes them: texts, pairs, rows of a table."""

    def __init__(self, predictor: Predictor, data: TaskData, source: str):
        if not len(data):
            raise InputError(f"{source} has no examples to measure the model on")
        self.predictor, self.data, self.source = predictor, data, source
        self.examples = predictor.encode(data)
        self.card = self.examples.card

    def half(self, which: int) -> OwnTask:
        return type(self)(self.predictor, self.data.select(range(which, len(self.data), 2)), self.source)

    def batches(self, count: int, length: int) -> list[Inputs]:
        lengths = self.examples.lengths
        some = spread(np.arange(len(lengths)), min(count, max(FEWEST, int(count * length / lengths.mean()))))
        return [
            {name: values for name, values in self.examples.inputs(some[units]).items() if name not in ANSWERS}
            for units in batches_longest_first(lengths[some], BATCH * length)
        ]

    def answers(self, model: Model) -> Any:
        return score_examples(model, self.examples)


class Judged(Encoded):
    """Examples with true answers."""

    def __init__(self, predictor: Predictor, data: TaskData, source: str):
        self.truth = truth_of(data, predictor.card) if len(data) else None
        if self.truth is None:
            raise InputError(f"{source} has no examples with answers to measure the model on")
        super().__init__(predictor, data, source)
        self.name = self.card.metric
        self.what = f"{self.name} on {len(data):,} examples of {source}"

    def compare(self, before: Any, after: Any) -> Compared:
        return self._score(self.name, before, after)

    def further(self, before: Any, after: Any) -> list[Compared]:
        classes = self.card.head in ("binary", "multiclass") and self.name != "accuracy"
        return [self._score("accuracy", before, after)] if classes else []

    def _score(self, name: str, before: Any, after: Any) -> Compared:
        inputs = [MetricInputs(outputs, self.truth, self.card).for_metric(name) for outputs in (before, after)]
        (metric, truth, first), (_, _, second) = inputs
        return _compared(name, metric, truth, first, second, METRICS[name].higher_is_better, len(self.data))


class Agreement(Encoded):
    """Texts without answers: the share that gets the same answer, or how close numbers are."""

    def __init__(self, predictor: Predictor, data: TaskData, source: str):
        super().__init__(predictor, data, source)
        counted = self.card.head in ("binary", "multiclass", "ordinal", "span")
        self.name = "same answers" if counted else "correlation of outputs"
        self.what = f"{self.name} on {len(data):,} texts of {source}, compared with the model before"

    def compare(self, before: Any, after: Any) -> Compared:
        if self.name == "same answers":
            first, second = (np.asarray(choices(one, self.card)) for one in (before, after))
            same = (first == second).astype(np.int64)
            return _compared(
                self.name, METRICS["accuracy"].function, np.ones_like(same), np.ones_like(same), same, True, len(same)
            )
        first, second = (np.concatenate([np.ravel(one) for one in outputs]) for outputs in (before, after))
        return _compared(self.name, pearson, first, first, second, True, len(first))


class Similarities(Encoded):
    """Cosines of pairs of texts, compared with those of the model before: their correlation."""

    name = "agreement of similarities"

    def __init__(self, predictor: Predictor, texts: Sequence[str], source: str):
        different = list(dict.fromkeys(text for text in texts if text.strip()))
        if len(different) < 3:
            raise InputError(f"{source} has fewer than three different texts, so there are no similarities to compare")
        super().__init__(predictor, predictor.read(different), source)
        generator = np.random.default_rng(0)
        first = generator.integers(0, len(different), PAIRS)
        second = (first + generator.integers(1, len(different), PAIRS)) % len(different)
        self.pairs = first, second
        self.what = f"cosines of {PAIRS:,} pairs of {len(different):,} texts of {source}"

    def half(self, which: int) -> OwnTask:
        return Similarities(self.predictor, self.data.texts[which::2], self.source)

    def answers(self, model: Model) -> Any:
        vectors = np.asarray(super().answers(model), np.float64)
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
        first, second = self.pairs
        return (vectors[first] * vectors[second]).sum(1)

    def compare(self, before: Any, after: Any) -> Compared:
        return _compared(self.name, pearson, before, before, after, True, len(before))


class Words(OwnTask):
    """Held-out text: the share of missing words that are the first choice."""

    name = "accuracy of words"

    def __init__(self, model: Model, tokenizer: Tokenizer, texts: Sequence[str], source: str):
        self.model, self.tokenizer, self.texts, self.source = model, tokenizer, list(texts), source
        length = min(LENGTH, model.config.max_length)
        self.next = model.head is not None and "causal" in model.head.parts
        rows = []
        for encoded in tokenizer.encode_batch(self.texts):
            ids = np.asarray(encoded.ids, np.int32)
            rows.append(ids if len(ids) <= length else np.append(ids[: length - 1], ids[-1:]))
        rows = [row for row in rows if len(row) > 2]
        self.blocks = []
        for block in blocks(rows):
            if self.next:
                masked, labels = block.ids, np.full(block.ids.shape, -100)
                labels[:, :-2] = block.ids[:, 1:-1]
            else:
                masked, labels = published_masks(block.ids, tokenizer)
            where = target_positions(labels)
            if len(where):
                self.blocks.append((np.asarray(masked, np.int64), where, labels.reshape(-1)[where].astype(np.int64)))
        self.count = sum(len(where) for _, where, _ in self.blocks)
        if not self.count:
            raise InputError(f"{source} has no text of which a word could be predicted")
        kind = "next" if self.next else "masked"
        self.what = f"{self.count:,} {kind} words of {source}"

    def batches(self, count: int, length: int) -> list[Inputs]:
        return text_batches(self.model, self.tokenizer, spread(self.texts, count), length)

    def half(self, which: int) -> OwnTask:
        return Words(self.model, self.tokenizer, self.texts[which::2], self.source)

    def answers(self, model: Model) -> Any:
        found = [score(model, ids, where, targets) for ids, where, targets in self.blocks]
        right = np.concatenate([one.rank == 0 for one in found]).astype(np.int64)
        return right, -np.concatenate([one.log_probability for one in found])

    def compare(self, before: Any, after: Any) -> Compared:
        truth = np.ones(self.count, np.int64)
        accuracy = METRICS["accuracy"].function
        return _compared(self.name, accuracy, truth, before[0], after[0], True, self.count)

    def further(self, before: Any, after: Any) -> list[Compared]:
        """The mean -log p of the words."""
        return [_compared("loss", _mean, np.zeros(self.count), before[1], after[1], False, self.count)]


def _mean(truth: Any, values: Any, weights: Any = None) -> Any:
    if weights is None:
        return float(np.mean(values))
    weights = np.asarray(weights, np.float64)
    return (weights @ np.asarray(values, np.float64)) / weights.sum(-1)
