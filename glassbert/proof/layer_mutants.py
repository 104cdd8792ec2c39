"""Wrong gradients that arise where operations are composed: in layers, heads, shared weights and threads."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from glassbert.arrays import FlatGradients, ThreadGradients
from glassbert.layers import attention, embeddings, positions
from glassbert.layers.attention import SelfAttention
from glassbert.layers.block import PostNormBlock, PreNormBlock
from glassbert.layers.embeddings import Embeddings, TokenEmbeddings
from glassbert.layers.feed_forward import FeedForward
from glassbert.layers.positions import LearnedPositions
from glassbert.layers.scope import Scope
from glassbert.models import passes
from glassbert.models.encoder import Encoder
from glassbert.models.heads import mlm, pooling, pretraining, sequence, tokens
from glassbert.proof.mutants import wrong_in

right_embeddings_backward = TokenEmbeddings.backward
right_after_sum_backward = Embeddings.after_sum_backward
right_embed_backward = LearnedPositions.embed_backward
right_add = FlatGradients.add
right_add_rows = FlatGradients.add_rows
right_add_to = ThreadGradients.add_to
right_join_qkv = attention.join_qkv
right_attention_backward = SelfAttention.backward
right_take_read_backward = SelfAttention.take_read_backward
right_recompute = Encoder.recompute
right_encoder_backward = Encoder.backward
right_norm_backward = Scope.norm_backward
right_dropout_backward = Scope.dropout_backward
right_run_backward = Scope.run_backward
right_pair_backward = sequence.PairHead.backward
right_pool_backward = pooling.pool_backward
right_mlm_backward = mlm.MaskedLanguageHead.backward


class Without:
    """Gradients that lose the contributions to one parameter."""

    def __init__(self, gradients, name):
        self.gradients, self.lost = gradients, name

    def add_rows(self, name, index, rows):
        if not name.endswith(self.lost):
            self.gradients.add_rows(name, index, rows)

    def add(self, name, value):
        if not name.endswith(self.lost):
            self.gradients.add(name, value)

    def __getattr__(self, name):
        return getattr(self.gradients, name)


def _without(scope: Any, name: str) -> Scope:
    """The scope with such gradients."""
    return Scope(
        scope.ops, scope.parameters, scope.cache, cast(Any, Without(scope.gradients, name)), scope.dropout_source,
        scope.prefix, scope.parameter_prefix,
    )  # fmt: skip


def _only(name, replacement):
    """`Scope.run_backward` that answers differently for the state of one name."""

    def run_backward(self, key, dy, **hints):
        if key == name:
            return replacement(self, key, dy, **hints)
        return right_run_backward(self, key, dy, **hints)

    return run_backward


# ---- embeddings ----------------------------------------------------------------------------------------------------


@wrong_in({TokenEmbeddings: "backward"}, "embeddings: token types get no gradient", "embeddings")
def _(self, dx, batch, scope):
    right_embeddings_backward(self, dx, batch, _without(scope, "token_type"))


@wrong_in({LearnedPositions: "embed_backward"}, "embeddings: positions get no gradient", "embeddings")
def _(self, dx, scope):
    pass


@wrong_in(
    {LearnedPositions: "embed_backward"}, "embeddings: positions learn from the first sequence only", "embeddings"
)
def _(self, dx, scope):
    right_embed_backward(self, np.concatenate([dx[:1], 0.0 * dx[1:]]), scope)


@wrong_in({Embeddings: "after_sum_backward"}, "after_sum: dropout is left out of the backward", "after_sum")
def _(self, dx, scope):
    return scope.norm_backward(dx, "norm") if self.config.embedding_norm else dx


@wrong_in({embeddings: "first_row_only"}, "embeddings: omitted token types give every row a gradient", "embeddings")
def _(dx, table):
    return np.broadcast_to(dx.reshape(-1, dx.shape[-1]).sum(0), table.shape).copy()


@wrong_in(
    {Embeddings: "after_sum_backward"},
    "embeddings: the projection of narrow embeddings gets no gradient",
    "embeddings: narrower",
)
def _(self, dx, scope):
    return right_after_sum_backward(self, dx, _without(_without(scope, "projection.weight"), "projection.bias"))


@wrong_in({positions: "sum_over_first"}, "positions: shared positions get the mean over sequences", "embeddings")
def _(x):
    return x.mean(0)


# ---- attention, feed-forward, block --------------------------------------------------------------------------------


@wrong_in(
    {attention: "join_qkv"}, "attention layer: gradients of keys and values joined in the wrong order", "self_attention"
)
def _(scope, q, k, v):
    return right_join_qkv(scope, q, v, k)


@wrong_in(
    {Scope: "run_backward"}, "attention layer: the rotation is left out of the backward", "self_attention: rotary"
)
def _(self, key, dy, **hints):
    return dy if key.endswith("_rotary") else right_run_backward(self, key, dy, **hints)


@wrong_in(
    {SelfAttention: "score_bias_backward"},
    "attention layer: the gradient of the bias overwrites that of other layers",
    "self_attention: bias",
    "relative",
)
def _(self, dbias, scope, context):
    scope.cache.stored[context.bias_name] = 0.5 * dbias
    return None, None


@wrong_in(
    {SelfAttention: "backward"}, "attention layer: the memory's part of the keys is taken", "self_attention: memory"
)
def _(self, dy, scope, context):
    if context.memory is None:
        return right_attention_backward(self, dy, scope, context)
    length = scope["q"].shape[2]
    shifted = context._replace(memory=tuple(past[:, :, :0] for past in context.memory))
    right = Scope.run_backward

    def first_keys(scope, key, d, **hints):
        result = right(scope, key, d, **hints)
        return result if key != "attention" else (result[0], *(x[:, :, :length] for x in result[1:3]), None)

    Scope.run_backward = first_keys  # type: ignore[method-assign, assignment]
    try:
        return right_attention_backward(self, dy, scope, shifted)
    finally:
        Scope.run_backward = right  # type: ignore[method-assign]


@wrong_in({FeedForward: "backward"}, "feed-forward: dropout is left out", "feed_forward: geglu, dropout")
def _(self, dy, scope):
    dhidden = scope.run_backward("activation", scope.linear_backward(dy, "down"))
    return scope.linear_backward(dhidden, "up")


@wrong_in({Scope: "norm_backward"}, "block: the gradient of the norm's output is taken for its input's", "block")
def _(self, dy, name):
    right_norm_backward(self, dy, name)
    return dy


@wrong_in(
    {Scope: "dropout_backward"},
    "block: the feed-forward's mask is used for the attention branch",
    "block: post-norm, dropout",
)
def _(self, dy, name):
    if name == "output_dropout" and self.prefix.endswith("attention."):
        self = self.without_prefix().inside(self.prefix.removesuffix("attention.") + "ffn")
    return right_dropout_backward(self, dy, name)


@wrong_in({PostNormBlock: "backward"}, "block, post-norm: the path beside the attention is lost", "block: post-norm")
def _(self, dx, scope, context):
    attention, ffn = scope.inside("attention"), scope.inside("ffn")
    dsum = ffn.norm_backward(dx, "norm")
    dx = dsum + self.ffn.backward(ffn.dropout_backward(dsum, "output_dropout"), ffn)
    dsum = attention.norm_backward(dx, "norm")
    return self.attention.backward(attention.dropout_backward(dsum, "output_dropout"), attention, context)


@wrong_in({PreNormBlock: "backward"}, "block, pre-norm: the path beside the feed-forward is lost", "block: pre-norm")
def _(self, dx, scope, context):
    attention, ffn = scope.inside("attention"), scope.inside("ffn")
    dx = ffn.norm_backward(self.ffn.backward(ffn.dropout_backward(dx, "output_dropout"), ffn), "norm")
    dnormed = self.attention.backward(attention.dropout_backward(dx, "output_dropout"), attention, context)
    return dx + (attention.norm_backward(dnormed, "norm") if self.first_norm else dnormed)


def _beside(scope: Any) -> bool:
    """Whether a scope is that of the block, not that of its attention."""
    return not scope.prefix.endswith("attention.")


@wrong_in(
    {SelfAttention: "take_read_backward"},
    "last layer: the gradient of the tokens that are read goes to the first tokens",
    "block: post-norm, some tokens read",
)
def _(self, dx, scope, context):
    if context.rows is None:
        return dx
    return np.roll(right_take_read_backward(self, dx, scope, context).reshape(-1, dx.shape[-1]), -1, 0).reshape(
        scope.saved("read").values[1]
    )


@wrong_in(
    {SelfAttention: "take_read_backward"},
    "last layer: the path beside the attention is lost where tokens are left out",
    "block: pre-norm, some tokens read",
)
def _(self, dx, scope, context):
    found = right_take_read_backward(self, dx, scope, context)
    return found * 0 if _beside(scope) and context.rows is not None else found


@wrong_in(
    {SelfAttention: "take_read_backward"},
    "last layer: the attention gets the gradient of the sum once more",
    "block: post-norm, the first tokens read",
)
def _(self, dx, scope, context):
    found = right_take_read_backward(self, dx, scope, context)
    return found if _beside(scope) or context.rows is None else 2 * found


# ---- heads, tied weights -------------------------------------------------------------------------------------------


@wrong_in({mlm.MaskedLanguageHead: "backward"}, "tied weights: the decoder's term is forgotten", "bert: mlm, tied")
def _(self, doutput, scope):
    return right_mlm_backward(self, doutput, _without(scope, "embeddings.token"))


@wrong_in({FlatGradients: "add_rows"}, "tied weights: the lookup's term is forgotten", "bert: mlm, tied")
def _(self, name, index, rows):
    if name != "embeddings.token":
        right_add_rows(self, name, index, rows)


@wrong_in({FlatGradients: "add_rows"}, "tied weights: the lookup's term overwrites the decoder's", "bert: mlm, tied")
def _(self, name, index, rows):
    right_add_rows(self, name, index, rows)
    self.buffer[name][index] = rows


@wrong_in({Scope: "run_backward"}, "pooler: tanh is left out of the backward", "pooler", "sequence")
def _(self, key, dy, **hints):
    return dy if key == "pooler.activation" else right_run_backward(self, key, dy, **hints)


wrong_in({Scope: "run_backward"}, "masked rows: every position gets the mean of the chosen ones", "mlm")(
    _only("rows", lambda self, key, dy, **hints: np.broadcast_to(dy.mean(0), right_run_backward(self, key, dy).shape))
)


@wrong_in({sequence.PairHead: "backward"}, "pretraining: the pair's gradient never reaches [CLS]", "bert: pretraining")
def _(self, doutput, scope):
    return 0.0 * right_pair_backward(self, doutput, scope)


@wrong_in({passes: "_sum"}, "pretraining: only the gradient of the words goes back", "bert: pretraining")
def _(terms):
    return terms[0] if terms[0].ndim else sum(terms[1:], terms[0])


@wrong_in(
    {pretraining.PretrainingHead: "backward"}, "pretraining: the pair's gradient counts twice", "pretraining: tied"
)
def _(self, doutput, scope):
    first, second = (p.head.backward(doutput[kind], scope.inside(p.name)) for kind, p in self.parts.items())
    return first + 2.0 * second.reshape(first.shape)


wrong_in({pooling.EmbeddingHead: "join_pairs"}, "embeddings: the rows of a pair exchange gradients", "embedding")(
    lambda self, first, second: np.stack([second, first], 1)
)


wrong_in({pooling.EmbeddingHead: "join_pairs"}, "embeddings: pairs laid out one half after the other", "embedding")(
    lambda self, first, second: np.concatenate([first, second])
)


@wrong_in({tokens.SpanHead: "backward"}, "spans: padding passes a gradient on", "span: scores, ragged")
def _(self, doutput, scope):
    return tokens.TokenHead.backward(self, doutput.swapaxes(1, 2), scope)


@wrong_in({tokens.SpanHead: "backward"}, "spans: starts and ends mixed up by a reshape", "span")
def _(self, doutput, scope):
    return tokens.TokenHead.backward(self, doutput.reshape(len(doutput), -1, 2), scope)


@wrong_in(
    {sequence: "pool_backward"}, "attention pooling: the head's query gets no gradient", "sequence: ordinal, attention"
)
def _(dy, scope, how):
    return right_pool_backward(dy, _without(scope, "pool.query"), how)


# ---- the whole -----------------------------------------------------------------------------------------------------


@wrong_in(
    {Encoder: "recompute"},
    "checkpointing: the second run of a block draws another dropout mask",
    "bert: mlm, dropout, checkpointing",
)
def _(self, i, context, scope, cache):
    if scope.dropout_source is not None:
        scope = scope.with_cache(scope.cache)
        scope.dropout_source = scope.dropout_source.from_row(1)
    return right_recompute(self, i, context, scope, cache)


@wrong_in({ThreadGradients: "add_to"}, "threads: the second thread's gradients are lost", "bert: mlm, two threads")
def _(self, target, names):
    pass


@wrong_in(
    {ThreadGradients: "add_rows"}, "threads: the second thread's embedding gradients are lost", "bert: mlm, two threads"
)
def _(self, name, index, rows):
    pass


@wrong_in(
    {ThreadGradients: "add"},
    "shared layers: the second thread's gradients count for the first use of a group only",
    "bert: mlm, shared layers",
)
def _(self, name, value):
    if self._content[name].name != "FULL":
        right_add(self, name, value)


@wrong_in({FlatGradients: "add"}, "shared layers: a later layer overwrites the gradient", "bert: mlm, shared layers")
def _(self, name, value):
    if value is not None and self.needs(name):
        self.buffer[name][...] = value
        self._content[name] = next(kind for kind in type(self._content[name]) if kind.name == "FULL")


@wrong_in(
    {Encoder: "backward"},
    "encoder: the gradient enters before the last norm",
    "modernbert: encoder",
    "causal: encoder",
)
def _(self, dx, batch, scope, *rest):
    config = self.config
    object.__setattr__(self, "config", config.replace(final_norm=False))
    try:
        right_encoder_backward(self, dx, batch, scope, *rest)
    finally:
        object.__setattr__(self, "config", config)
