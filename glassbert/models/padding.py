"""Padding that is not computed: the real tokens of a batch as one packed row, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np


def pack(checked: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
    """The real tokens of a padded batch as one packed row, and where each of them stood."""
    mask = checked["mask"]
    index = np.flatnonzero(mask)
    batch = len(mask)
    positions = np.broadcast_to(checked["positions"], mask.shape)
    document = np.broadcast_to(np.arange(1, batch + 1)[:, None], mask.shape)
    if checked["segments"] is not None:
        document = document * (int(checked["segments"].max()) + 1) + checked["segments"]
    row = {
        "ids": checked["ids"].reshape(-1)[index][None],
        "positions": positions.reshape(-1)[index][None],
        "segments": document.reshape(-1)[index][None],
        "types": None if checked["types"] is None else checked["types"].reshape(-1)[index][None],
        "mask": None,
    }
    return row, index


def unpack(hidden: np.ndarray, index: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The way back from `pack`; padding gets zeros."""
    spread = np.zeros((shape[0] * shape[1], hidden.shape[-1]), hidden.dtype)
    spread[index] = hidden[0]
    return spread.reshape(*shape, -1)
