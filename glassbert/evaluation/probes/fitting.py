"""The fits of a task: which there are, and one of them with its control.

mix          one weight a layer (`layer_mix`)
all layers   a linear map of its own for every layer, z = Σ_l W_l x̂_l: the richest mix that is still linear
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.engines.threads import run_together, usable_cores
from glassbert.evaluation.probes.biaffine import fit_biaffine, heads_and_trees
from glassbert.evaluation.probes.features import Features
from glassbert.evaluation.probes.hidden_layer import HiddenProbe, fit_hidden
from glassbert.evaluation.probes.layer_mix import fit_mix, mixed
from glassbert.evaluation.probes.minimise import Minimum
from glassbert.evaluation.probes.questions import (
    UNSEEN,
    Questions,
    ask,
    control,
    control_heads,
    majority,
    majority_heads,
)
from glassbert.evaluation.probes.results import (
    ALL,
    BIAFFINE,
    HIDDEN,
    LINEAR,
    MIX,
    TRAINED,
    Probed,
    TaskResult,
    layer_name,
)
from glassbert.evaluation.probes.softmax_regression import choose_l2, fit_linear
from glassbert.evaluation.probes.tasks import ProbeTask
from glassbert.evaluation.probes.vectors import WordVectors
from glassbert.tasks.table import Table
from glassbert.text.random_numbers import permutation


class Vectors(NamedTuple):
    """What one encoder says about the words of both sets."""

    train: WordVectors
    dev: WordVectors


class Asked(NamedTuple):
    """The questions of both sets: the true ones, or those of the control task."""

    train: Questions
    dev: Questions


class Job(NamedTuple):
    """Probes that look at the same features. `layers` are those it sees."""

    encoder: str
    view: str
    probes: tuple[str, ...]
    layers: range


def plan(task: ProbeTask, vectors: Mapping[str, Vectors], hidden: bool) -> list[Job]:
    """All jobs. The encoder with random weights is read by linear probes alone."""
    jobs = []
    for encoder, given in vectors.items():
        layers = len(given.train.layers)
        both = (LINEAR, HIDDEN) if hidden and encoder == TRAINED else (LINEAR,)
        probes = (BIAFFINE,) if task.of == "heads" else both
        jobs += [Job(encoder, layer_name(number), probes, range(number, number + 1)) for number in range(layers)]
        if task.of != "heads":
            jobs.append(Job(encoder, MIX, both, range(layers)))
            jobs.append(Job(encoder, ALL, (LINEAR,), range(layers)))
    return jobs


def fit(task: ProbeTask, job: Job, vectors: Vectors, sets: list[Asked], l2: float | None) -> list[Probed]:
    """The probes of a job, learned and asked; with two sets the second one is the control of the first."""
    one, two = (given.layers[job.layers.start : job.layers.stop] for given in vectors)
    read = _read_heads if task.of == "heads" else _read_words
    features, questions = (features_of(task, given, asked) for given, asked in zip((one, two), sets[0], strict=True))
    answers = [list(read(job, features, questions, asked, l2)) for asked in sets]
    return [true.with_control(twin) for true, twin in zip(*answers, strict=True)] if len(sets) == 2 else answers[0]


def features_of(task: ProbeTask, vectors: np.ndarray, questions: Questions) -> Features:
    """What the probes see: words, words with their heads, or (to find heads) all words there are."""
    if task.of == "edges":
        return Features.of(vectors, questions.words, questions.heads)
    whole = task.of == "heads" or len(questions) == vectors.shape[1]  # in their order: nothing need be copied
    return Features.of(vectors) if whole else Features.of(vectors, questions.words)


def _read_heads(job: Job, words: Features, others: Features, asked: Asked, l2: float | None) -> Iterator[Probed]:
    since = Stopwatch(job)
    probe = fit_biaffine(words, asked.train)
    answers, trees = heads_and_trees(probe.log_probabilities(others, asked.dev), asked.dev)
    yield since.probed(BIAFFINE, answers, probe.minimum, trees=trees)


def _read_words(job: Job, words: Features, others: Features, asked: Asked, l2: float | None) -> Iterator[Probed]:
    assert l2 is not None
    since = Stopwatch(job)
    labels, classes = asked.train.labels, len(asked.train.names)
    shares = None
    if job.view == MIX:
        mixing = fit_mix(words, labels, classes, l2)
        words, others = (mixed(features, mixing.factors, mixing.shift) for features in (words, others))
        straight, shares = mixing.linear, mixing.shares
    else:
        straight = fit_linear(words, labels, classes, l2)
    yield since.probed(LINEAR, straight.scores(others).argmax(1), straight.minimum, shares=shares)
    if HIDDEN in job.probes:
        bent = fit_hidden(words, labels, classes)
        yield since.probed(HIDDEN, bent.scores(others).argmax(1), bent, shares=shares)


class Stopwatch:
    """Makes the results of a job, each with the time since the one before."""

    def __init__(self, job: Job):
        self.job, self.begun = job, time.perf_counter()

    def probed(self, probe: str, answers: np.ndarray, ended: Minimum | HiddenProbe, **more: Any) -> Probed:
        seconds, self.begun = time.perf_counter() - self.begun, time.perf_counter()
        how = (ended.gain, ended.steps, ended.converged)
        return Probed(self.job.encoder, self.job.view, probe, answers, *how, seconds, **more)


TO_CHOOSE = 20_000  # words from which λ is chosen
Progress = Callable[[int, int, str], None]  # done, of how many, what


def probe_task(
    task: ProbeTask,
    train: Table,
    dev: Table,
    vectors: Mapping[str, Vectors],
    *,
    most_words: int | None = None,
    hidden: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> TaskResult:
    """All probes of a task on the vectors of each encoder, as many side by side as there are cores."""
    every, asked = ask(task, train, dev)
    known = every.select(np.flatnonzero(every.labels != UNSEEN))
    learned = some_sentences(known, min(filter(None, (most_words, task.most_words)), default=None), seed)
    notes = [f"learned from {len(learned):,} of {len(every):,} words, asked about {len(asked):,}"]
    if asked.unseen:
        notes.append(f"{asked.unseen:,} words have labels that training never saw; they count as wrong")
    true = Asked(learned, asked)
    drawn = Asked(*(control_heads if task.of == "heads" else control)(learned, asked, seed))
    common = (majority_heads if task.of == "heads" else majority)(learned, asked)
    l2 = None if task.of == "heads" else choose_for(task, vectors[TRAINED].train, learned)
    jobs = plan(task, vectors, hidden)
    found: dict[Job, list[Probed]] = {}

    def work(job: Job) -> None:
        found[job] = fit(task, job, vectors[job.encoder], [true, drawn] if job.encoder == TRAINED else [true], l2)

    dear_first = sorted(jobs, key=lambda job: -len(job.layers) * len(job.probes))
    _work_off(dear_first, work, progress, task.title)
    probed = [one for job in jobs for one in found[job]]
    return TaskResult(task, learned, asked, drawn.dev, common, probed, l2, notes)


def choose_for(task: ProbeTask, vectors: WordVectors, questions: Questions) -> float:
    """λ for a task, by a probe on the middle layer and a quarter of some training sentences, held out."""
    some = some_sentences(questions, TO_CHOOSE, seed=1)
    features = features_of(task, vectors.layers[len(vectors.layers) // 2][None], some)
    held_out = some.sentences % 4 == 3
    best = choose_l2(features, some.labels, len(some.names), held_out)
    # The more words there are, the less they need to be held down: λ belongs to a number of words.
    return best * min(1.0, float((~held_out).sum()) / len(questions))


def some_sentences(questions: Questions, most_words: int | None, seed: int) -> Questions:
    """Whole sentences in a fixed random order until there are enough words; all without a limit."""
    if most_words is None or len(questions) <= most_words:
        return questions
    count = len(questions.starts) - 1
    order = permutation(seed, "probe sentences", 0, count).astype(np.int64)
    words = np.bincount(questions.sentences, minlength=count)[order]
    chosen = np.zeros(count, bool)
    chosen[order[: 1 + int(np.searchsorted(np.cumsum(words), most_words))]] = True
    return questions.select(np.flatnonzero(chosen[questions.sentences]))


def _work_off(jobs: Sequence[Job], work: Callable[[Job], None], progress: Progress | None, what: str) -> None:
    """All jobs, as many at a time as there are cores."""
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
                done += 1
                if progress is not None:
                    progress(done, len(jobs), what)

    run_together(worker, range(min(usable_cores(), len(jobs))))
