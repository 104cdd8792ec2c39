"""The seconds of a run: measured steps, evaluations and checkpoints, put together as the trainer runs them.

    before the first step   opening, compiling, an evaluation and a checkpoint
    training                steps · seconds of a step, and what monitoring takes
    on the way              evaluations, each with a checkpoint where it is the best so far, and further checkpoints
    the end                 `Costs.of_ending`: two evaluations, that of every source, the last checkpoint, the report

`measure` times these parts on this machine with a few real steps; a run that has begun uses its own (`receipt`).
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import TrainingError
from glassbert.models.config import EncoderConfig
from glassbert.models.flops import training_flops
from glassbert.reports import figures
from glassbert.text.batches import Batch
from glassbert.training.budget import CHECKPOINTS, EVALUATIONS, Costs, times_in_a_run
from glassbert.training.building import TrainingComponents
from glassbert.training.data import HELD_OUT_BATCH, TrainingData
from glassbert.training.settings import TrainingSettings

STEPS = 5  # timed at least, after two that warm up
SECONDS = 2.0  # timed at least, where a step is short
MOST_SECONDS = 20.0
MONITORING = 0.025  # of the training time: display, predictions, norms, reports on the way
OPENING = 0.3  # seconds besides the measured ones: the rate of a matrix product, files of the run
REPORT_FIGURES = 13  # a report takes as long as so many plain curves
PLAIN_REPORT = 0.1  # seconds, without figures
SAVE_RATE_BYTES = 16 << 20  # written to measure the disk


@dataclass(frozen=True)
class Timing:
    """The measured parts of a run's time, in seconds. `costs` has those of a row, a checkpoint and a report."""

    before: float  # before the first step
    step: float  # mean over the run
    costs: Costs

    def of_steps(self, steps: int, settings: TrainingSettings) -> float:
        """The seconds of a run of this many steps."""
        kind, amount = settings.budget
        if kind == "minutes":  # the intervals of such a run follow from its minutes
            times = lambda most: times_in_a_run("minutes", amount, 1, most)  # noqa: E731
        else:
            times = lambda most: times_in_a_run("steps", steps, 1, most)  # noqa: E731
        evaluations = steps // settings.evaluate_every if settings.evaluate_every else times(EVALUATIONS) - 1
        checkpoints = steps // settings.checkpoint_every if settings.checkpoint_every else times(CHECKPOINTS) - 1
        seconds = self.costs.seconds
        evaluating = evaluations * self.costs.evaluation_rows(settings) * seconds["row"]
        saving = max(evaluations, checkpoints) * seconds["save"]
        training = steps * self.step * (1 + MONITORING)
        return self.before + training + evaluating + saving + self.costs.of_ending(settings)

    def steps_in(self, seconds: float, settings: TrainingSettings) -> int:
        """The steps that fit into the seconds; 0 where not even one does."""
        fixed = self.of_steps(0, settings)
        return max(0, int((seconds - fixed) / (self.step * (1 + MONITORING))))


def measure(
    settings: TrainingSettings,
    data: TrainingData,
    on_message: Callable[[str], None] = lambda text: None,
    opening: float = 0.0,
) -> tuple[Timing, TrainingComponents]:
    """Time the parts of a run with these settings. The weights are discarded.

    `opening` are the seconds that it took to open the data.
    """
    began = time.perf_counter()
    components = TrainingComponents(settings, data)
    opening += OPENING + time.perf_counter() - began
    on_message(f"Timing steps of {components.model.get_parameter_count():,} parameters")
    compiling = 0.0
    if components.model.engine.compiles:
        began = time.perf_counter()
        components.compile_step(data.sources[data.length_at(0.0)].batch(0, 0))
        compiling = time.perf_counter() - began
    costs = components.costs
    costs.seconds["step"] = step = mean_step(components, data)
    on_message("Timing evaluation and saving")
    batch = next(iter(data.held_out(costs.evaluation_rows(settings))))
    components.evaluate([batch])
    with costs.measuring("row", len(batch)):
        components.evaluate([batch])
    costs.seconds["save"] = _time_to_save(components.checkpoint_bytes)
    costs.seconds["report"] = time_report()
    before = opening + compiling + costs.evaluation_rows(settings) * costs.seconds["row"] + costs.seconds["save"]
    return Timing(before, step, costs), components


def mean_step(components: TrainingComponents, data: TrainingData) -> float:
    """The mean seconds of a step over a run, with rows of every length, each at the mean masking rate of its part."""
    share = data.short_share
    parts = [(max(data.sources), 1 - share, (1 + share) / 2)]
    if share:
        parts.append((min(data.sources), share, share / 2))
    rate_at = components.settings.mask_rate_at
    return sum(weight * time_step(components, data, length, rate_at(middle)) for length, weight, middle in parts)


def time_step(components: TrainingComponents, data: TrainingData, length: int, mask_rate: float | None = None) -> float:
    """The median seconds of a step with rows of this length."""
    inputs = components.inputs(data.sources[length].batch(0, 0, mask_rate=mask_rate))
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 2 + STEPS or time.perf_counter() - began < SECONDS:
        now = time.perf_counter()
        float(components.step(**inputs).loss)
        times.append(time.perf_counter() - now)
        if time.perf_counter() - began > MOST_SECONDS and len(times) > 2:
            break
    return statistics.median(times[min(2, len(times) - 1) :])


def _time_to_save(size: int) -> float:
    """The seconds that a checkpoint of `size` bytes takes, from a smaller file that is written and synchronised."""
    written = min(size, SAVE_RATE_BYTES)
    with tempfile.TemporaryDirectory(prefix="glassbert-plan-") as folder:
        began = time.perf_counter()
        with open(Path(folder) / "file", "wb") as file:
            file.write(b"\1" * written)
            file.flush()
            os.fsync(file.fileno())
        seconds = time.perf_counter() - began
    return 0.05 + seconds * size / max(written, 1)


def time_report() -> float:
    """The seconds that a report takes here, from two figures; the first may have to load the plotting library."""
    if not figures.available():
        return PLAIN_REPORT
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        figures.to_svg(figures.lines({"": (list(range(100)), list(range(100)))}))
        seconds.append(time.perf_counter() - began)
    return seconds[0] + REPORT_FIGURES * seconds[1]


def relative_cost(config: EncoderConfig, settings: TrainingSettings, length: int, mask_rate: float) -> float:
    """The mean FLOP per token over a run, relative to those of a step with this row length and masking rate."""

    def flops(at_length: int, rate: float) -> float:
        rows = settings.batch * settings.length // at_length
        scored = round(rows * at_length * rate)
        return training_flops(config, rows, at_length, scored_rows=scored)

    def at(progress: float) -> float:
        short = settings.short_length is not None and progress < settings.short_share
        return flops(settings.short_length if short else settings.length, settings.mask_rate_at(progress))  # type: ignore[arg-type]

    return float(np.mean([at(p) for p in np.linspace(0.05, 0.95, 10)])) / flops(length, mask_rate)


# ---- without a corpus ----------------------------------------------------------------------------------------------


class RandomRows:
    """Batches of random words: they take as long as real ones."""

    def __init__(self, rows: int, length: int, vocabulary: int, batches: int):
        self.rows, self.length, self.vocabulary, self.batches = rows, length, vocabulary, batches

    def __len__(self) -> int:
        return self.batches

    def batch(self, epoch: int, index: int, *, rows: slice | None = None, mask_rate: float | None = None) -> Batch:
        random = np.random.default_rng([epoch, index])
        shape = (self.rows, self.length)
        ids = random.integers(5, self.vocabulary, shape, np.int32)
        labels = np.where(random.random(shape) < (mask_rate or 0.15), ids, -100).astype(np.int32)
        positions = np.broadcast_to(np.arange(self.length, dtype=np.int32), shape).copy()
        whole = Batch(ids, labels, np.ones(shape, np.int32), positions)
        return whole if rows is None else whole.rows(rows)


@dataclass(frozen=True)
class RandomTokenizer:
    vocab_size: int
    pad_id: int = 0
    sep_id: int = 3


def random_data(settings: TrainingSettings) -> TrainingData:
    """Data of random words in place of a corpus that is not built yet."""
    if "pair" in settings.objective or any(name in settings.objective for name in ("nsp", "sop")):
        raise TrainingError("a plan of sentence pairs (nsp, sop) needs a corpus folder; name it with --corpus")
    lengths = [settings.length] if settings.short_length is None else [settings.short_length, settings.length]
    rows = {length: settings.batch * settings.length // length for length in lengths}
    vocabulary = settings.vocab_size
    held_out = max(1, math.ceil(settings.final_evaluation_rows / HELD_OUT_BATCH))
    whole = HELD_OUT_BATCH * settings.length
    data: dict[str, Any] = {
        "tokenizer": RandomTokenizer(vocabulary),
        "sources": {length: RandomRows(rows[length], length, vocabulary, 1_000) for length in lengths},
        "rows": rows,
        "validation": {length: RandomRows(whole // length, length, vocabulary, held_out) for length in lengths},
        "fingerprint": "",
        "short_share": settings.short_share if settings.short_length is not None else 0.0,
    }
    return TrainingData(**data)
