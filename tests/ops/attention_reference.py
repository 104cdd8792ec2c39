"""Attention one query at a time, by the definition alone; slow, and with nothing in common with the product's code."""

import math

import numpy as np


def is_allowed(query, key, keys=None, segments=None, window=None, causal=False, mask=None, offset=0):
    """Whether one query attends to one key of the same row; `keys`, `segments` and `mask` are that row's."""
    position = query + offset
    if keys is not None and not keys[key]:
        return False
    if segments is not None and (segments[key] == 0 or segments[position] != segments[key]):
        return False
    if window is not None and abs(position - key) > window:
        return False
    if mask is not None and not mask[query, key]:
        return False
    return not causal or key <= position


def of_row(who, row):
    """The pattern of one row."""
    return {name: x[row] if isinstance(x, np.ndarray) else x for name, x in who.items()}


def attention_one_by_one(q, k, v, bias=None, scale=None, **who):
    context = np.zeros_like(q)
    batch, heads, queries, size = q.shape
    scale = 1 / math.sqrt(size) if scale is None else scale
    bias = None if bias is None else np.broadcast_to(bias, (batch, heads, queries, k.shape[2]))
    for row in range(batch):
        for query in range(queries):
            seen = [key for key in range(k.shape[2]) if is_allowed(query, key, **of_row(who, row))]
            for head in range(heads):
                scores = [float(q[row, head, query] @ k[row, head, key]) * scale for key in seen]
                if bias is not None:
                    scores = [score + bias[row, head, query, key] for score, key in zip(scores, seen, strict=True)]
                if seen:
                    weights = [math.exp(score - max(scores)) for score in scores]
                    summed = sum(w * v[row, head, key] for w, key in zip(weights, seen, strict=True))
                    context[row, head, query] = summed / sum(weights)
    return context
