"""Attention one query at a time, by the definition alone; slow, and with nothing in common with the product's code."""

import math

import numpy as np


def may_see(query, key, keys=None, segments=None, window=None, causal=False):
    """Whether one query may see one key of the same row; `keys` and `segments` are that row's."""
    if keys is not None and not keys[key]:
        return False
    if segments is not None and (segments[key] == 0 or segments[query] != segments[key]):
        return False
    if window is not None and abs(query - key) > window:
        return False
    return not causal or key <= query


def attention_one_by_one(q, k, v, keys=None, segments=None, window=None, causal=False):
    context = np.zeros_like(v)
    batch, heads, length, size = q.shape
    for row in range(batch):
        of_row = {
            "keys": None if keys is None else keys[row],
            "segments": None if segments is None else segments[row],
            "window": window,
            "causal": causal,
        }
        for query in range(length):
            seen = [key for key in range(length) if may_see(query, key, **of_row)]
            for head in range(heads):
                scores = [float(q[row, head, query] @ k[row, head, key]) / math.sqrt(size) for key in seen]
                if seen:
                    weights = [math.exp(score - max(scores)) for score in scores]
                    summed = sum(w * v[row, head, key] for w, key in zip(weights, seen, strict=True))
                    context[row, head, query] = summed / sum(weights)
    return context
