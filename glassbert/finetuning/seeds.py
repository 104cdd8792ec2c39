"""The same fine-tuning with several seeds: a single one may be luck, the spread of several says how much.

Every finished seed leaves its model and its result in RUN/seed-N, so that an interrupted run makes none of them twice.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.files import write_json
from glassbert.finetuning.display import TuningStatus
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.preparing import Prepared
from glassbert.finetuning.scoring import judge, score_examples
from glassbert.finetuning.tuner import FineTuner
from glassbert.finetuning.tuner_state import SeedFolder
from glassbert.metrics import Scores
from glassbert.models.model import Model
from glassbert.training.display import Display
from glassbert.training.log import RunLog

RESULT, MODEL = "result.json", "model"


@dataclass(frozen=True)
class SeedResult:
    """How one seed ended. `score` is that of its best evaluation, which came after `epoch` of `epochs`."""

    seed: int
    score: float | None
    stopped: str
    epoch: float
    epochs: float
    steps: int
    examples: int
    seconds: float
    log_position: int = 0

    @property
    def examples_per_second(self) -> float:
        return self.examples / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Spread:
    """A score over seeds: mean, standard deviation (0 for a single seed), lowest and highest."""

    mean: float
    deviation: float
    low: float
    high: float
    seeds: int

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), deviation, min(values), max(values), len(values))

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.deviation:.4f}" if self.seeds > 1 else f"{self.mean:.4f}"


class Seeds:
    """All seeds of a run, one after the other."""

    def __init__(self, prepared: Prepared, run: Path, display: Display, asked_to_stop: Callable[[], bool]):
        self.prepared, self.run, self.display, self.asked_to_stop = prepared, run, display, asked_to_stop
        self.settings, self.card = prepared.settings, prepared.card
        self.numbers = range(self.settings.seed, self.settings.seed + self.settings.seeds)
        self._outcomes: dict[int, Outcome] = {}

    def tune(self) -> list[SeedResult]:
        """Make every seed that is not finished; fewer results than seeds mean that somebody asked to stop."""
        results: list[SeedResult] = []
        for seed in self.numbers:
            done = self._finished(seed) or self._tune(seed, results[-1].log_position if results else 0)
            if done.stopped == "interrupted":
                break
            results.append(done)
        return results

    def best(self, results: list[SeedResult]) -> SeedResult:
        """The seed with the best score; the first of equals."""
        metric = self.card.main_metric
        known = [result for result in results if result.score is not None]
        sign = -1.0 if metric.higher_is_better else 1.0
        return min(known or results, key=lambda result: sign * (result.score or 0.0))

    def model(self, seed: int) -> Model:
        """The finished model of a seed."""
        settings = self.settings
        return load(
            self._place(seed) / MODEL, engine=settings.engine, dtype=settings.precision, threads=settings.threads
        )

    def outcome(self, seed: int) -> Outcome:
        """What the finished model of a seed says about the held-out examples, with intervals."""
        if seed not in self._outcomes:
            self._outcomes[seed] = outcome_of(self.prepared, self.model(seed))
        return self._outcomes[seed]

    def sweep(self) -> None:
        """Remove what only an unfinished run needs."""
        for seed in self.numbers:
            for left in (self._place(seed) / MODEL, *self._place(seed).glob("*step-*")):
                shutil.rmtree(left, ignore_errors=True)

    # ---- one seed ---------------------------------------------------------------------------------------------------

    def _tune(self, seed: int, log_position: int) -> SeedResult:
        prepared, settings, card = self.prepared, self.settings, self.card
        folder = SeedFolder(self.run, seed)
        model = prepared.model(seed)
        folder.require_space(16 * model.get_parameter_count() + 2**20)
        steps = folder.steps()
        if steps:
            log_position = json.loads((folder.checkpoint(steps[-1]) / "state.json").read_text())["log_position"]
        log = RunLog(folder.log_file, log_position)
        try:
            nth = seed - settings.seed + 1
            parameters = f"{model.get_parameter_count():,} parameters, {model.engine.name}"
            status = TuningStatus(title=f"{card.title}: {parameters}", nth=nth, seeds=settings.seeds)
            tuned = FineTuner(
                model,
                prepared.train_examples,
                self._measure,
                settings,
                folder,
                metric=card.main_metric,
                seed=seed,
                log=log,
                display=self.display,
                status=status,
                asked_to_stop=self.asked_to_stop,
            ).tune()
            result = SeedResult(
                seed, tuned.best, tuned.stopped, tuned.epoch, tuned.epochs, tuned.steps, tuned.examples, tuned.seconds
            )
            return result if tuned.stopped == "interrupted" else self._keep(result, model, log)
        finally:
            log.close()

    def _keep(self, result: SeedResult, model: Model, log: RunLog) -> SeedResult:
        """Save a finished seed; its result also says how long the log was then."""
        place = self._place(result.seed)
        finished = model.merge() if hasattr(model, "merge") else model
        shutil.rmtree(place / MODEL, ignore_errors=True)
        finished.save(place / MODEL)
        self._outcomes[result.seed] = outcome_of(self.prepared, finished)
        values = {name: score.value for name, score in self._outcomes[result.seed].scores.items()}
        log.write("seed", result.steps, result.seconds, seed=result.seed, stopped=result.stopped, scores=values)
        result = replace(result, log_position=log.sync())
        write_json(place / RESULT, asdict(result))  # last: with it the seed is done
        return result

    def _finished(self, seed: int) -> SeedResult | None:
        try:
            content: dict[str, Any] = json.loads((self._place(seed) / RESULT).read_text(encoding="utf-8"))
            return SeedResult(**content)
        except (OSError, ValueError, TypeError):
            return None

    def _measure(self, model: Model) -> Scores:
        examples = self.prepared.dev_examples
        return judge(score_examples(model, examples), examples.truth, self.card)

    def _place(self, seed: int) -> Path:
        return self.run / f"seed-{seed}"


def outcome_of(prepared: Prepared, model: Model) -> Outcome:
    """What a model says about the held-out examples, and how good that is, with intervals."""
    outputs, truth = score_examples(model, prepared.dev_examples), prepared.dev_examples.truth
    scores = judge(outputs, truth, prepared.card, resamples=prepared.settings.resamples)
    return Outcome(prepared.card, prepared.dev, truth, outputs, scores)
