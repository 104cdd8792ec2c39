"""`predict`, which leaves padding out, equals `forward` for every mask: holes, left padding, empty rows, segments.

    |predict - forward| < 1e-5        at every output of a sequence head, and at every real token of the others

Both are computed in float64, so that a difference is an error of the masks and not of rounding.
"""

from __future__ import annotations

import numpy as np
import pytest

from glassbert.checkpoints.family import FAMILIES
from tests.models.random_masks import FAMILY_NAMES, heads_of, largest_difference, model_of

TOLERANCE = 1e-9


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_predict_equals_forward(family: str, window: int | None, threads: int) -> None:
    if window is not None and FAMILIES[family].presets[FAMILIES[family].mini].attention != "self":
        window = None
    for number, (head, pooling) in enumerate(heads_of(family)):
        model = model_of(family, head, pooling, window, threads)
        rng = np.random.default_rng([number, threads, window or 0])
        for _ in range(12):
            difference = largest_difference(model, rng, head not in (None, "token"))
            assert difference < TOLERANCE, (head, pooling)
