"""What each matrix costs: the change of the output when it alone is quantised.

    cost = ‖o - ô‖ / ‖o - mean of o‖         over the outputs o of the model on some texts

0 is no change; 1 is an output as far away as that of another text. Costs need no labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.models.model import Model
from glassbert.models.quantized import QuantizedModel, on_engine
from glassbert.quantization.calibration import Activations, batches, segments
from glassbert.quantization.model import quantize_parameter
from glassbert.quantization.settings import QuantizationSettings, quantizable
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.evaluate import evaluation_mode

OnProgress = Callable[[int, int, str], None]
LENGTH = 64


def nothing(done: int, total: int, what: str) -> None:
    """No progress is shown."""


@dataclass(frozen=True)
class Cost:
    """One matrix: its change of the output in 4 and 8 bits, and its bytes as floats."""

    name: str
    shape: tuple[int, ...]
    cost: dict[int, float]
    numbers: int


def outputs_of(model: Model, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The outputs for batches of ids and masks, as one flat array; those of padding are zero."""
    found = []
    with evaluation_mode(model):
        for ids, mask in rows:
            output = model.predict(ids, mask, **segments(model, mask))
            for part in output.values() if isinstance(output, dict) else [output]:
                values = np.asarray(model.engine.to_numpy(part), np.float32)
                if values.ndim == 3 and values.shape[1] == mask.shape[1]:
                    values = values * mask[:, :, None]
                found.append(values.reshape(-1, values.shape[-1]))
    widths = {part.shape[1] for part in found}
    return np.concatenate(found if len(widths) == 1 else [part.reshape(-1, 1) for part in found])


def distance(exact: np.ndarray, other: np.ndarray) -> float:
    """‖o - ô‖ / ‖o - mean‖"""
    spread = float(np.linalg.norm(exact - exact.mean(0)))
    return float(np.linalg.norm(exact - other)) / max(spread, 1e-30)


def costs_of(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    settings: QuantizationSettings,
    activations: dict[str, Activations] | None = None,
    bits: Sequence[int] = (8, 4),
    progress: OnProgress = nothing,
) -> list[Cost]:
    """The cost of every matrix, in the order of the model."""
    rows = batches(tokenizer, texts, min(LENGTH, model.config.max_length))
    exact = outputs_of(model, rows)
    names = quantizable(model)
    found = []
    for done, name in enumerate(names):
        progress(done, len(names), name)
        cost = {}
        for wanted in bits:
            seen: Any = (activations or {}).get(name)
            weight = on_engine(quantize_parameter(model, name, wanted, settings, seen), model.engine)
            cost[wanted] = distance(exact, outputs_of(QuantizedModel(model, {name: weight}), rows))
        shape = model.layout.shapes[name]
        found.append(Cost(name, shape, cost, int(np.prod(shape))))
    progress(len(names), len(names), "")
    return found
