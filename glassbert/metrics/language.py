"""Perplexity: among how many equally likely words the model seems to choose.

perplexity = exp(mean of -ln p(token))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.inputs import as_numbers, as_weights, check_lengths
from glassbert.metrics.undefined import Value, ratio


def perplexity(losses: Any, tokens: Any = None, weights: Any = None) -> Value:
    """`losses` [N] in nats: of single tokens, or summed over texts with `tokens` [N] as their lengths.

    Beyond exp(700) it is infinite.
    """
    losses = as_numbers(losses, "losses")
    tokens = np.ones_like(losses) if tokens is None else as_numbers(tokens, "tokens")
    if losses.ndim != 1 or (tokens < 0).any():
        raise InputError("losses must be one number a token or a text, and counts of tokens cannot be negative")
    check_lengths(losses=losses, tokens=tokens)
    weights = as_weights(weights, len(losses))
    with np.errstate(over="ignore"):
        values = np.exp(ratio(weights @ losses, weights @ tokens, "perplexity: there are no tokens"))
    return float(values) if np.ndim(values) == 0 else values
