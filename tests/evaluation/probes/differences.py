"""The slope of a function by central differences, in float64."""

import numpy as np


def largest_error(function, x, seed=0, directions=12, step=1e-6):
    """The gradient against differences along random directions and a few single numbers, relative to its size."""
    generator = np.random.default_rng(seed)
    _, gradient = function(x)
    along = [generator.standard_normal(len(x)) for _ in range(directions)]
    along += [np.eye(1, len(x), place)[0] for place in generator.integers(0, len(x), directions)]
    along.append(np.eye(1, len(x), len(x) - 1)[0])
    errors = []
    for d in along:
        measured = (function(x + step * d)[0] - function(x - step * d)[0]) / (2 * step)
        errors.append(abs(measured - gradient @ d) / max(1.0, abs(measured)))
    return max(errors)
