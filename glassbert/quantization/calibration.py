"""Calibration: what real text puts into every matrix.

The model runs on some examples with an operation `linear` that looks at its input:

    range         for static rounding: the one with the smallest squared error Σ (x - x̂)², among the lowest and highest
                  activation and smaller ranges, which clip them
    mean square   of every column: which weights matter most

All activations are counted, as float16, so the range depends neither on an order nor on the number of threads.
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
from glassbert.ops.quantized import rounded
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.evaluate import evaluation_mode

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)  # of the lowest and of the highest activation
VALUES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)  # by their bits
LARGEST = float(np.finfo(np.float16).max)
BATCH = 32
SCORES = 1 << 23  # of a language model in one batch

Inputs = dict[str, Any]  # arguments of `model.predict`


@dataclass(frozen=True)
class Activations:
    """What reaches one matrix."""

    range: tuple[float, float]
    mean_square: np.ndarray


class Observer:
    """Collects activations by the name of the matrix that they are multiplied by."""

    def __init__(self, model: Model):
        self.names = {id(values): name for name, values in model.parameters.items()}
        self.counts: dict[str, np.ndarray] = {}
        self.squares: dict[str, np.ndarray] = {}
        self.rows: dict[str, int] = {}
        self._lock = threading.Lock()

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        name = self.names.get(id(weight))
        if name is not None:
            rows = np.asarray(x).reshape(-1, x.shape[-1])
            bits = np.clip(rows, -LARGEST, LARGEST).astype(np.float16).view(np.uint16)
            counts = np.bincount(bits.reshape(-1), minlength=len(VALUES))
            squares = np.einsum("nc,nc->c", rows, rows, dtype=np.float64)
            with self._lock:
                self.counts[name] = self.counts.get(name, 0) + counts
                self.squares[name] = self.squares.get(name, 0.0) + squares
                self.rows[name] = self.rows.get(name, 0) + len(rows)
        return ops.linear(x, weight, bias)

    def found(self) -> dict[str, Activations]:
        return {
            name: Activations(best_range(counts), (self.squares[name] / self.rows[name]).astype(np.float32))
            for name, counts in self.counts.items()
        }


def best_range(counts: np.ndarray) -> tuple[float, float]:
    """The range with the smallest squared error of activations that are counted by the bits of their float16."""
    counts = np.where(np.isfinite(VALUES), counts, 0)
    seen = np.flatnonzero(counts)
    if not VALUES[seen].any():
        return 0.0, 1.0
    values, counts = VALUES[seen].astype(np.float64), counts[seen].astype(np.float64)
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    candidates = {(low * first, high * last) for first in SHARES for last in SHARES}

    def error(one: tuple[float, float]) -> float:
        difference = values - rounded(values[:, None], one)[:, 0]
        return float(counts @ (difference * difference))

    return min(sorted(candidates), key=error)


def observe(model: Model, batches: Sequence[Inputs]) -> dict[str, Activations]:
    """Run the model on these inputs and look at what reaches its matrices."""
    if model.engine.name != "numpy":
        raise InputError("calibration runs on the NumPy engine; load the model with engine='numpy'")
    seen = Observer(model)
    watched = copy.copy(model)
    watched.engine = model.engine.with_operations({"linear": seen.linear, "linear_backward": ops.linear_backward})
    with evaluation_mode(watched):
        for inputs in batches:
            watched.predict(**inputs)
    return seen.found()


def text_batches(model: Model, tokenizer: Tokenizer, texts: Sequence[str], length: int) -> list[Inputs]:
    """The inputs of texts of similar length, cut at `length` tokens."""
    real = [text for text in texts if text.strip()]
    if not real:
        raise InputError("calibration needs real text, and there is none; name a file of texts with --data")
    length = min(length, model.config.max_length)
    size = min(BATCH, max(1, SCORES // (length * model.config.vocab_size)))
    rows = []
    for encoded in tokenizer.encode_batch(real):
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
        found.append({"input_ids": ids, "attention_mask": mask})
    return found
