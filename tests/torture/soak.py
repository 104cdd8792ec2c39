"""One process for a long time: predictions, training steps and evaluations, round after round, with flat memory.

The resident memory m(r) is read after every round r. After the first third, which fills caches, a straight line is
fitted to it:

    growth = slope · rounds that were fitted        at most 5 MB
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from glassbert.evaluation import Options, Subject, evaluate, get_suites
from glassbert.finetuning.predictor import Predictor
from tests.finetuning.toy import make_model, sentences, tune, write_reviews
from tests.torture.table import Line
from tests.training.toy import make_corpus, make_trainer

ROUNDS = 100
LIMIT = 5.0  # MB


def soak(predicts: int, steps: int, evaluations: int, output: Path | None = None, rounds: int = ROUNDS) -> list[Line]:
    """So many predictions, steps and evaluations in this process, in rounds."""
    lines = [Line("soak", what) for what in ("predict", "training steps", "evaluations", "memory")]
    if not Path("/proc/self/statm").exists():
        lines[-1].said = f"left out: the memory of a process is not known on {sys.platform}"
        return lines[-1:]
    sizes, begun = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="glassbert-soak-") as temporary:
        work = Work(Path(temporary), steps)
        with work.trainer.prepared():
            for number in range(rounds):
                for line, count, act in zip(lines, (predicts, steps, evaluations), work.acts, strict=False):
                    for _ in range(number * count // rounds, (number + 1) * count // rounds):
                        act()
                        line.tried += 1
                gc.collect()
                sizes.append(resident_memory())
                if output is not None:
                    with open(output / "soak.csv", "a", encoding="utf-8") as file:
                        file.write(f"{number},{lines[0].tried},{lines[1].tried},{lines[2].tried},{sizes[-1]:.3f}\n")
                if 10 * (number + 1) % rounds == 0:
                    done = 100 * (number + 1) // rounds
                    print(f"{time.monotonic() - begun:6.0f} s  soak {done} %, {sizes[-1]:.1f} MB", flush=True)
    judge(lines[-1], sizes)
    return lines


class Work:
    """What is done again and again: a fine-tuned model answers, a run trains, a suite evaluates."""

    def __init__(self, folder: Path, steps: int):
        encoder = make_model(folder / "encoder")
        train, dev = write_reviews(folder, 64, 24)
        tune(folder / "tuned", encoder, train, dev, epochs=1)
        corpus = make_corpus(folder / "corpus")
        self.predictor = Predictor.load(folder / "tuned" / "model", engine="numpy", threads=1)
        self.texts = [text for text, _ in sentences(997, seed=5)]
        never = steps + 2
        self.trainer = make_trainer(corpus, folder / "run", steps=never, threads=1, evaluate_every=never,
                                    checkpoint_every=max(1, steps // 50))  # fmt: skip
        self.subject = Subject("soak", self.trainer.model, self.trainer.data.tokenizer)
        self.suites = get_suites(["language"], quick=True)
        self.options = Options(quick=True, text=corpus, resamples=100)
        self.calls = 0
        self.acts = (self.predict, self.trainer.one_step, self.evaluate)

    def predict(self) -> None:
        """One to four texts of changing lengths."""
        self.calls += 1
        first = (7 * self.calls) % len(self.texts)
        texts = [" ".join(self.texts[first : first + 1 + self.calls % 3])] * (1 + self.calls % 4)
        assert len(self.predictor.predict(texts).answers()) == len(texts)

    def evaluate(self) -> None:
        """A suite on the held-out text, as `glassbert evaluate` does."""
        found = evaluate([self.subject], self.suites, options=self.options)
        assert not found.failed, found.failed


def judge(line: Line, sizes: list[float]) -> None:
    """Fit a line to the sizes after the first third, and compare what it rises with the limit."""
    fitted = np.array(sizes[len(sizes) // 3 :])
    slope = float(np.polyfit(np.arange(len(fitted)), fitted, 1)[0])
    growth = slope * len(fitted)
    line.tried += len(sizes)
    line.said = (
        f"{fitted[0]:.1f} MB after a third, {fitted[-1]:.1f} MB at the end; fitted growth {growth:+.2f} MB, "
        f"limit {LIMIT:.0f} MB"
    )
    if growth > LIMIT:
        line.fail(line.said)


def resident_memory() -> float:
    """MB of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
