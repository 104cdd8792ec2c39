"""A block with a convolution beside its first layer (DeBERTa v2)."""

from __future__ import annotations

from typing import Any

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.errors import ConfigError
from glassbert.layers.attention import AttentionContext
from glassbert.layers.block import PostNormBlock
from glassbert.layers.registry import BLOCKS
from glassbert.layers.scope import Parameter, Scope, norm_parameters


@BLOCKS.register("post_convolution")
class ConvolutionBlock(PostNormBlock):
    """The first layer has a convolution beside it:  norm(layer(x) + act(dropout(convolution(x))))"""

    @staticmethod
    def check_config(config: Any) -> None:
        if not getattr(config, "conv_kernel_size", 0):
            raise ConfigError("norm_position='post_convolution' needs a conv_kernel_size above 0 (DebertaConfig)")

    def __init__(self, config: Any, index: int):
        super().__init__(config, index)
        self.convolves = index == 0

    def parameters(self) -> list[Parameter]:
        config, size = self.config, self.config.hidden_size
        if not self.convolves:
            return super().parameters()
        return [
            *super().parameters(),
            Parameter("convolution.weight", (size, size, config.conv_kernel_size), "weight"),
            Parameter("convolution.bias", (size,), "zeros"),
            *norm_parameters("convolution.norm", size, config.norm_bias),
        ]

    @property
    def selects_rows(self) -> bool:
        return not self.convolves and self.attention.selects_rows

    def forward(self, x: Array, scope: Scope, context: AttentionContext) -> Array:
        y = super().forward(x, scope, context)
        if not self.convolves:
            return y
        inner, config = scope.inside("convolution"), self.config
        near = neighbours(x, context, config.conv_kernel_size)
        branch = inner.run("convolution", "convolution", x, inner.parameter("weight"), inner.parameter("bias"), near)
        branch = inner.dropout(branch, "dropout", config.hidden_dropout)
        branch = inner.run(config.conv_activation, "activation", branch)
        return scope.record("output", inner.norm(y + branch, "norm", self.eps))

    def backward(self, dx: Array, scope: Scope, context: AttentionContext) -> Array:
        if not self.convolves:
            return super().backward(dx, scope, context)
        inner = scope.inside("convolution")
        dy = inner.norm_backward(dx, "norm")
        dbranch = inner.dropout_backward(inner.run_backward("activation", dy), "dropout")
        dconvolved, dweight, dbias = inner.run_backward("convolution", dbranch)
        inner.add("weight", dweight)
        inner.add("bias", dbias)
        return super().backward(dy, scope, context) + dconvolved


def neighbours(x: Array, context: AttentionContext, width: int) -> Array | None:
    """[B, T, k]: which neighbours of a token are real tokens of its own document; None: all inside the row."""
    pattern = context.pattern
    if pattern.segments is None and pattern.keys is None and pattern.mask is None:
        return None
    xp = namespace(x)
    batch, length, half = x.shape[0], x.shape[1], (width - 1) // 2
    documents = xp.ones((batch, length), dtype=xp.int32)
    if pattern.segments is not None:
        documents = documents * pattern.segments.astype(xp.int32)
    for real in (pattern.keys, None if pattern.mask is None else pattern.mask.any(1)):
        documents = documents if real is None else documents * (real != 0).astype(xp.int32)
    wide = xp.pad(documents, [(0, 0), (half, half)])
    shifted = xp.stack([wide[:, j : j + length] for j in range(width)], -1)  # [B, T, k]
    near = (shifted == documents[:, :, None]) & (shifted != 0)
    return near if is_numpy(near) else near.astype(x.dtype)
