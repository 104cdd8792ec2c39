"""The residual connection: a branch adds to the stream instead of replacing it.

y = x + branch
"""

from __future__ import annotations

from glassbert.engines.namespace import Array
from glassbert.ops.registry import op


@op
def residual(x: Array, branch: Array, overwrite: bool = False) -> Array:
    """With `overwrite` the caller gives the branch up, and the sum may take its place."""
    if overwrite:
        branch += x
        return branch
    return x + branch


@op
def residual_backward(dy: Array) -> tuple[Array, Array]:
    """A sum hands its gradient on unchanged to both: the shortcut is why deep stacks train at all."""
    return dy, dy
