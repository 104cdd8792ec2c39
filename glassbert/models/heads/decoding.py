"""From scores to what the user asked for, by the loss that gave the scores their meaning. NumPy alone, in float64.

cross_entropy           probabilities of the classes, which sum to one
binary_cross_entropy    a probability for every label
mean_squared_error      values in the units of the labels
ordinal                 probabilities of the ranks: differences of P(rank > k), which never grows with k
cosine, contrastive     embeddings of length one
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glassbert.models.heads.losses import LossOptions
from glassbert.ops import softmax, unit_length
from glassbert.ops.losses import sigmoid


def _values(output: np.ndarray, options: LossOptions) -> np.ndarray:
    scale = 1.0 if options.target_scale is None else np.array(options.target_scale)
    return output * scale + (0.0 if options.target_mean is None else np.array(options.target_mean))


def _ranks(output: np.ndarray, options: LossOptions) -> np.ndarray:
    above = np.cumprod(sigmoid(output), -1)  # P(rank > k)
    ends = np.ones((*output.shape[:-1], 1))
    return np.concatenate([ends, above], -1) - np.concatenate([above, 0.0 * ends], -1)


def _directions(output: np.ndarray, options: LossOptions) -> np.ndarray:
    return unit_length(output)[0]


DECODERS: dict[str, Callable[[np.ndarray, LossOptions], np.ndarray]] = {
    "cross_entropy": lambda output, options: softmax(output),
    "binary_cross_entropy": lambda output, options: sigmoid(output),
    "mean_squared_error": _values,
    "ordinal": _ranks,
    "cosine": _directions,
    "contrastive": _directions,
}
