"""A moving average of the weights: often a better model than the last step, which still jumps about.

    e = e + (1 - d) (p - e)          d = min(decay, (1 + t) / (10 + t))

The decay rises with the steps t, so that the average forgets the random beginning quickly. For evaluation and saving
the average changes places with the weights:

    with ema.swapped(model):
        evaluate(model, batches)
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from glassbert.arrays import FlatArrays
from glassbert.engines.threads import run_together
from glassbert.errors import TrainingError
from glassbert.training.optimizers.base import CHUNK
from glassbert.training.optimizers.checks import check_fit


class EMA:
    """The average, moved by the training step after every step that moved the weights."""

    def __init__(self, model: Any, decay: float = 0.999):
        if not (isinstance(decay, (int, float)) and 0 < decay < 1):
            raise TrainingError(f"the decay of a moving average must lie between 0 and 1, got {decay!r}")
        self.decay = decay
        self.engine = model.engine
        self.parameters: Any = self.engine.parameters(model.layout)
        for name, value in model.parameters.items():
            self.parameters[name] = value

    def share(self, xp: Any, step: Any) -> Any:
        """1 - d: how much of the new weights enters the average at this step."""
        return 1.0 - xp.minimum(self.decay, (1.0 + step) / (10.0 + step))

    def update(self, parameters: FlatArrays, step: int) -> None:
        """Move the average in place (NumPy)."""
        average, weights = self.parameters.flat, parameters.flat
        share = average.dtype.type(self.share(np, float(step)))
        starts, threads = range(0, len(average), CHUNK), self.engine.threads
        work = functools.partial(_move, average, weights, share)
        run_together(work, [starts[i::threads] for i in range(threads)])

    def moved(self, average: Mapping[str, Any], parameters: Mapping[str, Any], step: Any, fine: Any) -> dict[str, Any]:
        """The new average (MLX); the old one where the step was not `fine`."""
        xp = self.engine.xp
        share = self.share(xp, step)
        return {name: e + xp.where(fine, share * (parameters[name] - e), 0.0) for name, e in average.items()}

    @contextlib.contextmanager
    def swapped(self, model: Any) -> Iterator[None]:
        """While inside, the model has the averaged weights. No number is copied."""
        model.parameters, self.parameters = self.parameters, model.parameters
        try:
            yield
        finally:
            model.parameters, self.parameters = self.parameters, model.parameters

    def state_arrays(self) -> dict[str, np.ndarray]:
        return {f"ema/{name}": self.engine.to_numpy(array) for name, array in self.parameters.items()}

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        check_fit("the moving average", {f"ema/{k}": tuple(v.shape) for k, v in self.parameters.items()}, arrays)
        for name in list(self.parameters):
            self.parameters[name] = self.engine.array(arrays[f"ema/{name}"])


def _move(average: np.ndarray, weights: np.ndarray, share: Any, starts: range) -> None:
    scratch = np.empty(CHUNK, average.dtype)
    for start in starts:
        e, p = average[start : start + CHUNK], weights[start : start + CHUNK]
        t = scratch[: len(e)]
        np.subtract(p, e, out=t)
        t *= share
        e += t
