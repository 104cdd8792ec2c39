"""`plan`: what a run would take and reach on this machine, before it is started.

from glassbert import plan

found = plan(preset="larger", corpus="corpora/mine", minutes=60)
found.seconds, found.tokens, found.expectation.loss, found.best.size
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassbert.errors import TrainingError
from glassbert.models.flops import training_flops
from glassbert.training.building import TrainingComponents
from glassbert.training.data import TrainingData, open_data
from glassbert.training.planning.expectation import Expectation, ExpectedLoss
from glassbert.training.planning.memory import BatchMemory, memory_by_batch, memory_of_machine, step_bytes
from glassbert.training.planning.table import ReferenceRun, count_parameters, read_table, traits_of, without_expectation
from glassbert.training.planning.timing import Timing, mean_step, measure, random_data
from glassbert.training.recipes import config_for, sized
from glassbert.training.settings import TrainingSettings

SIZES = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 24)
NEIGHBOURS = 3  # sizes shown on either side of the planned one
SLOW_STEP = 1.0  # seconds: steps of sizes that take longer are estimated by their FLOP
MIN_STEPS = 20  # fewer are all warm-up


@dataclass(frozen=True)
class SizePlan:
    """One size within the budget. `measured` is false where its speed follows from that of the planned size."""

    size: float
    layers: int
    width: int
    parameters: int
    tokens: int
    seconds: float
    expectation: Expectation | None
    measured: bool


@dataclass(frozen=True)
class Plan:
    """A planned run. `tokens` and `steps` are those that the budget allows."""

    settings: TrainingSettings
    engine: str
    parameters: int
    blocks: int
    steps: int
    tokens: int
    seconds: float
    step_seconds: float
    tokens_per_second: float
    before: float  # seconds before the first step
    ending: float  # seconds of the last evaluation, checkpoint and report
    epoch_tokens: int | None
    memory: tuple[BatchMemory, ...]
    machine_memory: int | None
    expectation: Expectation | None
    reason: str  # why no loss is expected
    sizes: tuple[SizePlan, ...]
    notes: tuple[str, ...]

    @property
    def epoch_seconds(self) -> float | None:
        return self.epoch_tokens / self.tokens_per_second if self.epoch_tokens else None

    @property
    def best(self) -> SizePlan | None:
        """The size with the lowest expected loss within the budget."""
        known = [one for one in self.sizes if one.expectation is not None]
        return min(known, key=lambda one: one.expectation.loss.middle) if known else None  # type: ignore[union-attr]

    @property
    def bytes(self) -> int:
        """The memory of a step of the run."""
        rows = self.settings.physical_batch or self.settings.batch
        found = next(one for one in self.memory if one.rows == rows)
        return found.with_checkpointing if self.settings.gradient_checkpointing else found.bytes

    def as_json(self) -> dict[str, Any]:
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        best = self.best
        return {
            **found,
            "settings": self.settings.to_dict(),
            "memory": [one._asdict() for one in self.memory],
            "expectation": as_json(self.expectation),
            "sizes": [{**dataclasses.asdict(one), "expectation": as_json(one.expectation)} for one in self.sizes],
            "notes": list(self.notes),
            "epoch_seconds": self.epoch_seconds,
            "best_size": best.size if best else None,
        }


def as_json(expectation: Expectation | None) -> dict[str, Any] | None:
    if expectation is None:
        return None
    ranges = {"loss": expectation.loss._asdict(), "accuracy": expectation.accuracy._asdict()}
    return {**ranges, "level": expectation.level, "notes": list(expectation.notes)}


def plan(
    settings: TrainingSettings | None = None,
    *,
    sizes: bool = True,
    table: Iterable[ReferenceRun] | None = None,
    on_message: Callable[[str], None] = lambda text: None,
    **changes: Any,
) -> Plan:
    """The plan of a run with these settings (fields of `TrainingSettings`), measured on this machine.

    `sizes=False` leaves out the comparison with other sizes. `table` replaces the reference runs.
    """
    if settings is None:
        settings = TrainingSettings.from_dict(changes)
    elif changes:
        settings = settings.replace(**changes)
    began = time.perf_counter()
    data, notes = _data(settings)
    timing, components = measure(settings, data, on_message, opening=time.perf_counter() - began)
    batch_tokens = data.tokens_of(settings.length)
    steps, seconds = steps_and_seconds(settings, timing, batch_tokens)
    expected = ExpectedLoss(list(table) if table is not None else read_table())
    reason = without_expectation(settings)
    config = components.model.config
    description = data.description or None
    traits = traits_of(settings, config, steps * batch_tokens, description)
    expectation = None if reason else expected.at(traits)
    split = data.description.get("splits", {}).get("train")
    machine = memory_of_machine(components)
    needed = step_bytes(components, settings.physical_batch or settings.batch, settings.gradient_checkpointing)
    if machine is not None and needed > machine:
        notes.append(
            f"A step needs about {needed / 2**30:.1f} GiB, and this machine has {machine / 2**30:.1f}; use a smaller "
            f"--physical-batch, or --gradient-checkpointing"
        )
    others = _other_sizes(settings, data, components, timing, expected, on_message) if sizes and not reason else ()
    return Plan(
        settings=settings,
        engine=components.model.engine.name,
        parameters=traits.parameters,
        blocks=traits.blocks,
        steps=steps,
        tokens=steps * batch_tokens,
        seconds=seconds,
        step_seconds=timing.step,
        tokens_per_second=batch_tokens / timing.step,
        before=timing.before,
        ending=timing.costs.of_ending(settings),
        epoch_tokens=split["tokens"] if split else None,
        memory=tuple(memory_by_batch(components)),
        machine_memory=machine,
        expectation=expectation,
        reason=reason,
        sizes=tuple(others),
        notes=tuple(notes),
    )


def steps_and_seconds(settings: TrainingSettings, timing: Timing, batch_tokens: int) -> tuple[int, float]:
    """The steps that the budget allows, and the seconds of the run. A budget that is too small is an error."""
    kind, amount = settings.budget
    if kind == "minutes":
        steps = timing.steps_in(60 * amount, settings)
        fixed = timing.of_steps(0, settings)
        if steps < 1 or fixed > 30 * amount:
            enough = max(2 * fixed, fixed + MIN_STEPS * timing.step) / 60
            raise TrainingError(
                f"{amount:g} minutes are too short: opening, evaluating and saving take about {fixed:.0f} seconds "
                f"here, and a step {timing.step:.2g}. Set --minutes to at least {math.ceil(10 * enough) / 10:g}, "
                f"choose a smaller --size, or lower --evaluation-rows"
            )
        return steps, 60 * amount
    steps = round(amount) if kind == "steps" else math.ceil(amount / batch_tokens)
    return steps, timing.of_steps(steps, settings)


def _data(settings: TrainingSettings) -> tuple[TrainingData, list[str]]:
    """The corpus of the run where it is built; random words of the same vocabulary where it is not."""
    paths = [Path(path) for path in settings.corpus]
    missing = [path for path in paths if not path.exists() and not any(mark in str(path) for mark in "*?[:")]
    if missing:
        raise TrainingError(f"there is no corpus {missing[0]}; name a corpus folder or text files with --corpus")
    if len(paths) == 1 and (paths[0] / "manifest.json").exists():
        return open_data(settings, Path()), []
    text = "The corpus is not built yet" if paths else "Without --corpus a run reads the built-in texts"
    note = f"{text}: steps were timed on random words of a vocabulary of {settings.vocab_size:,}"
    return random_data(settings), [f"{note}; `glassbert corpus build` gives epochs too." if paths else f"{note}."]


def _other_sizes(
    settings: TrainingSettings,
    data: TrainingData,
    components: TrainingComponents,
    timing: Timing,
    expected: ExpectedLoss,
    on_message: Callable[[str], None],
) -> Sequence[SizePlan]:
    """The sizes around the planned one, each with the tokens and the loss that the budget allows."""
    batch_tokens = data.tokens_of(settings.length)
    own = _flops(components.model.config, settings)
    shapes = sized(1)
    plain = {name: value for name, value in settings.model.items() if name not in shapes}
    flops = {}
    for size in SIZES:
        changed = settings.replace(size=float(size), model=plain)
        config = config_for(changed, data.tokenizer.vocab_size, data.tokenizer.pad_id)
        flops[size] = (_flops(config, settings), changed, config)
    nearest = min(SIZES, key=lambda size: abs(math.log(flops[size][0] / own)))
    middle = SIZES.index(nearest)
    found = []
    for size in SIZES[max(0, middle - NEIGHBOURS) : middle + NEIGHBOURS + 1]:
        ratio, changed, config = flops[size][0] / own, *flops[size][1:]
        measured = ratio * timing.step < SLOW_STEP
        if measured:
            on_message(f"Timing size {size:g}")
            step = mean_step(TrainingComponents(changed, data), data)
        else:
            step = timing.step * ratio
        scaled = Timing(timing.before, step, timing.costs)
        try:
            steps, seconds = steps_and_seconds(settings, scaled, batch_tokens)
        except TrainingError:
            continue
        traits = traits_of(changed, config, steps * batch_tokens, data.description or None)
        expectation = expected.at(traits) if steps >= MIN_STEPS else None
        layers, width = config.num_hidden_layers, config.hidden_size
        parameters = count_parameters(config, settings.objective)[1]
        found.append(
            SizePlan(size, layers, width, parameters, steps * batch_tokens, seconds, expectation, measured)
        )  # fmt: skip
    return found


def _flops(config: Any, settings: TrainingSettings) -> float:
    scored = round(settings.batch * settings.length * settings.mask_rate_at(0.5))
    return training_flops(config, settings.batch, settings.length, scored_rows=scored)
