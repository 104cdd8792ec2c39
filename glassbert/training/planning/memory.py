"""The memory of a training step by batch, and what this machine has."""

from __future__ import annotations

from typing import Any, NamedTuple

from glassbert.engines.machine import inspect_machine
from glassbert.models.memory import training_numbers
from glassbert.training.building import TrainingComponents

PROCESS = 150 << 20  # bytes of Python and its libraries


class BatchMemory(NamedTuple):
    """Bytes of a step with this many rows at a time, without and with gradient checkpointing."""

    rows: int
    bytes: int
    with_checkpointing: int


def memory_by_batch(components: TrainingComponents) -> list[BatchMemory]:
    """For the batch of the run, half of it, and so on, and larger ones."""
    settings = components.settings
    own = settings.physical_batch or settings.batch
    batches = sorted({max(1, round(own * 2.0**power)) for power in (-4, -2, -1, 0, 1, 2, 4)})
    return [BatchMemory(rows, *(step_bytes(components, rows, again) for again in (False, True))) for rows in batches]


def step_bytes(components: TrainingComponents, rows: int, checkpointing: bool) -> int:
    """Weights, gradients, optimizer state, average, and what a pass over `rows` rows keeps."""
    model, settings = components.model, components.settings
    number = 8 if settings.precision == "float64" else 4
    copies = 2 + len(components.optimizer.state) + (components.average is not None)
    activation = model.engine.bytes_kept
    head: Any = model.head
    numbers = training_numbers(model.config, rows, settings.length, head.kind, checkpointing, model.engine.threads)
    return int(PROCESS + model.get_parameter_count() * number * copies + activation * numbers)


def memory_of_machine(components: TrainingComponents) -> int | None:
    """The bytes that the device of the run has, or None where they are unknown."""
    if components.model.engine.compiles:
        import mlx.core as mx

        known = mx.device_info() if hasattr(mx, "device_info") else {}
        size = known.get("memory_size") or known.get("total_memory")
        if size:
            return int(size)
    return inspect_machine().usable_memory
