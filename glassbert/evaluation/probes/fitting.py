"""Fit all probes of a task: on every layer, on a mix of layers and on all layers, with true and control labels.

mix          one weight per layer (`layer_mix`)
all layers   a separate linear map for every layer, z = Σ_l W_l x̂_l

The same linear probes are fitted on an encoder with random weights, as a baseline. The regularisation λ is chosen once
per task, on training sentences only.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.engines.machine import usable_cores
from glassbert.engines.threads import run_together
from glassbert.evaluation.probes.biaffine import fit_biaffine, heads_and_trees
from glassbert.evaluation.probes.features import Features
from glassbert.evaluation.probes.hidden_layer import HiddenProbe, fit_hidden
from glassbert.evaluation.probes.layer_mix import fit_mix, mixed
from glassbert.evaluation.probes.minimise import Minimum
from glassbert.evaluation.probes.questions import (
    UNSEEN,
    Questions,
    control,
    control_heads,
    majority,
    majority_heads,
    make_questions,
)
from glassbert.evaluation.probes.results import (
    ALL,
    BIAFFINE,
    HIDDEN,
    LINEAR,
    MIX,
    TRAINED,
    ProbeResult,
    Scorer,
    TaskResult,
    layer_name,
)
from glassbert.evaluation.probes.softmax_regression import BASELINE_TOLERANCE, TOLERANCE, choose_l2, fit_linear
from glassbert.evaluation.probes.tasks import ProbeTask
from glassbert.evaluation.probes.vectors import WordVectors
from glassbert.tasks.table import Table
from glassbert.text.random_numbers import permutation


class Vectors(NamedTuple):
    """Word vectors of one encoder for both sets."""

    train: WordVectors
    dev: WordVectors


class TrainDev(NamedTuple):
    """The labelled words of both sets: the true labels, or those of the control task."""

    train: Questions
    dev: Questions


class Job(NamedTuple):
    """Probes on the same features; `layers` are the layers of the features."""

    encoder: str
    view: str
    probes: tuple[str, ...]
    layers: range


class Extent(NamedTuple):
    """Which probes are fitted beside the linear ones.

    hidden_on_mix   probes with a hidden layer on the mix of layers
    every_layer     these, the control task and the random encoder on every layer and on the mix; otherwise the control
                    task and the random encoder on all layers together, or (for heads) on the best layer
    """

    hidden_on_mix: bool = True
    every_layer: bool = True


def plan(task: ProbeTask, encoder: str, layers: int, extent: Extent) -> list[Job]:
    """All jobs of a task for one encoder. The one with random weights gets linear probes only."""
    hidden = (HIDDEN,) if extent.hidden_on_mix and encoder == TRAINED else ()
    on_layer = (BIAFFINE,) if task.of == "heads" else (LINEAR, *(hidden if extent.every_layer else ()))
    jobs = [Job(encoder, layer_name(number), on_layer, range(number, number + 1)) for number in range(layers)]
    if task.of != "heads":
        jobs.append(Job(encoder, MIX, (LINEAR, *hidden), range(layers)))
        jobs.append(Job(encoder, ALL, (LINEAR,), range(layers)))
    return jobs


def fit(task: ProbeTask, job: Job, vectors: Vectors, sets: list[TrainDev], l2: float | None) -> list[ProbeResult]:
    """Fit the probes of a job and apply them to dev. If there are two sets, the second is the control task."""
    one, two = (given.layers[job.layers.start : job.layers.stop] for given in vectors)
    fit_set = _fit_heads if task.of == "heads" else _fit_words
    train, dev = (features_of(task, given, words) for given, words in zip((one, two), sets[0], strict=True))
    true = TOLERANCE if job.encoder == TRAINED else BASELINE_TOLERANCE
    tolerances = (true, BASELINE_TOLERANCE)
    results = [list(fit_set(job, train, dev, labels, l2, t)) for labels, t in zip(sets, tolerances, strict=False)]
    if len(sets) < 2:
        return results[0]
    return [true.with_control(control) for true, control in zip(*results, strict=True)]


def features_of(task: ProbeTask, vectors: np.ndarray, questions: Questions) -> Features:
    """The features of a task: words, words with their heads, or (to find heads) all words."""
    if task.of == "edges":
        return Features.of(vectors, questions.words, questions.heads)
    whole = task.of == "heads" or len(questions) == vectors.shape[1]  # in order, so nothing is copied
    return Features.of(vectors) if whole else Features.of(vectors, questions.words)


def _fit_heads(
    job: Job, train: Features, dev: Features, labels: TrainDev, l2: float | None, tolerance: float
) -> Iterator[ProbeResult]:
    timer = _Timer(job)
    probe = fit_biaffine(train, labels.train, tolerance=tolerance)
    answers, trees = heads_and_trees(probe.log_probabilities(dev, labels.dev), labels.dev)
    yield timer.result(BIAFFINE, answers, probe.minimum, trees=trees)


def _fit_words(
    job: Job, train: Features, dev: Features, labels: TrainDev, l2: float | None, tolerance: float
) -> Iterator[ProbeResult]:
    assert l2 is not None
    timer = _Timer(job)
    classes = len(labels.train.names)
    shares = None
    if job.view == MIX:
        mix = fit_mix(train, labels.train.labels, classes, l2, tolerance)
        train, dev = (mixed(features, mix.factors, mix.shift) for features in (train, dev))
        linear, shares = mix.linear, mix.shares
    else:
        linear = fit_linear(train, labels.train.labels, classes, l2, tolerance)
    yield timer.result(LINEAR, linear.scores(dev).argmax(1), linear.minimum, shares=shares)
    if HIDDEN in job.probes:
        hidden = fit_hidden(train, labels.train.labels, classes)
        yield timer.result(HIDDEN, hidden.scores(dev).argmax(1), hidden, shares=shares)


class _Timer:
    """Builds the results of a job, each with the time since the previous one."""

    def __init__(self, job: Job):
        self.job, self.started = job, time.perf_counter()

    def result(self, probe: str, answers: np.ndarray, end: Minimum | HiddenProbe, **more: Any) -> ProbeResult:
        seconds, self.started = time.perf_counter() - self.started, time.perf_counter()
        convergence = (end.gain, end.steps, end.converged)
        return ProbeResult(self.job.encoder, self.job.view, probe, answers, *convergence, seconds, **more)


L2_WORDS = 20_000  # words for the choice of λ
OnProgress = Callable[[int, int, str], None]  # done, total, what


def probe_task(
    task: ProbeTask,
    train: Table,
    dev: Table,
    vectors: Mapping[str, Vectors],
    *,
    most_words: int | None = None,
    extent: Extent = Extent(),  # noqa: B008
    seed: int = 0,
    progress: OnProgress | None = None,
) -> TaskResult:
    """Fit all probes of a task on the vectors of each encoder, one thread per core."""
    every, dev_words = make_questions(task, train, dev)
    known = every.select(np.flatnonzero(every.labels != UNSEEN))
    train_words = some_sentences(known, min(filter(None, (most_words, task.most_words)), default=None), seed)
    notes = [f"trained on {len(train_words):,} of {len(every):,} words, tested on {len(dev_words):,}"]
    if dev_words.unseen:
        notes.append(f"{dev_words.unseen:,} words have labels that are not in the training set; they count as wrong")
    true = TrainDev(train_words, dev_words)
    random = TrainDev(*(control_heads if task.of == "heads" else control)(train_words, dev_words, seed))
    baseline = (majority_heads if task.of == "heads" else majority)(train_words, dev_words)
    l2 = None if task.of == "heads" else _choose_task_l2(task, vectors[TRAINED].train, train_words)
    jobs = {encoder: plan(task, encoder, len(given.train.layers), extent) for encoder, given in vectors.items()}
    found: dict[Job, list[ProbeResult]] = {}
    # The view with the control task and the random encoder, unless every layer has them: all layers, or the best one.
    richest = {job.view for some in jobs.values() for job in some} if extent.every_layer else {ALL}

    def work(job: Job) -> None:
        with_control = job.encoder == TRAINED and job.view in richest
        found[job] = fit(task, job, vectors[job.encoder], [true, random] if with_control else [true], l2)

    def run(some: Sequence[Job], begin: float, end: float) -> None:
        longest_first = sorted(some, key=lambda job: -len(job.layers) * len(job.probes))
        _run_jobs(longest_first, work, progress, task.title, begin, end)

    def result(some: Sequence[Job]) -> TaskResult:
        probed = [one for job in some for one in found[job]]
        return TaskResult(task, train_words, dev_words, random.dev, baseline, probed, l2, notes)

    if task.of == "heads" and not extent.every_layer:
        run(jobs[TRAINED], 0.0, 0.8)
        richest = {best_layer(result(jobs[TRAINED]))}
    chosen = [job for some in jobs.values() for job in some if job.encoder == TRAINED or job.view in richest]
    missing = [job for job in chosen if job not in found or job.view in richest]
    run(missing, 0.8 if found else 0.0, 1.0)
    return result(chosen)


def best_layer(result: TaskResult) -> str:
    """The view of the best single layer of the trained encoder."""
    scorer = Scorer(result)
    layers = [one for one in result.probed if one.encoder == TRAINED and one.view not in (MIX, ALL)]
    return max((one for one in layers if one.probe != HIDDEN), key=lambda one: scorer.value(one.answers)).view


def _choose_task_l2(task: ProbeTask, vectors: WordVectors, questions: Questions) -> float:
    """Choose λ with a linear probe on the middle layer; a quarter of a sample of training sentences is held out."""
    some = some_sentences(questions, L2_WORDS, seed=1)
    features = features_of(task, vectors.layers[len(vectors.layers) // 2][None], some)
    held_out = some.sentences % 4 == 3
    best = choose_l2(features, some.labels, len(some.names), held_out)
    # λ is proportional to 1 / words, so it is rescaled to the full training set.
    return best * min(1.0, float((~held_out).sum()) / len(questions))


def some_sentences(questions: Questions, most_words: int | None, seed: int) -> Questions:
    """A fixed random sample of whole sentences with about `most_words` words; all sentences if None."""
    if most_words is None or len(questions) <= most_words:
        return questions
    count = len(questions.starts) - 1
    order = permutation(seed, "probe sentences", 0, count).astype(np.int64)
    words = np.bincount(questions.sentences, minlength=count)[order]
    chosen = np.zeros(count, bool)
    chosen[order[: 1 + int(np.searchsorted(np.cumsum(words), most_words))]] = True
    return questions.select(np.flatnonzero(chosen[questions.sentences]))


def _run_jobs(
    jobs: Sequence[Job],
    work: Callable[[Job], None],
    progress: OnProgress | None,
    what: str,
    begin: float = 0.0,
    end: float = 1.0,
) -> None:
    """Run all jobs with one thread per core; the progress goes from share `begin` to share `end` of 100."""
    weights = {job: len(job.layers) + len(job.probes) for job in jobs}
    waiting = deque(jobs)
    lock = threading.Lock()
    done = 0

    def worker(_: int) -> None:
        nonlocal done
        while True:
            with lock:
                if not waiting:
                    return
                job = waiting.popleft()
            work(job)
            with lock:
                done += weights[job]
                if progress is not None:
                    share = begin + (end - begin) * done / sum(weights.values())
                    progress(round(100 * share), 100, what)

    run_together(worker, range(min(usable_cores(), len(jobs))))
