"""What each matrix costs: the change of the output when it alone is quantised.

    cost = ‖o - ô‖ / ‖o - mean of o‖         over the outputs o of the model on some examples

0 is no change; 1 is an output as far away as that of another example. Where the outputs are all alike, as those of one
example, the change is relative to ‖o‖. Costs need no labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.models.model import Model
from glassbert.models.quantized import QuantizedModel, on_engine
from glassbert.quantization.calibration import Activations, Inputs
from glassbert.quantization.model import quantize_parameter
from glassbert.quantization.settings import QuantizationSettings, quantizable
from glassbert.training.evaluate import evaluation_mode

OnProgress = Callable[[int, int, str], None]
NUMBERS = 1 << 22  # of outputs that are kept
ALIKE = 1e-3  # outputs whose spread is a smaller share of their size are alike


def nothing(done: int, total: int, what: str) -> None:
    """No progress is shown."""


@dataclass(frozen=True)
class Cost:
    """One matrix: its change of the output in 4 and 8 bits, and its bytes as floats."""

    name: str
    shape: tuple[int, ...]
    cost: dict[int, float]
    numbers: int


def outputs_of(model: Model, batches: Sequence[Inputs]) -> np.ndarray:
    """Outputs for these inputs, [rows, width]: one row a text or, of words, a token that is no padding.

    Of many words with many scores, evenly chosen rows are kept, `NUMBERS` numbers in all.
    """
    found = []
    with evaluation_mode(model):
        for inputs in batches:
            output = model.predict(**inputs)
            mask = np.asarray(inputs["attention_mask"]) == 1
            for part in output.values() if isinstance(output, dict) else [output]:
                values = np.asarray(model.engine.to_numpy(part), np.float32)
                if values.ndim == 3:  # of tokens: [B, T, outputs], or of spans [B, 2, T]
                    values = (values if values.shape[:2] == mask.shape else np.moveaxis(values, 1, 2))[mask]
                most = max(1, NUMBERS // (len(batches) * values.shape[-1]))
                found.append(np.array(values[:: -(-len(values) // most)]))
    widths = {part.shape[1] for part in found}
    return np.concatenate(found if len(widths) == 1 else [part.reshape(-1, 1) for part in found])


def distance(exact: np.ndarray, other: np.ndarray) -> float:
    """‖o - ô‖ / ‖o - mean‖"""
    size, spread = float(np.linalg.norm(exact)), float(np.linalg.norm(exact - exact.mean(0)))
    reference = spread if spread > ALIKE * size else size
    return float(np.linalg.norm(exact - other)) / reference if reference > 0 else 0.0


def costs_of(
    model: Model,
    batches: Sequence[Inputs],
    settings: QuantizationSettings,
    activations: dict[str, Activations] | None = None,
    bits: Sequence[int] = (8, 4),
    progress: OnProgress = nothing,
) -> list[Cost]:
    """The cost of every matrix, in the order of the model."""
    exact = outputs_of(model, batches)
    names = quantizable(model)
    found = []
    for done, name in enumerate(names):
        progress(done, len(names), name)
        cost = {}
        for wanted in bits:
            seen: Any = (activations or {}).get(name)
            weight = on_engine(quantize_parameter(model, name, wanted, settings, seen), model.engine)
            cost[wanted] = distance(exact, outputs_of(QuantizedModel(model, {name: weight}), batches))
        shape = model.layout.shapes[name]
        found.append(Cost(name, shape, cost, int(np.prod(shape))))
    progress(len(names), len(names), "")
    return found
