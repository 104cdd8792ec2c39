"""Monitoring a run: log lines, display, predictions for the mask sentence, numbers from inside the model, forecast.

Nothing here changes the run. Drawing, predictions and inspections are each limited to a share of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.models.model import Model
from glassbert.training.budget import Allowance, Clock, Interval
from glassbert.training.display import Display, Status
from glassbert.training.evaluate import Evaluation, evaluation_mode
from glassbert.training.fill_mask import answer, ask, word_model
from glassbert.training.history import FORECAST_FROM, forecast_final_loss
from glassbert.training.log import RunLog
from glassbert.training.step_results import ParameterNorms

LINES = 1_000  # "train" lines in the log of a whole run
SMOOTHING = 0.97
SPEED_WINDOW = 10.0  # seconds
ENTROPY_ROWS = 4
NOT_INPUTS = ("labels", "pair_labels")


class Monitor:
    """Receives every step and evaluation of a run; writes the log and updates the display."""

    def __init__(
        self, model: Model, tokenizer: Any, clock: Clock, log: RunLog, display: Display, sentence: str, title: str
    ):
        self.model, self.tokenizer, self.clock, self.log, self.display = model, tokenizer, clock, log, display
        self.status = Status(title=title, sentence=sentence)
        self.log_interval = Interval(None, LINES)
        self.drawing = Allowance(0.005, least=0.25)
        self.filling = Allowance(0.004, least=1.0)
        self.inspecting = Allowance(0.005, least=5.0)
        self.flops_per_token = 0.0
        self.matmul_rate = 0.0  # operations per second
        self._question = ask(model, tokenizer, sentence) if sentence else None
        if self._question is not None and self._question.ids.shape[1] > model.config.max_length:
            self._question = None
        self._unlogged: list[tuple[float, float]] = []  # loss and gradient norm of the steps since the last log line
        self._speed_marks: list[tuple[float, int]] = []  # seconds and tokens
        self._evaluations: list[Mapping[str, Any]] = []  # as in the log

    def restore(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Restore curves and smoothed loss from the log of a resumed run."""
        status = self.status
        for line in lines:
            if line["kind"] == "train" and isinstance(line["loss"], float):
                status.curve.append(line["loss"])
                self._smooth(line["loss"])
            elif line["kind"] == "evaluation":
                status.held_out.append((line["loss"], line["accuracy"]))
                status.parts = {name: (o["loss"], o["accuracy"]) for name, o in line.get("parts", {}).items()}
                self._evaluations.append(line)
            elif line["kind"] == "sample":
                status.history.append((line["progress"], line["answers"][0][0]))

    def step(
        self, step: int, tokens: int, before: float, after: float, loss: float, norm: float, learning_rate: float
    ) -> None:
        """Record a step: its loss, its gradient norm, and the progress before and after it."""
        status = self.status
        status.step, status.tokens, status.progress = step, tokens, after
        seconds = status.seconds = self.clock.elapsed
        status.learning_rate = learning_rate
        if np.isfinite(loss) and np.isfinite(norm):
            status.loss, status.gradient_norm = loss, norm
            self._smooth(loss)
            self._unlogged.append((loss, norm))
        self._measure_speed(seconds, tokens)
        if self._unlogged and self.log_interval.due(step, before, after):
            self._write_line(step, seconds)
        if self.drawing.permits(seconds):
            with self.drawing.spending(self.clock):
                self.display.update(status)

    def _write_line(self, step: int, seconds: float) -> None:
        status = self.status
        losses, norms = zip(*self._unlogged, strict=True)
        self._unlogged.clear()
        mean = float(np.mean(losses))
        status.curve.append(mean)
        self.log.write(
            "train", step, seconds, progress=status.progress, loss=mean, gradient_norm=float(np.mean(norms)),
            largest_gradient_norm=max(norms), learning_rate=status.learning_rate, tokens=status.tokens,
            tokens_per_second=status.tokens_per_second,
        )  # fmt: skip

    def filling_due(self) -> bool:
        return self._question is not None and self.filling.permits(self.clock.elapsed)

    def fill_sentence(self) -> None:
        """Predict the [MASK] of the sentence with the current weights; show and log the best words."""
        if self._question is None:
            return
        with self.filling.spending(self.clock):
            try:
                found = answer(word_model(self.model), self.tokenizer, self._question)[0]
            except InputError:  # the scores are not finite; the run says so itself
                return
        self.status.answers = [(one.word, one.chance) for one in found]
        self.status.history.append((self.status.progress, found[0].word))
        self.log.write(
            "sample", self.status.step, self.clock.elapsed, progress=self.status.progress,
            answers=[[one.word, one.chance] for one in found],
        )  # fmt: skip

    def inspection_due(self) -> bool:
        return self.inspecting.permits(self.clock.elapsed)

    def inspect(self, inputs: Mapping[str, Any], norms: ParameterNorms, metrics: Mapping[str, Any]) -> None:
        """Log gradient norm and update ratio by module, attention entropy by layer, and the metrics of the step."""
        self.log.write(
            "inside", self.status.step, self.clock.elapsed, progress=self.status.progress,
            gradient_norm=norms.gradient_norms(), update_ratio=norms.update_ratios(),
            attention_entropy=attention_entropies(self.model, inputs),
            metrics={name: float(value) for name, value in metrics.items()},
        )  # fmt: skip

    def evaluation(self, found: Evaluation, length: int) -> None:
        """Record held-out losses and accuracies, measured on rows of this length, and update the forecast."""
        self._held_out(found)
        line = {"progress": self.status.progress, "loss": found.loss, "accuracy": found.accuracy, "length": length}
        parts = {"parts": found.parts} if found.parts else {}
        self._evaluations.append(line)
        self.log.write("evaluation", self.status.step, self.clock.elapsed, tokens=self.status.tokens, **line, **parts)
        if found.comparable == found.loss:
            self._forecast()

    def _held_out(self, found: Evaluation) -> None:
        self.status.held_out.append((found.loss, found.accuracy))
        self.status.parts = {name: (one["loss"], one["accuracy"]) for name, one in found.parts.items()}

    def final(self, found: Evaluation, weights: str, weights_step: int, by_source: dict[str, Any]) -> None:
        """Record the last evaluation, that of the chosen weights on more rows."""
        self._held_out(found)
        self.status.left = None
        self.fill_sentence()
        self.log.write(
            "final", self.status.step, self.clock.elapsed, loss=found.loss, accuracy=found.accuracy, weights=weights,
            weights_step=weights_step, by_source=by_source, **({"parts": found.parts} if found.parts else {}),
        )  # fmt: skip
        self.display.update(self.status, last=True)

    def event(self, text: str, **values: Any) -> None:
        """Show and log an unusual event."""
        self.display.say(text)
        self.log.write("event", self.status.step, self.clock.elapsed, text=text, **values)

    def _forecast(self) -> None:
        if self.status.progress < FORECAST_FROM or self.status.progress >= 1:
            return
        found = forecast_final_loss(self._evaluations)
        if found is not None:
            self.status.forecast = found
            self.log.write(
                "forecast", self.status.step, self.clock.elapsed, progress=self.status.progress, **found._asdict()
            )

    def _smooth(self, loss: float) -> None:
        old = self.status.smoothed
        self.status.smoothed = loss if old is None else SMOOTHING * old + (1 - SMOOTHING) * loss

    def _measure_speed(self, seconds: float, tokens: int) -> None:
        """Tokens per second over the last seconds, with the time for evaluation and saving."""
        marks = self._speed_marks
        if not marks or seconds - marks[-1][0] >= 0.2:
            marks.append((seconds, tokens))
            while len(marks) > 2 and marks[1][0] < seconds - SPEED_WINDOW:
                marks.pop(0)
        if len(marks) > 1:
            (a, before), (b, after) = marks[0], marks[-1]
            self.status.tokens_per_second = (after - before) / (b - a)
            if self.matmul_rate:
                self.status.matmul_share = self.status.tokens_per_second * self.flops_per_token / self.matmul_rate


def attention_entropies(model: Model, inputs: Mapping[str, Any]) -> dict[str, float]:
    """The attention entropy of each layer on the first rows of a batch, from 0 (one token) to 1 (uniform).

    Dropout is off, and the random state of the run is not changed.
    """
    few = {name: value[:ENTROPY_ROWS] for name, value in inputs.items() if value is not None and name not in NOT_INPUTS}
    with evaluation_mode(model):
        cache = model.run(model.check(**few))
        cache.encode()
        names = [f"layers.{i}" for i in range(model.config.num_hidden_layers)]
        weights = (model.engine.to_numpy(cache[f"{name}.attention.weights"]) for name in names)
        return {name: entropy(np.asarray(array, np.float32)) for name, array in zip(names, weights, strict=True)}


def entropy(weights: np.ndarray) -> float:
    """The mean entropy of attention rows [..., T, T], each divided by that of a uniform row.

    Queries that attend to at most one key are left out.
    """
    visible = (weights > 0).sum(-1)
    found = -(weights * np.log(np.maximum(weights, 1e-30))).sum(-1)
    several = visible > 1
    return float((found[several] / np.log(visible[several])).mean()) if several.any() else 0.0
