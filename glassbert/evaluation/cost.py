"""Cost: what it takes to use the model. Speed and latency by length, memory, parameters, arithmetic.

Times are of this machine in this hour: each is the median of several passes, with the quartiles beside it, after a
first one that does not count. Sizes and operations are computed from the config and hold everywhere.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from glassbert.evaluation.encoding import hidden_states, random_rows
from glassbert.evaluation.measures import Measure, write
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options, SuiteResult, suite
from glassbert.models.flops import forward_flops, training_flops
from glassbert.models.memory import MASKED_SHARE
from glassbert.training.evaluate import quietly
from glassbert.training.receipt import machine_facts

LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 8_192)
BATCH_TOKENS = 4_096
SECONDS, QUICK_SECONDS = 2.0, 0.4  # for each figure
FEWEST_PASSES = 5


@suite("cost", title="Cost")
def cost(subject: Subject, options: Options) -> SuiteResult:
    """Tokens a second, latency by length, memory, parameters and operations."""
    if subject.model.config.series is not None:
        raise DoesNotApply("this model reads numbers, not words")
    model, config = subject.model, subject.model.config
    seconds = QUICK_SECONDS if options.quick else SECONDS
    length = min(128, subject.longest)
    rows = max(1, BATCH_TOKENS // length)
    ids = random_rows(subject, rows, length)
    lengths = [n for n in LENGTHS if n <= subject.longest and (not options.quick or n <= 512)]
    result = SuiteResult(notes=[_machine(subject)])
    with quietly(model):
        passes = timed(lambda: _encode(subject, ids), seconds)
        options.progress(1, len(lengths) + 2, "speed")
        memory = peak_memory(subject, ids)
        options.progress(2, len(lengths) + 2, "memory")
        latencies = []
        for done, n in enumerate(lengths, 3):
            row = random_rows(subject, 1, n)
            latencies.append(timed(lambda row=row: _encode(subject, row), seconds / 2))  # type: ignore[misc]
            options.progress(done, len(lengths) + 2, "latency")
    tokens = ids.size
    flops = sum(forward_flops(config, 1, length).values()) / length
    result.rows = [
        _between("tokens a second", tokens / passes, "", True, f"encoder, {rows} rows of {length} tokens"),
        Measure("parameters", subject.parameters, higher_is_better=None,
                note=f"{subject.parameters * 4 / 2**20:,.0f} MiB in float32"),
        Measure("operations a token, forward", flops, unit="FLOP", higher_is_better=False,
                note=f"encoder alone, {length} tokens"),
        *([_training(subject, length)] if subject.fills_masks else []),
        Measure("memory of a pass", memory / 2**20, unit="MiB", higher_is_better=False,
                note=f"arrays beside the weights, {rows} rows of {length} tokens"),
        *(
            _between(f"{n:,} tokens", 1e3 * taken, "ms", False, "one row", group="latency by length")
            for n, taken in zip(lengths, latencies, strict=True)
        ),
    ]  # fmt: skip
    return result


def _training(subject: Subject, length: int) -> Measure:
    flops = training_flops(subject.model.config, 1, length, scored_rows=round(length * MASKED_SHARE)) / length
    note = "forward and backward with the masked words scored"
    return Measure("operations a token, training", flops, unit="FLOP", higher_is_better=False, note=note)


def timed(action: Callable[[], object], seconds: float) -> np.ndarray:
    """[passes] seconds each, for at least so long and so many; the first one warms up and does not count."""
    action()
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < FEWEST_PASSES or (time.perf_counter() < until and len(found) < 200):
        begun = time.perf_counter()
        action()
        found.append(time.perf_counter() - begun)
    return np.array(found)


def peak_memory(subject: Subject, ids: np.ndarray) -> float:
    """Bytes of arrays alive at once during a pass: counted by Python's own book-keeping, or by MLX's."""
    if subject.model.engine.name == "mlx":
        import mlx.core as mx

        before = mx.get_active_memory()
        mx.reset_peak_memory()
        _encode(subject, ids)
        return float(mx.get_peak_memory() - before)
    tracemalloc.start()
    try:
        _encode(subject, ids)
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def _encode(subject: Subject, ids: np.ndarray) -> np.ndarray:
    return hidden_states(subject.model, ids)


def _between(name: str, values: np.ndarray, unit: str, higher: bool, note: str, group: str = "") -> Measure:
    """The median, with the quartiles in its note: they are no interval of 95 %, and must not look like one."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    spread = f"half of the passes {write(low, '')} to {write(high, unit)}"
    return Measure(name, middle, None, unit, higher, f"{note}; {spread}", group=group)


def _machine(subject: Subject) -> str:
    facts, engine = machine_facts(), subject.model.engine
    where = facts.get("accelerator") if engine.name == "mlx" and facts.get("accelerator") else facts["processor"]
    return (
        f"{engine.name} {engine.dtype_name} with {engine.threads} threads on {where}; other programs may have taken "
        "their share of the time"
    )
