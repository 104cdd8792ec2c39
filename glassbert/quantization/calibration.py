"""Calibration: what real text puts into every matrix.

The model runs on some texts with an operation `linear` that looks at its input:

    range         the lowest and highest activation, outliers clipped: for static rounding
    mean square   of every column: which weights matter most
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert import ops
from glassbert.errors import InputError
from glassbert.models.model import Model
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.evaluate import evaluation_mode

KEPT = 0.99999  # the share of activations inside a static range
SAMPLE = 65_536  # activations of one matrix in one batch that the quantiles are taken from
BATCH = 32
LENGTH = 128


@dataclass(frozen=True)
class Activations:
    """What reaches one matrix."""

    range: tuple[float, float]
    mean_square: np.ndarray


class Observer:
    """Collects activations by the name of the matrix that they are multiplied by."""

    def __init__(self, model: Model):
        self.names = {id(values): name for name, values in model.parameters.items()}
        self.low: dict[str, list[float]] = {}
        self.high: dict[str, list[float]] = {}
        self.squares: dict[str, np.ndarray] = {}
        self.rows: dict[str, int] = {}
        self._lock = threading.Lock()

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        name = self.names.get(id(weight))
        if name is not None:
            rows = np.asarray(x).reshape(-1, x.shape[-1])
            some = rows.reshape(-1)[:: max(1, rows.size // SAMPLE)]
            low, high = np.quantile(some, [1 - KEPT, KEPT])
            squares = np.einsum("nc,nc->c", rows, rows)
            with self._lock:
                self.low.setdefault(name, []).append(float(low))
                self.high.setdefault(name, []).append(float(high))
                self.squares[name] = self.squares.get(name, 0.0) + squares
                self.rows[name] = self.rows.get(name, 0) + len(rows)
        return ops.linear(x, weight, bias)

    def found(self) -> dict[str, Activations]:
        result = {}
        for name, squares in self.squares.items():
            low, high = min(0.0, *self.low[name]), max(0.0, *self.high[name])
            high = high if high > low else low + 1.0
            result[name] = Activations((low, high), (squares / self.rows[name]).astype(np.float32))
        return result


def observe(model: Model, tokenizer: Tokenizer, texts: Sequence[str], length: int = LENGTH) -> dict[str, Activations]:
    """Run the model on these texts and look at what reaches its matrices."""
    if not any(text.strip() for text in texts):
        raise InputError("calibration needs real text, and there is none; name a file of texts with --data")
    if model.engine.name != "numpy":
        raise InputError("calibration runs on the NumPy engine; load the model with engine='numpy'")
    seen = Observer(model)
    watched = copy.copy(model)
    watched.engine = model.engine.with_operations({"linear": seen.linear, "linear_backward": ops.linear_backward})
    with evaluation_mode(watched):
        for ids, mask in batches(tokenizer, texts, min(length, model.config.max_length)):
            watched.predict(ids, mask, **segments(model, mask))
    return seen.found()


def batches(
    tokenizer: Tokenizer, texts: Sequence[str], length: int, size: int = BATCH
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Token ids and masks [B, T] of texts of similar length, cut at `length` tokens."""
    rows = []
    for encoded in tokenizer.encode_batch([text for text in texts if text.strip()]):
        ids = np.asarray(encoded.ids, np.int64)
        rows.append(ids if len(ids) <= length else np.append(ids[: length - 1], ids[-1]))
    rows.sort(key=len)
    found = []
    for begin in range(0, len(rows), size):
        some = rows[begin : begin + size]
        ids = np.full((len(some), max(map(len, some))), tokenizer.pad_id, np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(some):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        found.append((ids, mask))
    return found


def segments(model: Model, mask: np.ndarray) -> dict[str, Any]:
    """A head that compares two texts is given the halves of a row."""
    if model.head is None or not model.head.reads_segments:
        return {}
    half = np.arange(mask.shape[1]) >= mask.shape[1] // 2
    return {"segment_ids": np.where(mask == 1, 1 + half, 0)}
