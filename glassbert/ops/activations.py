"""The activation functions: ReLU, GELU (exact and by tanh), tanh, and the gated GeGLU.

relu(x) = max(x, 0)
gelu(x) = x · Φ(x)                Φ the normal distribution function, (1 + erf(x/√2)) / 2
gelu_tanh(x) = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))
geglu([a, b]) = act(a) · b        [..., 2I] -> [..., I]
"""

from __future__ import annotations

import math
from typing import Any

from glassbert.arrays import Array, namespace
from glassbert.ops.normal import normal_cdf
from glassbert.ops.registry import OPERATIONS, backward_of, operation

SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
INVERSE_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
CUBIC = 0.044715


@operation
def relu(x: Array) -> tuple[Array, Array]:
    """The state is y: it is above zero exactly where x is. Derivation: docs/derivations/03-activations.md (3.1)."""
    y = namespace(x).maximum(x, 0)
    return y, y


@operation
def relu_backward(dy: Array, y: Array) -> Array:
    """The slope is 1 above zero and 0 below; at zero itself it is taken as 0.

    Derivation: docs/derivations/03-activations.md (3.2)
    """
    return dy * (y > 0)


@operation
def gelu(x: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/03-activations.md (3.6)."""
    cdf = normal_cdf(x)
    return x * cdf, (x, cdf)


@operation
def gelu_backward(dy: Array, state: Any) -> Array:
    """(x Φ)' = Φ + x φ, with the normal density φ(x) = exp(-x²/2) / √(2π).

    Derivation: docs/derivations/03-activations.md (3.7)
    """
    x, cdf = state
    slope = namespace(x).exp(x * x * -0.5)
    slope *= x
    slope *= INVERSE_SQRT_2PI
    slope += cdf
    slope *= dy
    return slope


@operation
def gelu_tanh(x: Array) -> tuple[Array, Any]:
    """Derivation: docs/derivations/03-activations.md (3.8)."""
    t = namespace(x).tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x))
    return 0.5 * x * (1.0 + t), (x, t)


@operation
def gelu_tanh_backward(dy: Array, state: Any) -> Array:
    """Product rule, and tanh' = 1 - tanh². Derivation: docs/derivations/03-activations.md (3.9)."""
    x, t = state
    inner_slope = SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x)
    return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope)


@operation
def tanh(x: Array) -> tuple[Array, Array]:
    """Derivation: docs/derivations/03-activations.md (3.3)."""
    y = namespace(x).tanh(x)
    return y, y


@operation
def tanh_backward(dy: Array, y: Array) -> Array:
    """tanh' = 1 - tanh². Derivation: docs/derivations/03-activations.md (3.4)."""
    return dy * (1.0 - y * y)


@operation
def geglu(x: Array, activation: str = "gelu") -> tuple[Array, Any]:
    """Derivation: docs/derivations/03-activations.md (3.10)."""
    half = x.shape[-1] // 2
    a, gate = x[..., :half], x[..., half:]
    activated, inner = OPERATIONS[activation](a)
    return activated * gate, (activated, gate, inner, activation)


@operation
def geglu_backward(dy: Array, state: Any) -> Array:
    """A product: the gradient of each factor carries the other factor.

    Derivation: docs/derivations/03-activations.md (3.11)
    """
    activated, gate, inner, activation = state
    da = backward_of(activation)(dy * gate, inner)
    return namespace(dy).concatenate([da, dy * activated], -1)
