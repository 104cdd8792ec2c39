"""Initial values of parameters.

normal        N(0, range²)
truncated     the same, redrawn beyond two standard deviations
depth_scaled  truncated, with the last linear map of every residual branch scaled by 1/√(2 · layers), so that the size
              of the hidden states does not grow with the depth
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glassbert.layers.scope import Parameter
from glassbert.models.config import EncoderConfig


def initial_values(parameters: list[Parameter], config: EncoderConfig, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Name and float32 values of every parameter, drawn from `seed`."""
    rng = np.random.default_rng(seed)
    for name, shape, initial in parameters:
        if initial == "zeros":
            yield name, np.zeros(shape, np.float32)
        elif initial == "ones":
            yield name, np.ones(shape, np.float32)
        else:
            values = rng.standard_normal(shape, dtype=np.float32)
            if config.initializer != "normal":
                while (outside := np.abs(values) > 2.0).any():
                    values[outside] = rng.standard_normal(int(outside.sum()), dtype=np.float32)
            scale = config.initializer_range
            if initial == "output" and config.initializer == "depth_scaled":
                scale /= np.sqrt(2.0 * max(1, config.num_hidden_layers))
            yield name, values * np.float32(scale)
