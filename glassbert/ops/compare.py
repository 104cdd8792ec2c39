"""Comparison of two vectors, feature by feature.

y = [|x - a|, x · a]          x, a [..., H]; y [..., 2 H]
"""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.registry import operation


@operation
def compare(x: Array, a: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/15-parts-of-families.md (15.12)."""
    return namespace(x).concatenate([abs(x - a), x * a], -1), (x, a)


@operation
def compare_backward(dy: Array, state: Any) -> tuple[Array, Array]:
    """|x - a| has the slope sign(x - a) at x and the opposite one at a. Returns dx and da.

    Derivation: docs/derivations/15-parts-of-families.md (15.13)
    """
    x, a = state
    ddistance, dproduct = dy[..., : x.shape[-1]], dy[..., x.shape[-1] :]
    slope = namespace(x).sign(x - a) * ddistance
    return slope + a * dproduct, x * dproduct - slope
