"""Labels, checked before anything is computed: a sentence for the first one that does not fit."""

from __future__ import annotations

import numpy as np

from glassbert.errors import InputError
from glassbert.ops import IGNORED

SMALLEST_MULTIPLE = 64
ROUNDNESS = 5  # bits: many rows are filled up by at most a 32nd


def integer_labels(labels: np.ndarray, shape: tuple[int, ...], limit: int, of_what: str) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != shape:
        raise InputError(f"labels must have the shape {shape}, got {labels.shape}")
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels must be integers, got {labels.dtype}")
    wrong = (labels != IGNORED) & ((labels < 0) | (labels >= limit))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InputError(
            f"label {int(labels[place])} at {place} is outside {of_what} (0 to {limit - 1}; -100 means ignored)"
        )
    return labels


def number_labels(labels: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Finite numbers [rows, columns], as float64; one column may come without its axis."""
    labels = np.asarray(labels)
    if labels.shape == (rows,) and columns == 1:
        labels = labels[:, None]
    if labels.shape != (rows, columns):
        raise InputError(f"labels must have the shape {(rows, columns)}, got {labels.shape}")
    if labels.dtype.kind not in "biuf":
        raise InputError(f"labels must be numbers, got {labels.dtype}")
    numbers = labels.astype(np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.argwhere(~np.isfinite(numbers))[0][0])
        raise InputError(f"the label of row {row} is not a finite number")
    return numbers


def pad_rows(prepared: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Chosen rows filled up to a round number with ignored ones.

    A compiled step is compiled once for each number of rows: few numbers, few compilations. The numbers are relatively
    round, for where the masking rate moves, the number of rows goes through all that lie between.
    """
    if "rows" not in prepared:
        return prepared
    count = len(prepared["rows"])
    multiple = max(SMALLEST_MULTIPLE, 1 << max(0, (count - 1).bit_length() - 1 - ROUNDNESS))
    wanted = max(1, -(-count // multiple)) * multiple
    rows = np.zeros(wanted, prepared["rows"].dtype)
    targets = np.full(wanted, IGNORED, prepared["targets"].dtype)
    rows[:count], targets[:count] = prepared["rows"], prepared["targets"]
    return {**prepared, "rows": rows, "targets": targets}
