"""Watching a run: the log, the display, answers to the mask sentence, looks inside, and the forecast.

Nothing here changes the run, and everything here has an allowance: a share of the time that it may cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from glassbert.models.model import Model
from glassbert.training.attention_entropy import attention_entropies
from glassbert.training.clock import Allowance, Clock, Pace
from glassbert.training.display import Display, Status
from glassbert.training.fill_mask import answers, question
from glassbert.training.forecast import FIRST, forecast
from glassbert.training.log import RunLog
from glassbert.training.results import Watched

LINES = 1_000  # of the log, for the steps of a whole run
SMOOTHING = 0.97
SPEED_OVER = 10.0  # seconds


class Watcher:
    """Is told of every step and decides what is worth writing, drawing and looking at."""

    def __init__(
        self, model: Model, tokenizer: Any, clock: Clock, log: RunLog, display: Display, sentence: str, title: str
    ):
        self.model, self.tokenizer, self.clock, self.log, self.display = model, tokenizer, clock, log, display
        self.status = Status(title=title, sentence=sentence)
        self.lines = Pace(None, LINES)
        self.drawing = Allowance(0.005, least=0.25)
        self.asking = Allowance(0.004, least=1.0)
        self.looking = Allowance(0.005, least=5.0)
        self.flops_per_token = 0.0
        self.matmul_rate = 0.0  # operations a second
        self._question = question(tokenizer, sentence) if sentence else None
        if self._question is not None and self._question.shape[1] > model.config.max_position_embeddings:
            self._question = None
        self._since: list[tuple[float, float]] = []  # loss and norm of the steps since the last line
        self._marks: list[tuple[float, int]] = []  # seconds and tokens, for the speed
        self._evaluations: list[Mapping[str, Any]] = []  # as the log has them

    def restore(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take up the curves of a log that a resumed run goes on writing."""
        status = self.status
        for line in lines:
            if line["kind"] == "train" and isinstance(line["loss"], float):
                status.curve.append(line["loss"])
                self._smooth(line["loss"])
            elif line["kind"] == "evaluation":
                status.held_out.append((line["loss"], line["accuracy"]))
                self._evaluations.append(line)
            elif line["kind"] == "sample":
                status.history.append((line["progress"], line["answers"][0][0]))

    def step(
        self, step: int, tokens: int, before: float, after: float, loss: float, norm: float, learning_rate: float
    ) -> None:
        """A step has been read: its loss, its norm, and how far the run was before and after it."""
        status = self.status
        status.step, status.tokens, status.progress = step, tokens, after
        seconds = status.seconds = self.clock.elapsed
        status.learning_rate = learning_rate
        if np.isfinite(loss) and np.isfinite(norm):
            status.loss, status.gradient_norm = loss, norm
            self._smooth(loss)
            self._since.append((loss, norm))
        self._speed(seconds, tokens)
        if self._since and self.lines.due(step, before, after):
            self._write_line(step, seconds)
        if self.drawing.permits(seconds):
            with self.drawing.spending(self.clock):
                self.display.update(status)

    def _write_line(self, step: int, seconds: float) -> None:
        status = self.status
        losses, norms = zip(*self._since, strict=True)
        self._since.clear()
        mean = float(np.mean(losses))
        status.curve.append(mean)
        self.log.write(
            "train", step, seconds, progress=status.progress, loss=mean, gradient_norm=float(np.mean(norms)),
            largest_gradient_norm=max(norms), learning_rate=status.learning_rate, tokens=status.tokens,
            tokens_per_second=status.tokens_per_second,
        )  # fmt: skip

    def wants_answers(self) -> bool:
        return self._question is not None and self.asking.permits(self.clock.elapsed)

    def ask(self) -> None:
        """What would the model put in place of [MASK] now?"""
        if self._question is None:
            return
        with self.asking.spending(self.clock):
            found = answers(self.model, self.tokenizer, self._question)[0]
        self.status.answers = [(answer.word, answer.chance) for answer in found]
        self.status.history.append((self.status.progress, found[0].word))
        self.log.write(
            "sample", self.status.step, self.clock.elapsed, progress=self.status.progress,
            answers=[[answer.word, answer.chance] for answer in found],
        )  # fmt: skip

    def wants_a_look(self) -> bool:
        return self.looking.permits(self.clock.elapsed)

    def look(self, inputs: Mapping[str, Any], watched: Watched, accuracy: Mapping[str, Any]) -> None:
        """Gradient norm and size of the update by layer, as the step saw them, and the entropy of attention."""
        self.log.write(
            "inside", self.status.step, self.clock.elapsed, progress=self.status.progress,
            gradient_norm=watched.gradient_norms(), update_ratio=watched.update_ratios(),
            attention_entropy=attention_entropies(self.model, inputs),
            metrics={name: float(value) for name, value in accuracy.items()},
        )  # fmt: skip

    def evaluation(self, loss: float, accuracy: float, length: int) -> None:
        """Held-out loss and accuracy, in rows of this length."""
        self.status.held_out.append((loss, accuracy))
        line = {"progress": self.status.progress, "loss": loss, "accuracy": accuracy, "length": length}
        self._evaluations.append(line)
        self.log.write("evaluation", self.status.step, self.clock.elapsed, tokens=self.status.tokens, **line)
        self.foresee()

    def final(self, loss: float, accuracy: float, weights: str, by_source: dict[str, Any]) -> None:
        """The evaluation of the chosen weights on more rows, with which the run ends."""
        self.status.held_out.append((loss, accuracy))
        self.status.left = None
        self.ask()
        self.log.write(
            "final", self.status.step, self.clock.elapsed, loss=loss, accuracy=accuracy, weights=weights,
            by_source=by_source,
        )  # fmt: skip
        self.display.update(self.status, last=True)

    def foresee(self) -> None:
        if self.status.progress < FIRST or self.status.progress >= 1:
            return
        found = forecast(self._evaluations)
        if found is not None:
            self.status.forecast = found
            self.log.write(
                "forecast", self.status.step, self.clock.elapsed, progress=self.status.progress, **found._asdict()
            )

    def event(self, text: str, **values: Any) -> None:
        """Something out of the ordinary, told and logged."""
        self.display.say(text)
        self.log.write("event", self.status.step, self.clock.elapsed, text=text, **values)

    def _smooth(self, loss: float) -> None:
        old = self.status.smoothed
        self.status.smoothed = loss if old is None else SMOOTHING * old + (1 - SMOOTHING) * loss

    def _speed(self, seconds: float, tokens: int) -> None:
        """Tokens a second over the last seconds, pauses for evaluation and saving included."""
        marks = self._marks
        if not marks or seconds - marks[-1][0] >= 0.2:
            marks.append((seconds, tokens))
            while len(marks) > 2 and marks[1][0] < seconds - SPEED_OVER:
                marks.pop(0)
        if len(marks) > 1:
            (a, before), (b, after) = marks[0], marks[-1]
            self.status.tokens_per_second = (after - before) / (b - a)
            if self.matmul_rate:
                self.status.matmul_share = self.status.tokens_per_second * self.flops_per_token / self.matmul_rate
