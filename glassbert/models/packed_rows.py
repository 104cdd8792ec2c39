"""A batch without its padding: the real tokens of all rows as one packed row, and values of it back in their places.

    rows       [CLS] a  b [SEP] .    .           index   0 1 2 3 | 6 7 8
               [CLS] c [SEP] .  .    .
    packed     [CLS] a  b [SEP] [CLS] c [SEP]    each row is a document of its own

Results are the same, and nothing is computed for padding. `Pass` decides where it may be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

PACKED_INPUTS = {"ids", "mask", "types", "segments", "positions"}  # what `pack` puts into one row


def pack(checked: Mapping[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
    """The real tokens of a padded batch as one packed row, and the index [N] of each among rows · length."""
    mask = checked["mask"]
    index = np.flatnonzero(mask)
    positions = np.broadcast_to(checked["positions"], mask.shape)
    document = np.broadcast_to(np.arange(1, len(mask) + 1)[:, None], mask.shape)
    if checked["segments"] is not None:
        segments = checked["segments"]
        document = np.where(segments == 0, 0, document * (int(segments.max()) + 1) + segments)
    row = {
        "ids": checked["ids"].reshape(-1)[index][None],
        "positions": positions.reshape(-1)[index][None],
        "segments": document.reshape(-1)[index][None],
        "types": None if checked["types"] is None else checked["types"].reshape(-1)[index][None],
        "mask": None,
    }
    for name in ("number_index", "number_weights"):
        if name in checked:
            row[name] = checked[name].reshape(mask.size, *checked[name].shape[2:])[index][None]
    return row, index


def unpack(value: np.ndarray, index: np.ndarray, rows: int, length: int, axes: tuple[int, ...]) -> np.ndarray:
    """The inverse of `pack` for a value [1, ...] whose `axes` run over the packed tokens; padding gets zeros."""
    if axes == (1,):
        spread = np.zeros((rows * length, *value.shape[2:]), value.dtype)
        spread[index] = value[0]
        return spread.reshape(rows, length, *value.shape[2:])
    row_of, place = np.divmod(index, length)
    shape = [rows, *value.shape[1:]]
    for axis in axes:
        shape[axis] = length
    result = np.zeros(shape, value.dtype)
    for row in np.unique(row_of):
        tokens = np.flatnonzero(row_of == row)
        source, target = value[0], result[row]
        for axis in axes:
            source = source.take(tokens, axis - 1)
        where = np.ix_(*(place[tokens] if i + 1 in axes else np.arange(n) for i, n in enumerate(target.shape)))
        target[where] = source
    return result


def one_run(mask: np.ndarray) -> bool:
    """Whether the real tokens of every row are one run."""
    starts = mask.astype(bool)
    starts[:, 1:] &= ~mask[:, :-1].astype(bool)
    return bool((starts.sum(1) <= 1).all())
