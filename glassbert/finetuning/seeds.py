"""Fine-tuning with several seeds, and the spread of their scores.

A finished seed keeps its model and result in RUN/seed-N, so that a resumed run does not repeat it.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.errors import NotFinite
from glassbert.files import read_json, write_json
from glassbert.finetuning.averaging import Measured, average_greedily, measured
from glassbert.finetuning.display import TuningStatus
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.preparing import Prepared
from glassbert.finetuning.scoring import choice_loss, compute_scores, score_examples
from glassbert.finetuning.tuner import AVERAGE, FineTuner, SeedFolder
from glassbert.metrics import Scores
from glassbert.metrics.scores import Score
from glassbert.models.model import Model
from glassbert.training.checkpointing import last_intact, read_state
from glassbert.training.display import Display
from glassbert.training.log import RunLog
from glassbert.training.run_folder import RunFolder

RESULT, MODEL = "result.json", "model"


@dataclass(frozen=True)
class SeedResult:
    """Result of one seed. `score` is that of its best evaluation, after `epoch` of `epochs`, on the choosing examples.

    `averaged` are the epochs whose weights were averaged; empty: those of `epoch` alone.
    """

    seed: int
    score: float | None
    stopped: str
    epoch: float
    epochs: float
    steps: int
    examples: int
    seconds: float
    log_position: int = 0
    averaged: tuple[float, ...] = ()
    loss: float | None = None  # of the same weights on the same examples

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> SeedResult:
        return cls(**{**content, "averaged": tuple(content.get("averaged", ()))})

    @property
    def examples_per_second(self) -> float:
        return self.examples / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Spread:
    """A score over seeds: mean, standard deviation (0 for a single seed), minimum and maximum."""

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


class SeedRuns:
    """Trains all seeds of a run, one after the other."""

    def __init__(
        self,
        prepared: Prepared,
        run: Path,
        display: Display,
        should_stop: Callable[[], bool],
        owner: RunFolder | None = None,
    ):
        self.prepared, self.run, self.display, self.should_stop = prepared, run, display, should_stop
        self.owner = owner  # the locked folder of the run
        self.settings, self.card = prepared.settings, prepared.card
        self.numbers = range(self.settings.seed, self.settings.seed + self.settings.seeds)
        self._outcomes: dict[int, Outcome] = {}

    def tune(self) -> list[SeedResult]:
        """Train all unfinished seeds. Fewer results than seeds mean that the run was interrupted."""
        results: list[SeedResult] = []
        for seed in self.numbers:
            result = self._finished(seed) or self._tune(seed, results[-1].log_position if results else 0)
            if result.stopped == "interrupted":
                break
            results.append(result)
        return results

    def best(self, results: list[SeedResult]) -> SeedResult:
        """The seed with the best score, of equal ones that with the lowest loss; the first one if nothing chooses."""
        if self.card.chosen_on == "nothing":
            return results[0]
        metric = self.card.main_metric
        scored = [result for result in results if result.score is not None]
        sign = -1.0 if metric.higher_is_better else 1.0
        return min(scored or results, key=lambda result: _order(result, sign))

    def model(self, seed: int) -> Model:
        """The finished model of a seed."""
        settings = self.settings
        return load(
            self._seed_folder(seed) / MODEL, engine=settings.engine, dtype=settings.precision, threads=settings.threads
        )

    def outcome(self, seed: int) -> Outcome:
        """The outcome of the finished model of a seed on the held-out examples, with intervals."""
        if seed not in self._outcomes:
            self._outcomes[seed] = outcome_of(self.prepared, self.model(seed))
        return self._outcomes[seed]

    def soup(self, results: list[SeedResult]) -> tuple[Model, list[int]] | None:
        """The average of the models of several seeds, best first, and these seeds; None if the best seed is better.

        If nothing chooses, all seeds are averaged.
        """
        metric, best = self.card.main_metric, self.best(results)
        sign = -1.0 if metric.higher_is_better else 1.0
        scored = [result for result in results if result.score is not None and result is not best]
        order = [best, *sorted(scored, key=lambda result: _order(result, sign))]
        model = self.model(best.seed)
        to_numpy = model.engine.to_numpy
        candidates = [
            {name: np.array(to_numpy(array)) for name, array in self.model(one.seed).parameters.items()}
            for one in order
        ]

        def measure(weights: dict[str, np.ndarray]) -> Measured | None:
            for name, array in weights.items():
                model.parameters[name] = model.engine.array(array)
            return measured(self._measure(model), metric)

        if self.card.chosen_on == "nothing":
            mean = {name: np.mean([one[name] for one in candidates], 0) for name in candidates[0]}
            measure(mean)
            return model, [one.seed for one in order]
        first = measure(candidates[0])
        if first is None:
            return None
        weights, used, _ = average_greedily(candidates, first, measure, metric)
        for name, array in weights.items():  # the last trial may have been another one
            model.parameters[name] = model.engine.array(array)
        return (model, [order[index].seed for index in used]) if len(used) > 1 else None

    def remove_intermediate(self) -> None:
        """Remove models and checkpoints that only an unfinished run needs."""
        for seed in self.numbers:
            for path in (self._seed_folder(seed) / MODEL, *self._seed_folder(seed).glob("*step-*")):
                shutil.rmtree(path, ignore_errors=True)

    # ---- one seed ---------------------------------------------------------------------------------------------------

    def _tune(self, seed: int, log_position: int) -> SeedResult:
        prepared, settings, card = self.prepared, self.settings, self.card
        folder = SeedFolder(self.run, seed)
        folder.owner = self.owner or folder
        model = prepared.model(seed)
        folder.require_space((28 + 4 * (settings.average or AVERAGE)) * model.get_parameter_count() + 2**20)
        step, _ = last_intact(folder)
        if step is not None:
            log_position = int(read_state(folder.checkpoint(step))["log_position"])
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
                should_stop=self.should_stop,
                choose=card.chosen_on != "nothing",
                objective=prepared.objective(model),
            ).tune()
            result = SeedResult(
                seed,
                tuned.best,
                tuned.stopped,
                tuned.epoch,
                tuned.epochs,
                tuned.steps,
                tuned.examples,
                tuned.seconds,
                averaged=tuned.averaged,
                loss=tuned.loss,
            )
            return result if tuned.stopped == "interrupted" else self._save(result, model, log)
        finally:
            log.close()

    def _save(self, result: SeedResult, model: Model, log: RunLog) -> SeedResult:
        """Save a finished seed; its result holds the log position."""
        folder = self._seed_folder(result.seed)
        finished = model.merge() if hasattr(model, "merge") else model.head.finished(model)[""]  # type: ignore[union-attr]
        shutil.rmtree(folder / MODEL, ignore_errors=True)
        finished.save(folder / MODEL)
        self._outcomes[result.seed] = outcome_of(self.prepared, finished)
        values = {name: score.value for name, score in self._outcomes[result.seed].scores.items()}
        log.write("seed", result.steps, result.seconds, seed=result.seed, stopped=result.stopped, scores=values)
        result = replace(result, log_position=log.sync())
        write_json(folder / RESULT, asdict(result), sealed=True)  # last, because it marks the seed as finished
        return result

    def _finished(self, seed: int) -> SeedResult | None:
        try:
            return SeedResult.from_json(read_json(self._seed_folder(seed) / RESULT))
        except (ValueError, TypeError):  # a damaged result: the seed is finished again from its last checkpoint
            return None

    def _measure(self, model: Model) -> Scores:
        _, examples = self.prepared.choosing
        try:
            outputs = score_examples(model, examples)
        except NotFinite:
            return Scores({self.card.metric: Score(None, "the scores of the model are not finite")})
        scores = compute_scores(outputs, examples.truth, self.card)
        scores.loss = choice_loss(outputs, examples.truth, self.card)
        return scores

    def _seed_folder(self, seed: int) -> Path:
        return self.run / f"seed-{seed}"


def _order(result: SeedResult, sign: float) -> tuple[float, float]:
    return sign * (result.score or 0.0), math.inf if result.loss is None else result.loss


def outcome_of(prepared: Prepared, model: Model) -> Outcome:
    """The outcome of a model on the reported examples, with bootstrap intervals.

    Calibration and thresholds come from the choosing examples, if those are others.
    """
    from glassbert.finetuning.calibration import calibrate

    card = prepared.card
    if card.chosen_apart:
        card = calibrate(choosing_outcome(prepared, model)).apply_to(card)
    outputs, truth = score_examples(model, prepared.dev_examples), prepared.dev_examples.truth
    scores = compute_scores(outputs, truth, card, resamples=prepared.settings.resamples)
    return Outcome(card, prepared.dev, truth, outputs, scores)


def choosing_outcome(prepared: Prepared, model: Model) -> Outcome:
    """The outcome of a model on the examples that choose, without scores."""
    data, examples = prepared.choosing
    return Outcome(prepared.card, data, examples.truth, score_examples(model, examples), Scores())
