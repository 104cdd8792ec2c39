"""The exam of `benchmarks.family`: the same four papers for every contestant.

    words    masked words of held-out text, with the published masks; of a causal model the next words
    zorro    minimal pairs of Zorro, by pseudo-log-likelihood; of a causal model by likelihood
    pos      parts of speech, by a linear probe on all layers
    sst2     film reviews (SST-2), fine-tuned with three seeds

A paper that does not apply keeps the reason: a discriminator predicts no words. Each is stored as soon as it is done,
in RUN/exam.json, and is not repeated.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassbert.evaluation.grammar import grammar
from glassbert.evaluation.held_out import held_out
from glassbert.evaluation.language import score_words
from glassbert.evaluation.measures import Measure
from glassbert.evaluation.probes import TASKS, probe_files
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options, SuiteResult
from glassbert.evaluation.transfer import SEEDS, TASK, fine_tuned
from glassbert.files import write_json
from glassbert.tasks.ready import ready_task

FILE = "exam.json"
ROWS = 2_000  # of held-out text
PAIRS = 100  # of each phenomenon of Zorro
WORDS = 20_000  # that train the probe


@dataclass(frozen=True)
class Sample(Options):
    """Options of the suites with samples of one given size."""

    size: int = 0

    def limit(self, full: int | None, quick: int) -> int | None:
        return self.size


def words(subject: Subject, options: Options, texts: int | None) -> dict[str, Any]:
    subject.require_words()
    text = held_out(subject, options)
    chosen = options.sample(len(text.rows), ROWS, "held-out rows")
    scores = score_words(subject, text, chosen, options)
    right, _, loss, _ = scores.main(options)
    return {"what": scores.what, "count": scores.count, "right": plain(right), "loss": plain(loss)}


def zorro(subject: Subject, options: Options, texts: int | None) -> dict[str, Any]:
    found = passed(grammar(subject, sample(options, PAIRS)))
    return {"right": plain(found["accuracy"]), "pairs": found.notes[0]}


def pos(subject: Subject, options: Options, texts: int | None) -> dict[str, Any]:
    task = TASKS["pos"]
    files = options.file("treebank", task.train), options.file("treebank", task.dev)
    found = probe_files(subject, sample(options, WORDS, quick=True), {files: [task]})
    return {"right": plain(found["pos: all layers"]), "random": plain(found["pos: random weights"])}


def sst2(subject: Subject, options: Options, texts: int | None) -> dict[str, Any]:
    train = ready_task(TASK).train
    folder = options.file("task", train).parents[len(Path(train).parts) - 1]
    with tempfile.TemporaryDirectory(prefix="glassbert-exam-") as temporary:
        tuned = fine_tuned(subject, Path(temporary), task=TASK, data=str(folder), seeds=SEEDS, limit=texts)
    if tuned.stopped != "finished" or tuned.spread is None:
        raise KeyboardInterrupt
    spread = tuned.spread
    right = {"value": spread.mean, "low": spread.low, "high": spread.high}
    return {"right": right, "seeds": [one.score for one in tuned.seeds], "texts": texts}


PAPERS: dict[str, Callable[[Subject, Options, int | None], dict[str, Any]]] = {
    "words": words,
    "zorro": zorro,
    "pos": pos,
    "sst2": sst2,
}


def take(
    run: Path,
    data: Path,
    *,
    text: Path | None = None,
    texts: int | None = None,
    papers: list[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> dict[str, Any]:
    """All papers of one run that are not yet done; returns the content of its exam.json.

    text     the corpus with the held-out text, if the run's own has moved
    texts    the number of reviews to fine-tune on; None: all
    options  engine and threads
    """
    done = read(run)
    missing = [name for name in papers or PAPERS if name not in done]
    if not missing:
        return done
    subject = Subject.open(run, **options)
    chosen = Options(data=data, text=text)
    for name in missing:
        say(f"{run.name}: {name}")
        try:
            done[name] = PAPERS[name](subject, chosen, texts)
        except DoesNotApply as reason:
            done[name] = {"skipped_because": str(reason)}
        write_json(run / FILE, done)
    return done


def read(run: Path) -> dict[str, Any]:
    """What the run has done of its exam."""
    path = run / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def sample(options: Options, size: int, quick: bool = False) -> Sample:
    return Sample(quick=quick, data=options.data, text=options.text, size=size)


def passed(result: SuiteResult) -> SuiteResult:
    """The result of a suite; raises `DoesNotApply` if it was left out."""
    if result.skipped_because:
        raise DoesNotApply(result.skipped_because)
    return result


def plain(measure: Measure) -> dict[str, float]:
    assert measure.value is not None, measure.name
    low, high = measure.interval or (measure.value, measure.value)
    return {"value": measure.value, "low": low, "high": high}
