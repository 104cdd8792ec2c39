"""The suite "cost": throughput, latency by length, memory, parameters and operations.

Times are measured on this machine: the median of several passes, with quartiles, after one warm-up pass. Sizes and
operations are computed from the config and do not depend on the machine.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from glassbert.evaluation.encoding import encoder_output, random_rows
from glassbert.evaluation.measures import Measure, write
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options, SuiteResult, suite
from glassbert.models.flops import forward_flops, training_flops
from glassbert.training.evaluate import evaluation_mode
from glassbert.training.run_folder import machine_facts

LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 8_192)
BATCH_TOKENS = 4_096
SECONDS, QUICK_SECONDS = 2.0, 0.4  # for each figure
MIN_PASSES = 5


@suite("cost", title="Cost", effort=2)
def cost(subject: Subject, options: Options) -> SuiteResult:
    """Tokens per second, latency by length, memory, parameters and operations."""
    if subject.model.config.series is not None:
        raise DoesNotApply("this is a time series model; the suite needs a text model")
    model, config = subject.model, subject.model.config
    seconds = QUICK_SECONDS if options.quick else SECONDS
    length = min(128, subject.max_length)
    rows = max(1, BATCH_TOKENS // length)
    ids = random_rows(subject, rows, length)
    lengths = [n for n in LENGTHS if n <= subject.max_length and (not options.quick or n <= 512)]
    result = SuiteResult(notes=[_machine(subject)])
    with evaluation_mode(model):
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
        _median("tokens a second", tokens / passes, "", True, f"encoder, {rows} rows of {length} tokens"),
        Measure("parameters", subject.parameters, higher_is_better=None,
                note=f"{subject.parameters * 4 / 2**20:,.0f} MiB in float32"),
        Measure("operations a token, forward", flops, unit="FLOP", higher_is_better=False,
                note=f"encoder without head, {length} tokens"),
        *([_training(subject, length)] if subject.model.head and subject.model.head.decodes else []),
        Measure("memory of a pass", memory / 2**20, unit="MiB", higher_is_better=False,
                note=f"arrays without the weights, {rows} rows of {length} tokens"),
        *(
            _median(f"{n:,} tokens", 1e3 * taken, "ms", False, "one row", group="latency by length")
            for n, taken in zip(lengths, latencies, strict=True)
        ),
    ]  # fmt: skip
    return result


def _training(subject: Subject, length: int) -> Measure:
    head: Any = subject.model.head
    scored = round(length * head.scored_share)
    flops = training_flops(subject.model.config, 1, length, head=head.kind, scored_rows=scored) / length
    note = f"forward and backward, decoder at {scored} of {length} tokens"
    return Measure("operations a token, training", flops, unit="FLOP", higher_is_better=False, note=note)


def timed(action: Callable[[], object], seconds: float) -> np.ndarray:
    """[passes] seconds per pass, for at least `seconds` and MIN_PASSES passes; one more pass before is the warm-up."""
    action()
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < MIN_PASSES or (time.perf_counter() < until and len(found) < 200):
        started = time.perf_counter()
        action()
        found.append(time.perf_counter() - started)
    return np.array(found)


def peak_memory(subject: Subject, ids: np.ndarray) -> float:
    """Peak bytes of arrays during a pass, from tracemalloc or from MLX."""
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
    return encoder_output(subject.model, ids)


def _median(name: str, values: np.ndarray, unit: str, higher: bool, note: str, group: str = "") -> Measure:
    """The median, with the quartiles in its note. They are no 95 % interval, so they are not its `interval`."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    spread = f"half of the passes {write(low, '')} to {write(high, unit)}"
    return Measure(name, middle, None, unit, higher, f"{note}; {spread}", group=group)


def _machine(subject: Subject) -> str:
    facts, engine = machine_facts(), subject.model.engine
    where = facts.get("accelerator") if engine.name == "mlx" and facts.get("accelerator") else facts["processor"]
    return (
        f"{engine.name} {engine.dtype_name} with {engine.threads} threads on {where}; other running programs make it "
        "slower"
    )
