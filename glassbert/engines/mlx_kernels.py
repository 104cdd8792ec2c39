"""MLX's own fast kernels behind the names of our operations.

`mx.vjp` of a single fused operation is used for its backward; how the operations are put together stays hand-written.
"""

from __future__ import annotations

import mlx.core as mx

from glassbert.ops.registry import kernel


@kernel("mlx", "layer_norm")
def layer_norm(x, gamma, beta, eps):
    return mx.fast.layer_norm(x, gamma, beta, eps), (x, eps)


@kernel("mlx", "layer_norm_backward")
def layer_norm_backward(dy, gamma, cache, has_beta=True, out=(None, None)):
    x, eps = cache
    width = x.shape[-1]
    # Without scale and shift: the sums over rows for gamma and beta are taken in float32, below.
    _, (dx,) = mx.vjp(lambda v: mx.fast.layer_norm(v, None, None, eps), [x], [dy * gamma])
    rows, d_rows = x.reshape(-1, width).astype(mx.float32), dy.reshape(-1, width).astype(mx.float32)
    centred = rows - rows.mean(-1, keepdims=True)
    x_hat = centred * mx.rsqrt((centred * centred).mean(-1, keepdims=True) + eps)
    return dx, (d_rows * x_hat).sum(0), d_rows.sum(0) if has_beta else None
