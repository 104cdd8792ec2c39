"""An exponential moving average of the weights, often a better model than the weights of the last step.

    e = e + (1 - d) (p - e)          d = min(decay, (1 + t) / (10 + t))

The decay rises with the step t, so that the random initial weights lose their influence quickly. `swapped` exchanges
average and weights, for evaluation and saving:

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
from glassbert.training.optimizers.base import CHUNK, check_fit


class EMA:
    """The average; the training step updates it after every update of the weights."""

    def __init__(self, model: Any, decay: float = 0.999):
        if not (isinstance(decay, (int, float)) and 0 < decay < 1):
            raise TrainingError(f"the decay of the moving average must be between 0 and 1, got {decay!r}")
        self.decay = decay
        self.engine = model.engine
        self.parameters: Any = self.engine.parameters(model.layout)
        for name, value in model.parameters.items():
            self.parameters[name] = value

    def share(self, xp: Any, step: Any) -> Any:
        """1 - d: the weight of the new weights at this step."""
        return 1.0 - xp.minimum(self.decay, (1.0 + step) / (10.0 + step))

    def update(self, parameters: FlatArrays, step: int) -> None:
        """Update the average in place (NumPy)."""
        average, weights = self.parameters.flat, parameters.flat
        share = average.dtype.type(self.share(np, float(step)))
        starts, threads = range(0, len(average), CHUNK), self.engine.threads
        work = functools.partial(_update_chunks, average, weights, share)
        run_together(work, [starts[i::threads] for i in range(threads)])

    def moved(
        self, average: Mapping[str, Any], parameters: Mapping[str, Any], step: Any, finite: Any
    ) -> dict[str, Any]:
        """The new average (MLX); the old one if the step was not finite."""
        xp = self.engine.xp
        share = self.share(xp, step)
        return {name: e + xp.where(finite, share * (parameters[name] - e), 0.0) for name, e in average.items()}

    @contextlib.contextmanager
    def swapped(self, model: Any) -> Iterator[None]:
        """Inside, the model has the averaged weights. Nothing is copied."""
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


def _update_chunks(average: np.ndarray, weights: np.ndarray, share: Any, starts: range) -> None:
    scratch = np.empty(CHUNK, average.dtype)
    for start in starts:
        e, p = average[start : start + CHUNK], weights[start : start + CHUNK]
        t = scratch[: len(e)]
        np.subtract(p, e, out=t)
        t *= share
        e += t
