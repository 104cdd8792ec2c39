"""The non-linearities: ReLU, GELU (exact and by tanh), tanh, and the gated pair GeGLU.

    relu(x) = max(x, 0)
    gelu(x) = x · Φ(x)                Φ the normal distribution function, (1 + erf(x/√2)) / 2
    gelu_tanh(x) = x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))
    geglu([a, b]) = act(a) · b        [..., 2I] -> [..., I]

Each forward returns y and what its backward needs besides x.
"""

from __future__ import annotations

import math

from glassbert.engines.namespace import Array, namespace
from glassbert.ops.normal import normal_cdf
from glassbert.ops.registry import op

SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
INVERSE_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
CUBIC = 0.044715


@op
def relu(x: Array, overwrite: bool = False) -> tuple[Array, None]:
    """With `overwrite` the caller gives x up, and a kernel may use its memory."""
    return namespace(x).maximum(x, 0), None


@op
def relu_backward(dy: Array, x: Array, cache: None = None, overwrite: bool = False) -> Array:
    """The slope is 1 above zero and 0 below; at zero itself we take 0, as everybody does.

    x may also be relu(x): both are above zero at the same places.
    """
    return dy * (x > 0)


@op
def gelu(x: Array, overwrite: bool = False) -> tuple[Array, Array]:
    """With `overwrite` the caller gives x up and wants no cache: no backward will follow."""
    cdf = normal_cdf(x)
    return x * cdf, cdf


@op
def gelu_backward(dy: Array, x: Array, cdf: Array) -> Array:
    """(x Φ)' = Φ + x φ, with the normal density φ(x) = exp(-x²/2) / √(2π)."""
    slope = namespace(x).exp(x * x * -0.5)
    slope *= x
    slope *= INVERSE_SQRT_2PI
    slope += cdf
    slope *= dy
    return slope


@op
def gelu_tanh(x: Array, overwrite: bool = False) -> tuple[Array, Array]:
    t = namespace(x).tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x))
    return 0.5 * x * (1.0 + t), t


@op
def gelu_tanh_backward(dy: Array, x: Array, t: Array) -> Array:
    """Product rule, and tanh' = 1 - tanh²."""
    inner_slope = SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x)
    return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope)


@op
def tanh(x: Array) -> tuple[Array, Array]:
    y = namespace(x).tanh(x)
    return y, y


@op
def tanh_backward(dy: Array, x: Array, y: Array) -> Array:
    return dy * (1.0 - y * y)


ACTIVATIONS = {
    "relu": (relu, relu_backward),
    "gelu": (gelu, gelu_backward),
    "gelu_tanh": (gelu_tanh, gelu_tanh_backward),
    "tanh": (tanh, tanh_backward),
}


@op
def geglu(x: Array, activation: str = "gelu") -> tuple[Array, tuple[Array, Array | None]]:
    half = x.shape[-1] // 2
    a, gate = x[..., :half], x[..., half:]
    activated, cache = ACTIVATIONS[activation][0](a)
    return activated * gate, (activated, cache)


@op
def geglu_backward(dy: Array, x: Array, cache: tuple[Array, Array | None], activation: str = "gelu") -> Array:
    """A product: each factor's gradient carries the other factor."""
    half = x.shape[-1] // 2
    a, gate = x[..., :half], x[..., half:]
    activated, activation_cache = cache
    da = ACTIVATIONS[activation][1](dy * gate, a, activation_cache)
    return namespace(x).concatenate([da, dy * activated], -1)
