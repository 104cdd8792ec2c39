"""How alike are two sets of representations of the same N inputs? Linear CKA.

    CKA(X, Y) = |YᵀX|² / (|XᵀX|·|YᵀY|)        X [N, A] and Y [N, B] with columns centred; |·| Frobenius

1 for the same up to rotation and scale, near 0 for nothing in common. With few inputs and many columns even random
representations look alike: use several times more inputs than columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_numbers, check_lengths
from glassbert.metrics.undefined import Value, ratio


def linear_cka(x: Any, y: Any) -> Value:
    x, y = as_numbers(x, "x"), as_numbers(y, "y")
    if x.ndim != 2 or y.ndim != 2:
        raise InputError(f"representations must be [N, width], got {list(x.shape)} and {list(y.shape)}")
    check_lengths(x=x, y=y)
    x, y = x - x.mean(0), y - y.mean(0)
    # The smaller of the two products: [A, B] over columns, or [N, N] over inputs.
    if len(x) < max(x.shape[1], y.shape[1]):
        gram_x, gram_y = x @ x.T, y @ y.T
        shared = float((gram_x * gram_y).sum())
        sizes = np.linalg.norm(gram_x) * np.linalg.norm(gram_y)
    else:
        shared = float(np.linalg.norm(x.T @ y) ** 2)
        sizes = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return ratio(shared, sizes, "CKA: one of the two is the same for all inputs")
