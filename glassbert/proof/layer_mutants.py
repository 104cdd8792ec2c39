"""Wrong gradients that arise where operations are put together: in layers, heads, shared weights and threads."""

from __future__ import annotations

import numpy as np

from glassbert.arrays import FlatGradients, ShardGradients
from glassbert.layers import attention, basics, block, embeddings, feed_forward, values
from glassbert.models import encoder, model
from glassbert.models.heads import embedding, mlm, pooling, pretraining, sequence, tokens
from glassbert.ops import embedding_backward, linear_backward
from glassbert.proof.mutants import wrong_in

EMBEDDINGS = {embeddings: "embeddings_backward", encoder: "embeddings_backward"}
right_embeddings_backward = embeddings.embeddings_backward
right_add_rows = FlatGradients.add_rows
right_join_qkv = attention.join_qkv
right_block_again = encoder.block_again
right_norm_backward = basics.norm_backward
right_drop_backward = basics.drop_backward
right_pair_backward = sequence.PairHead.backward
right_pool_backward = pooling.pool_backward
right_encode_backward = encoder.encode_backward


class Without:
    """Gradients that lose what is said about one parameter."""

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


def _without(at, name):
    scope = at.inside("")
    scope.prefix, scope.gradients = at.prefix, Without(at.gradients, name)
    return scope


# ---- embeddings ----------------------------------------------------------------------------------------------------


@wrong_in(EMBEDDINGS, "embeddings: token types get no gradient", "embeddings")
def _(dx, at, config):
    right_embeddings_backward(dx, _without(at, "token_type"), config)


@wrong_in(EMBEDDINGS, "embeddings: positions get no gradient", "embeddings")
def _(dx, at, config):
    right_embeddings_backward(dx, _without(at, "position"), config)


@wrong_in(EMBEDDINGS, "embeddings: positions learn from the first sequence only", "embeddings")
def _(dx, at, config):
    right_embeddings_backward(dx, _without(at, "position"), config)
    if config.positions == "learned":
        if config.embedding_norm:
            dx = basics.norm_backward(dx, _without(_without(at, "norm.weight"), "norm.bias"), "norm")
        at.gradients.add_rows(at.name("position"), *embedding_backward(dx[:1], at["positions"][:1]))


@wrong_in(
    {embeddings: "after_sum_backward", values: "after_sum_backward"},
    "after_sum: dropout is forgotten on the way back",
    "after_sum",
)
def _(dx, at, config):
    return basics.norm_backward(dx, at, "norm") if config.embedding_norm else dx


@wrong_in({embeddings: "_first_row_only"}, "embeddings: omitted token types teach every row of the table", "embeddings")
def _(dx, table):
    return np.broadcast_to(dx.reshape(-1, dx.shape[-1]).sum(0), table.shape).copy()


# ---- attention, feed-forward, block --------------------------------------------------------------------------------


@wrong_in(
    {attention: "join_qkv"}, "attention layer: gradients of keys and values joined in the wrong order", "self_attention"
)
def _(q, k, v):
    return right_join_qkv(q, v, k)


@wrong_in({attention: "rotary_backward"}, "attention layer: rotary positions are not undone", "self_attention")
def _(dy, cos, sin):
    return dy


@wrong_in(
    {feed_forward: "drop_backward"}, "feed-forward: dropout forgotten on the way back", "feed_forward: geglu, dropout"
)
def _(dy, at, name, rate):
    return dy


@wrong_in({block: "norm_backward"}, "block: the norm's input gradient is taken for its output's", "block")
def _(dy, at, name):
    right_norm_backward(dy, at, name)
    return dy


@wrong_in(
    {block: "drop_backward"},
    "block: the feed-forward's mask is used for the attention branch",
    "block: post-norm, dropout",
)
def _(dy, at, name, rate):
    if at.prefix.endswith("attention."):
        at = at.outermost().inside(at.prefix.removesuffix("attention.") + "ffn")
    return right_drop_backward(dy, at, name, rate)


# ---- heads, tied weights -------------------------------------------------------------------------------------------


@wrong_in({mlm: "linear_backward"}, "tied weights: the decoder's term is forgotten", "bert: mlm, tied")
def _(dy, x, weight, has_bias=True, out=(None, None)):
    dx, dweight, dbias = linear_backward(dy, x, weight, has_bias)
    return dx, 0.0 * dweight, dbias


@wrong_in({FlatGradients: "add_rows"}, "tied weights: the lookup's term is forgotten", "bert: mlm, tied")
def _(self, name, index, rows):
    if name != "embeddings.token":
        right_add_rows(self, name, index, rows)


@wrong_in({FlatGradients: "add_rows"}, "tied weights: the lookup's term overwrites the decoder's", "bert: mlm, tied")
def _(self, name, index, rows):
    right_add_rows(self, name, index, rows)
    self.buffer[name][index] = rows


@wrong_in({pooling: "tanh_backward"}, "pooler: tanh left out of backward", "pooler", "sequence")
def _(dy, x, y):
    return dy


@wrong_in({mlm: "take_rows_backward"}, "masked rows: every position gets the mean of the chosen ones", "mlm")
def _(dy, rows, shape):
    return np.broadcast_to(dy.mean(0), shape).copy()


@wrong_in({sequence.PairHead: "backward"}, "pretraining: the pair's gradient never reaches [CLS]", "bert: pretraining")
def _(self, doutput, at):
    return 0.0 * right_pair_backward(self, doutput, at)


@wrong_in({pretraining: "_sum"}, "pretraining: only the words' gradient goes back", "bert: pretraining")
def _(terms):
    return terms[0] if terms[0].ndim else sum(terms[1:], terms[0])


@wrong_in({embedding.EmbeddingHead: "loss_backward"}, "embeddings: the rows of a pair exchange gradients", "embedding")
def _(self, dloss, at):
    first, second = self.criterion.backward(dloss, at["loss.cache"])
    return np.stack([second, first], 1).reshape(at["loss.shape"])


@wrong_in(
    {embedding.EmbeddingHead: "loss_backward"}, "embeddings: pairs laid out one half after the other", "embedding"
)
def _(self, dloss, at):
    return np.concatenate(self.criterion.backward(dloss, at["loss.cache"]))


@wrong_in({tokens.SpanHead: "backward"}, "spans: padding learns from an incoming gradient", "span: scores, ragged")
def _(self, doutput, at):
    return tokens.TokenHead.backward(self, doutput.swapaxes(1, 2), at)


@wrong_in({tokens.SpanHead: "backward"}, "spans: starts and ends mixed up by a reshape", "span")
def _(self, doutput, at):
    return tokens.TokenHead.backward(self, doutput.reshape(len(doutput), -1, 2), at)


@wrong_in(
    {sequence: "pool_backward"}, "attention pooling: the head's query never learns", "sequence: ordinal, attention"
)
def _(dy, at, how):
    return right_pool_backward(dy, _without(at, "pool.query"), how)


# ---- the whole -----------------------------------------------------------------------------------------------------


@wrong_in(
    {encoder: "block_again"},
    "checkpointing: the second run of a block draws another dropout mask",
    "bert: mlm, dropout, checkpointing",
)
def _(i, parameters, config, batch, source, cache):
    return right_block_again(i, parameters, config, batch, source and source.from_row(1), cache)


@wrong_in({ShardGradients: "pour_into"}, "threads: the second thread's gradients are lost", "bert: mlm, two threads")
def _(self, target, names):
    pass


@wrong_in(
    {ShardGradients: "add_rows"}, "threads: the second thread's embedding gradients are lost", "bert: mlm, two threads"
)
def _(self, name, index, rows):
    pass


@wrong_in(
    {model: "encode_backward"},
    "encoder: gradient enters before the last norm",
    "modernbert: encoder",
    "causal: encoder",
)
def _(dx, parameters, config, *rest):
    right_encode_backward(dx, parameters, config.replace(final_norm=False), *rest)
