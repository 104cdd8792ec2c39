"""Random masks: `predict`, which leaves padding out, equals `forward`, which does not."""

from __future__ import annotations

import numpy as np

from tests.models.random_masks import FAMILY_NAMES, ROWS, heads_of, largest_difference, model_of
from tests.torture.table import Line, describe

LIMIT = 1e-5


def random_masks(count: int, seed: int, number: int = 0) -> list[Line]:
    """`count` masks, in batches of five rows, over all families, windows, heads, poolings and two precisions."""
    rng = np.random.default_rng([seed, number, 7])
    cases = [(family, window, *head) for family in FAMILY_NAMES for window in (None, 2) for head in heads_of(family)]
    lines = {family: Line("random masks", family) for family in FAMILY_NAMES}
    for batch in range(-(-count // ROWS)):
        family, window, head, pooling = cases[rng.integers(len(cases))]
        dtype, threads = ("float64", "float32")[batch % 2], (1, 3)[batch // 2 % 2]
        lines[family].tried += ROWS
        try:
            model = model_of(family, head, pooling, window, threads, dtype)
            difference = largest_difference(model, rng, head not in (None, "token"))
        except BaseException as error:
            lines[family].fail(f"window {window}, {head}, {pooling}: {describe(error)}")
            continue
        lines[family].measure(f"largest difference in {dtype}", difference)
        if difference > LIMIT:
            lines[family].fail(f"window {window}, {head}, {pooling}, {dtype}: {difference:.2g}")
    return [line for line in lines.values() if line.tried]
