"""Planted faults of DeBERTa: positions, convolution and mask decoder."""

from __future__ import annotations

from glassbert.arrays import namespace
from glassbert.layers.attention import SelfAttention, join_qkv
from glassbert.layers.block import PostNormBlock
from glassbert.layers.convolution import ConvolutionBlock
from glassbert.layers.disentangled import DisentangledAttention, RelativePositions
from glassbert.layers.mask_decoder import MaskDecoder
from glassbert.proof.mutants import wrong_in

right_vectors_backward = DisentangledAttention.position_vectors_backward
right_bias_backward = DisentangledAttention.score_bias_backward
right_convolution_backward = ConvolutionBlock.backward
right_decoder_backward = MaskDecoder.backward


@wrong_in({DisentangledAttention: "position_vectors_backward"}, "deberta: shared maps learn from the content alone",
          "deberta")  # fmt: skip
def _(self, dkeys, dqueries, rows, scope):
    if not self.config.share_att_key:
        return right_vectors_backward(self, dkeys, dqueries, rows, scope)
    dqueries, dkeys = (0.0 if d is None else d.reshape(rows, -1) for d in (dqueries, dkeys))
    size = self.config.hidden_size
    weight = scope.parameter("qkv.weight")
    return dqueries @ weight[:size] + dkeys @ weight[size : 2 * size]


@wrong_in({DisentangledAttention: "position_vectors_backward"}, "deberta: keys and queries of positions are exchanged",
          "deberta")  # fmt: skip
def _(self, dkeys, dqueries, rows, scope):
    if dkeys is None or dqueries is None:
        return right_vectors_backward(self, dkeys, dqueries, rows, scope)
    return right_vectors_backward(self, dqueries, dkeys, rows, scope)


@wrong_in({DisentangledAttention: "score_bias_backward"}, "deberta: the table of distances learns from no layer",
          "deberta")  # fmt: skip
def _(self, dbias, scope, context):
    before = scope.cache.stored.get(context.bias_name)
    found = right_bias_backward(self, dbias, scope, context)
    after = scope.cache.stored[context.bias_name]
    scope.cache.stored[context.bias_name] = 0.0 * after if before is None else before
    return found


@wrong_in({DisentangledAttention: "score_bias_backward"}, "deberta: keys get no gradient from positions", "deberta")
def _(self, dbias, scope, context):
    return right_bias_backward(self, dbias, scope, context)[0], None


@wrong_in({RelativePositions: "backward"}, "deberta: the norm of the table is left out", "deberta")
def _(self, dbias, batch, scope):
    if self.config.relative_norm:
        scope.norm_backward(dbias, "norm")
    scope.add("relative", dbias)


@wrong_in({ConvolutionBlock: "backward"}, "convolution layer: the input learns from the layer alone",
          "convolution layer")  # fmt: skip
def _(self, dx, scope, context):
    if not self.convolves:
        return right_convolution_backward(self, dx, scope, context)
    inner = scope.inside("convolution")
    dy = inner.norm_backward(dx, "norm")
    dbranch = inner.dropout_backward(inner.run_backward("activation", dy), "dropout")
    _, dweight, dbias = inner.run_backward("convolution", dbranch)
    inner.add("weight", dweight)
    inner.add("bias", dbias)
    return PostNormBlock.backward(self, dy, scope, context)


@wrong_in({SelfAttention: "project_backward"}, "mask decoder: keys and values give the states no gradient",
          "mask decoder")  # fmt: skip
def _(self, dq, dk, dv, scope, context):
    if context.states is None:
        return scope.linear_backward(join_qkv(scope, dq, dk, dv), "qkv")
    nothing = namespace(dq).zeros_like(dq)
    dstates = scope.linear_backward(join_qkv(scope, nothing, dk, dv), "qkv_of_states", "qkv")
    scope.cache.accumulate(context.states_name, 0.0 * dstates)
    return scope.linear_backward(join_qkv(scope, dq, nothing, nothing), "qkv")


@wrong_in({MaskDecoder: "backward"}, "mask decoder: the states learn from keys and values alone",
          "mask decoder")  # fmt: skip
def _(self, dx, scope):
    return 0.0 * right_decoder_backward(self, dx, scope)


@wrong_in({MaskDecoder: "backward"}, "mask decoder: absolute positions learn from the first row alone",
          "mask decoder")  # fmt: skip
def _(self, dx, scope):
    first = dx * (namespace(dx).arange(dx.shape[0]) == 0)[:, None, None]
    right_decoder_backward(self, first, scope)
    return dx
