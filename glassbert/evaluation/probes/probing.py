"""One task, all its probes: on every layer, on a mix of layers and on all layers together; true labels and control.

The same probes read an encoder with random weights: what they get right there, words and the probe itself can do.
How much weights are held down (λ) is chosen once a task, on training sentences alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from glassbert.engines.threads import run_together, usable_cores
from glassbert.evaluation.probes.fitting import Asked, Job, Vectors, features_of, fit, plan
from glassbert.evaluation.probes.questions import (
    UNSEEN,
    Questions,
    ask,
    control,
    control_heads,
    majority,
    majority_heads,
)
from glassbert.evaluation.probes.results import TRAINED, Probed, TaskResult
from glassbert.evaluation.probes.softmax_regression import choose_l2
from glassbert.evaluation.probes.tasks import ProbeTask
from glassbert.evaluation.probes.vectors import WordVectors
from glassbert.tasks.table import Table
from glassbert.text.random_numbers import permutation

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
