"""The suite "transfer": accuracy on a labelled task with frozen features and after fine-tuning.

Frozen: a text is the mean of its token states, and logistic regression (solved to its minimum) classifies it, from the
last layer and from all layers. The same with random weights is the baseline. Fine-tuning trains the encoder too, with
several seeds, because the result of one seed is noisy. Long texts are read in windows.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.evaluation.encoding import OnProgress, states_of_all
from glassbert.evaluation.measures import Measure, estimate, mean
from glassbert.evaluation.probes.features import Features
from glassbert.evaluation.probes.minimise import Minimum
from glassbert.evaluation.probes.softmax_regression import choose_l2, fit_linear
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options, SuiteResult, Table, suite
from glassbert.finetuning.run import FineTuned, finetune
from glassbert.finetuning.seeds import Spread
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.reports import share
from glassbert.tasks.data import TaskData
from glassbert.tasks.ready import ready_task
from glassbert.tasks.windows import cut_windows
from glassbert.training.display import Display, NoDisplay

TASK = "sst2"
QUICK_TEXTS, TEXTS = 3_000, 15_000  # for frozen features; all in a thorough evaluation
SEEDS = 3  # of a thorough evaluation; the usual one has a single seed and two epochs
EPOCHS = 2
MAX_FLOPS, THOROUGH_FLOPS = 1.7e13, 2e14  # of all fine-tunings: 3 minutes, half an hour at 100 GFLOP/s
FROZEN_SHARE = 0.3  # of the time of the suite, before the fine-tuning
L2_TEXTS = 10_000  # texts for the choice of λ
CLASSES = ("binary", "multiclass", "ordinal")


@dataclass(frozen=True)
class FrozenResult:
    """A linear classifier on mean-pooled texts: its answers and the true labels of dev."""

    view: str
    answers: np.ndarray
    truth: np.ndarray
    minimum: Minimum
    l2: float


def text_vectors(
    subject: Subject, texts: Sequence[str], pairs: Sequence[str] | None = None, progress: OnProgress | None = None
) -> tuple[np.ndarray, int]:
    """[layers + 1, texts, hidden]: the mean over tokens of every layer; and the number of texts read in windows."""
    windows = cut_windows(subject.tokenizer, texts, pairs, length=subject.max_length)
    config = subject.model.config
    found = np.zeros((config.num_hidden_layers + 1, len(windows), config.hidden_size), np.float32)
    token_ids = [encoding.ids for encoding in windows.encodings]
    lengths = np.array([len(ids) for ids in token_ids])
    for rows, states in states_of_all(subject.model, token_ids, progress):
        for layer, values in enumerate(states):  # padding is zeros
            found[layer, rows] = values.sum(1) / lengths[rows][:, None]
    if len(windows) == len(texts):
        return found, 0
    return np.stack([windows.combine(layer) for layer in found]), int((windows.counts > 1).sum())


def frozen(
    subject: Subject, train: TaskData, dev: TaskData, progress: OnProgress | None = None
) -> tuple[list[FrozenResult], list[str]]:
    """Fit linear classifiers on the last layer and on all layers. Returns results and notes."""
    if train.kind not in CLASSES:
        raise InputError(f"{train.source}: frozen features need a classification task, and this task is {train.kind}")
    targets = train.encoded()
    assert targets.labels is not None
    truth = dev.encoded(targets.labels).values
    (one, cut_one), (two, cut_two) = (text_vectors(subject, data.texts, data.pairs, progress) for data in (train, dev))
    classes = len(targets.labels)
    if classes < 2:
        raise InputError(f"{train.source} has a single label, {targets.labels.names[0]!r}; at least two are needed")
    cut = cut_one + cut_two
    notes = [f"{cut:,} texts are longer than the model's input and were read in windows"] if cut else []
    some = np.random.default_rng(0).permutation(len(train))[:L2_TEXTS]
    held_out = np.arange(len(some)) % 4 == 3
    found = []
    for view, layers in (("last layer", slice(-1, None)), ("all layers", slice(None))):
        features = Features.of(one[layers])
        l2 = choose_l2(features.select(some), targets.values[some], classes, held_out)
        l2 *= min(1.0, float((~held_out).sum()) / len(train))
        made = fit_linear(features, targets.values, classes, l2)
        found.append(FrozenResult(view, made.scores(Features.of(two[layers])).argmax(1), truth, made.minimum, l2))
    return found, notes


class ProgressDisplay(NoDisplay):
    """Forwards the progress of a fine-tuning to the progress callback of the suite."""

    def __init__(self, progress: Callable[..., None]):
        self._progress = progress

    def update(self, status: Any, *, last: bool = False) -> None:
        done = round(100 * (status.nth - 1 + status.progress))
        self._progress(done, 100 * status.seeds, what=f"fine-tuning, seed {status.nth} of {status.seeds}")


def fine_tuned(subject: Subject, folder: Path, display: Display | None = None, **settings: Any) -> FineTuned:
    """Fine-tune a copy of the subject in `folder`; `settings` are fields of `FineTuningSettings`."""
    start = folder / "start"
    subject.model.save(start)
    subject.tokenizer.save(start)
    engine = subject.model.engine
    chosen = FineTuningSettings(
        model=str(start), engine=engine.name, threads=getattr(engine, "threads", None), baseline=False, report=False,
        **settings,
    )  # fmt: skip
    return finetune(chosen, folder / "run", display=display or NoDisplay())


@suite("transfer", title="Transfer: accuracy on a labelled task", effort=40)
def transfer(subject: Subject, options: Options) -> SuiteResult:
    """Film reviews (SST-2) with frozen features and, unless quick, with fine-tuning."""
    if subject.model.config.series is not None:
        raise DoesNotApply("this is a time series model; the suite needs a text model")
    task = ready_task(TASK)
    path = options.file("task", task.train)
    folder = path.parents[len(Path(task.train).parts) - 1]
    train, dev = task.open(folder), task.open(folder, "dev")
    some = train
    result = SuiteResult()
    limit = options.limit(TEXTS, QUICK_TEXTS)
    if limit is not None and limit < len(train):
        some = train.select(options.sample(len(train), limit, "transfer texts"))
        quick = "quick: " if options.quick else ""
        result.notes.append(f"{quick}frozen features learn from {len(some):,} of {len(train):,} training texts")
    if options.quick:
        result.notes.append("quick: no fine-tuning")
    key = hashlib.sha256(repr(dev.texts).encode()).hexdigest()[:16]
    rows = []
    end = 1.0 if options.quick else FROZEN_SHARE
    encoders = ((subject, "frozen"), (subject.untrained(options.seed), "random weights, frozen"))
    for number, (who, name) in enumerate(encoders):
        part = options.part(number / 2 * end, (number + 1) / 2 * end)
        progress = partial(part.progress, what=f"texts, {name}")
        found, notes = frozen(who, some, dev, progress)
        result.notes += notes if who is subject else []
        for one in found:
            right = (one.answers == one.truth).astype(float)
            measured = estimate(
                f"{TASK}: {name}, {one.view}", mean, right, key=key, resamples=options.resamples, unit="share",
                note="accuracy of a linear classifier on mean-pooled texts",
                higher_is_better=True if who is subject else None,
            )  # fmt: skip
            result.rows.append(measured)
            ended = "converged" if one.minimum.converged else "not converged"
            rows.append([name, one.view, measured.text, f"{one.l2:.1e}", one.minimum.steps, ended])
    result.rows.append(_most_frequent(some, dev, options, key))
    headers = ["encoder", "features", "accuracy", "λ", "steps", "solver"]
    result.tables.append(Table("Frozen features", headers, rows, folded=True))
    if not options.quick:
        _add_fine_tuning(subject, options.part(end, 1.0), folder, len(train), result)
    return result


def _most_frequent(train: TaskData, dev: TaskData, options: Options, key: str) -> Measure:
    targets = train.encoded()
    right = dev.encoded(targets.labels).values == np.bincount(targets.values).argmax()
    return estimate(
        f"{TASK}: commonest label", mean, right.astype(float), key=key, resamples=options.resamples, unit="share",
        higher_is_better=None,
    )  # fmt: skip


def _add_fine_tuning(subject: Subject, options: Options, folder: Path, texts: int, result: SuiteResult) -> None:
    seeds = SEEDS if options.thorough else 1
    epochs = None if options.thorough else EPOCHS  # None: the default of `finetune`
    limit = text_limit(subject, texts, seeds, THOROUGH_FLOPS if options.thorough else MAX_FLOPS, epochs or 3)
    used = f"{texts:,} texts" if limit is None else f"a random sample of {limit:,} of {texts:,} texts"
    if not options.thorough:
        result.notes.append(f"fine-tuned on {used} for {epochs} epochs, one seed; --thorough trains longer")
    elif limit is not None:
        result.notes.append(f"fine-tuned on {used}, because this encoder is large")
    with tempfile.TemporaryDirectory(prefix="glassbert-transfer-") as temporary:
        tuned = fine_tuned(
            subject, Path(temporary), ProgressDisplay(options.progress), task=TASK, data=str(folder), seeds=seeds,
            seed=options.seed, limit=limit, epochs=epochs, resamples=options.resamples,
        )  # fmt: skip
    if tuned.stopped != "finished" or tuned.spread is None:
        raise InputError("the fine-tuning was interrupted")
    result.rows.insert(0, _fine_tuned_measure(tuned, tuned.spread))
    rows = [[f"seed {s.seed}", "–" if s.score is None else share(s.score), s.epoch, s.steps, f"{s.seconds:.0f}"]
            for s in tuned.seeds]  # fmt: skip
    result.tables.append(Table("Fine-tuning", ["seed", tuned.metric, "best epoch", "steps", "s"], rows, folded=True))


def _fine_tuned_measure(tuned: FineTuned, spread: Spread) -> Measure:
    """The mean over seeds; of a single seed its score with the interval over the texts of dev."""
    name = f"{TASK}: fine-tuned"
    if spread.seeds > 1:
        note = (
            f"{tuned.metric}, mean of {spread.seeds} seeds ± {share(spread.deviation)}; from {share(spread.low)} to "
            f"{share(spread.high)}, which is the range of the seeds and no confidence interval"
        )
        return Measure(name, spread.mean, unit="share", note=note)
    score = tuned.scores.get(tuned.metric)
    interval = None if score is None or score.low is None or score.high is None else (score.low, score.high)
    return Measure(name, spread.mean, interval, unit="share", note=f"{tuned.metric} of one seed; seeds differ as well")


def text_limit(
    subject: Subject, texts: int, seeds: int = 1, flops: float = MAX_FLOPS, epochs: int = 3, tokens: int = 16
) -> int | None:
    """The number of texts that fit into so many FLOP, None for all. A token costs 6 FLOP per weight."""
    config = subject.model.config
    weights = subject.parameters - config.vocab_size * config.hidden_size
    possible = int(flops / (6.0 * weights * tokens * epochs * seeds))
    possible = max(possible, 100)
    return None if possible >= texts else possible
