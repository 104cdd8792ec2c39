"""A regression that learnt scaled targets, written so that everybody reads its scores in the units of the labels.

Inside, a head learns (y - mean) / scale, since small, even targets are learnt best; mean and scale are options of its
loss. In a file for transformers, which knows nothing of them, the last map does it: y = scale (W x + b) + mean is a
linear map again, of scale W and scale b + mean. Reading divides them out, so that training goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.checkpoints.description import Description

WEIGHT, BIAS = "head.classifier.weight", "head.classifier.bias"


def in_units(described: Description, name: str, values: np.ndarray) -> np.ndarray:
    """A parameter of ours as the file has it."""
    mean, scale = _of(described.loss_options)
    if name not in (WEIGHT, BIAS) or (mean is None and scale is None):
        return values
    wide = values.astype(np.float64)
    wide = wide * (1.0 if scale is None else scale.reshape(-1, *[1] * (wide.ndim - 1)))
    return (wide + mean if name == BIAS and mean is not None else wide).astype(values.dtype)


def from_units(described: Description, name: str, values: np.ndarray) -> np.ndarray:
    """The way back."""
    mean, scale = _of(described.loss_options)
    if name not in (WEIGHT, BIAS) or (mean is None and scale is None):
        return values
    wide = values.astype(np.float64)
    wide = wide - mean if name == BIAS and mean is not None else wide
    return (wide / (1.0 if scale is None else scale.reshape(-1, *[1] * (wide.ndim - 1)))).astype(values.dtype)


def _of(options: Mapping[str, Any]) -> list[np.ndarray | None]:
    given = (options.get("target_mean"), options.get("target_scale"))
    return [None if one is None else np.asarray(one, np.float64).reshape(-1) for one in given]
