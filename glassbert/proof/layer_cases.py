"""Cases of the layers: operations tied to parameters, cache and gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Array, Layout
from glassbert.families.bert import BertConfig
from glassbert.families.modernbert import ModernBertConfig
from glassbert.layers import attention
from glassbert.layers.attention import AttentionContext, SelfAttention
from glassbert.layers.embeddings import Embeddings
from glassbert.layers.registry import BLOCKS, EMBEDDINGS, FEED_FORWARDS, POSITIONS
from glassbert.layers.scope import Cache, Parameter, Scope, linear_parameters, norm_parameters
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Batch
from glassbert.ops import AttentionPattern, rotary_angles
from glassbert.proof.attention_cases import pattern_on, tiles
from glassbert.proof.cases import Fixture, FrozenDropout, case, settings

Rng = np.random.Generator
ENTRIES = 8
RATES = (
    "embedding_dropout",
    "attention_dropout",
    "hidden_dropout",
    "ffn_dropout",
    "pooler_dropout",
    "classifier_dropout",
)
NO_DROPOUT: dict[str, Any] = dict.fromkeys(RATES, 0.0)
DROPOUT: dict[str, Any] = dict.fromkeys(RATES, 0.3)

TINY_BERT = BertConfig(
    vocab_size=11, hidden_size=6, num_hidden_layers=2, num_attention_heads=2, intermediate_size=7,
    max_position_embeddings=8, pad_token_id=None, **NO_DROPOUT,
)  # fmt: skip
TINY_MODERN = ModernBertConfig(
    vocab_size=11, hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=5,
    max_position_embeddings=12, pad_token_id=None, local_window=2, global_attention_every=2, **NO_DROPOUT,
)  # fmt: skip
UNTIED = TINY_BERT.replace(tie_word_embeddings=False)
IDS = [[3, 1, 3, 3, 0], [0, 0, 0, 0, 0], [9, 1, 1, 10, 0]]
TYPES = [[0, 0, 1, 1, 1], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]]
MASK = [[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0]]  # every thread of two gets a real row
SEGMENTS = [[1, 1, 2, 2, 2], [0, 0, 0, 0, 0], [1, 2, 2, 0, 0]]


def random_parameters(rng: Rng, parameters: list[Parameter]) -> dict[str, np.ndarray]:
    """Values of a size at which every gradient matters: gamma is not 1, no bias is 0."""
    values = {}
    for name, shape, initial in parameters:
        noise = rng.standard_normal(shape)
        if initial == "ones":
            values[name] = 1.0 + 0.4 * noise
        elif initial == "zeros":
            values[name] = 0.4 * noise
        else:
            values[name] = noise * (0.8 if initial == "embedding" else 1.2 / shape[-1] ** 0.5)
    return values


def layer_fixture(
    rng: Rng,
    parameters: list[Parameter],
    forward: Callable[[Any, Array, Scope], Array],
    backward: Callable[[Any, Array, Scope], Array | None],
    shape: tuple[int, ...] | None = (3, 5, 6),
    dropout: bool = False,
    **options: Any,
) -> Fixture:
    """forward(engine, x, scope) and backward(engine, dy, scope); shape None: there is no x."""
    inputs = random_parameters(rng, parameters)
    layout = Layout({name: values.shape for name, values in inputs.items()})
    if shape is not None:
        inputs["x"] = rng.standard_normal(shape)

    def function(engine: Any, inputs: Mapping[str, Array]) -> Any:
        values = {name: value for name, value in inputs.items() if name != "x"}
        cache = Cache()
        masks = FrozenDropout(engine) if dropout else None
        y = forward(engine, inputs.get("x"), Scope(engine.ops, values, cache, None, masks))

        def run_backward(dy: Array) -> dict[str, Array]:
            gradients = engine.gradients(layout)
            dx = backward(engine, dy, Scope(engine.ops, values, cache, gradients, masks))
            if values:
                gradients.fill_missing()
            return {**gradients, "x": dx}

        return y, run_backward

    return Fixture(inputs, function, **{"entries": ENTRIES, **options})


# ---- the named operations of a scope -------------------------------------------------------------------------------


def linear_fixture(rng: Rng, bias: bool) -> Fixture:
    return layer_fixture(
        rng,
        linear_parameters("up", 6, 5, bias),
        lambda engine, x, scope: scope.linear(x, "up"),
        lambda engine, dy, scope: scope.linear_backward(dy, "up"),
    )


def norm_fixture(rng: Rng, bias: bool) -> Fixture:
    return layer_fixture(
        rng,
        norm_parameters("norm", 6, bias),
        lambda engine, x, scope: scope.norm(x, "norm", 1e-5),
        lambda engine, dy, scope: scope.norm_backward(dy, "norm"),
    )


def dropout_fixture(rng: Rng, dropout: bool, rate: float = 0.4) -> Fixture:
    return layer_fixture(
        rng,
        [],
        lambda engine, x, scope: scope.dropout(x, "dropout", rate),
        lambda engine, dy, scope: scope.dropout_backward(dy, "dropout"),
        dropout=dropout,
    )


case("layer", "scope.linear", "bias")(lambda rng: linear_fixture(rng, True))
case("layer", "scope.linear", "no bias")(lambda rng: linear_fixture(rng, False))
case("layer", "scope.norm", "bias")(lambda rng: norm_fixture(rng, True))
case("layer", "scope.norm", "no bias")(lambda rng: norm_fixture(rng, False))
case("layer", "scope.dropout", "frozen mask")(lambda rng: dropout_fixture(rng, True))
case("layer", "scope.dropout", "evaluation")(lambda rng: dropout_fixture(rng, False))


# ---- embeddings ----------------------------------------------------------------------------------------------------


def embeddings_of(config: EncoderConfig) -> Embeddings:
    return EMBEDDINGS[config.embeddings](config, POSITIONS[config.positions](config))


def embeddings_fixture(
    rng: Rng, config: EncoderConfig, types: Any = None, positions: Any = None, dropout: bool = False
) -> Fixture:
    layer = embeddings_of(config)

    def batch(engine):
        given = np.arange(5)[None] if positions is None else np.asarray(positions)
        kinds = None if types is None else engine.integers(np.asarray(types))
        return Batch(engine.integers(given), engine.integers(np.asarray(IDS)), kinds)

    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(batch(engine), scope),
        lambda engine, dy, scope: layer.backward(dy, batch(engine), scope),
        shape=None,
        dropout=dropout,
    )


case("layer", "embeddings", "token types given")(lambda rng: embeddings_fixture(rng, TINY_BERT, TYPES))
case("layer", "embeddings", "token types omitted")(lambda rng: embeddings_fixture(rng, TINY_BERT))
case("layer", "embeddings", "positions of packed documents, dropout")(
    lambda rng: embeddings_fixture(
        rng, TINY_BERT.replace(**DROPOUT), TYPES, [[0, 1, 0, 1, 2], [0] * 5, [0, 0, 1, 2, 3]], True
    )
)
case("layer", "embeddings", "no norm, no token types")(
    lambda rng: embeddings_fixture(rng, TINY_BERT.replace(type_vocab_size=0, embedding_norm=False))
)
case("layer", "embeddings", "no positions")(
    lambda rng: embeddings_fixture(rng, TINY_BERT.replace(positions="none"), TYPES)
)
case("layer", "embeddings", "rotary: tokens alone")(lambda rng: embeddings_fixture(rng, TINY_MODERN))
case("layer", "embeddings", "narrower than the layers, dropout")(
    lambda rng: embeddings_fixture(rng, TINY_BERT.replace(embedding_size=4, **DROPOUT), TYPES, dropout=True)
)


def after_sum_fixture(rng: Rng, config: EncoderConfig, dropout: bool = False) -> Fixture:
    layer = embeddings_of(config)
    return layer_fixture(
        rng,
        norm_parameters("norm", config.hidden_size, config.norm_bias) if config.embedding_norm else [],
        lambda engine, x, scope: layer.after_sum(x, scope),
        lambda engine, dy, scope: layer.after_sum_backward(dy, scope),
        shape=(3, 5, config.hidden_size),
        dropout=dropout,
    )


case("layer", "after_sum", "norm and dropout")(
    lambda rng: after_sum_fixture(rng, TINY_BERT.replace(**DROPOUT), dropout=True)
)
case("layer", "after_sum", "no norm")(lambda rng: after_sum_fixture(rng, TINY_BERT.replace(embedding_norm=False)))


# ---- attention, feed-forward, block --------------------------------------------------------------------------------


def context_on(engine: Any, config: EncoderConfig, pattern: Mapping[str, Any], length: int) -> AttentionContext:
    given = pattern_on(engine, **pattern)
    if config.positions != "rotary":
        return AttentionContext(given)
    dtype = np.dtype("float64" if engine.dtype_name == "float64" else "float32")
    cos, sin = rotary_angles(np.arange(length)[None], config.head_size, 100.0, dtype)
    return AttentionContext(given, (engine.array(cos), engine.array(sin)))


def tiny_tiles() -> contextlib.ExitStack:
    """Several tiles in a row of five tokens, and no row short enough for dense attention."""
    stack = contextlib.ExitStack()
    stack.enter_context(settings(tiles, QUERY_TILE=2, KEY_TILE=3))
    stack.enter_context(settings(attention, DENSE_LENGTH=0))
    return stack


def attention_layer_fixture(rng: Rng, config: EncoderConfig, pattern: Mapping[str, Any], **options: Any) -> Fixture:
    layer = SelfAttention(config)
    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(x, scope, context_on(engine, config, pattern, 5)),
        lambda engine, dy, scope: layer.backward(dy, scope, context_on(engine, config, pattern, 5)),
        (3, 5, config.hidden_size),
        **options,
    )


def biased_attention_fixture(rng: Rng, config: EncoderConfig, **options: Any) -> Fixture:
    """A bias of the scores as a parameter, whose gradient is accumulated under a name."""
    layer = SelfAttention(config)

    def context(engine, scope):
        given = pattern_on(engine, keys=MASK)
        return AttentionContext(given, None, scope.parameter("bias"), "positions.d_bias")

    def backward(engine, dy, scope):
        scope.cache.stored.pop("positions.d_bias", None)
        dx = layer.backward(dy, scope, context(engine, scope))
        scope.add("bias", scope.cache["positions.d_bias"])
        return dx

    return layer_fixture(
        rng,
        [*layer.parameters(), Parameter("bias", (1, config.num_attention_heads, 5, 5), "weight")],
        lambda engine, x, scope: layer.forward(x, scope, context(engine, scope)),
        backward,
        (3, 5, config.hidden_size),
        **options,
    )


def memory_fixture(rng: Rng, config: EncoderConfig) -> Fixture:
    """Keys and values of three earlier tokens, which are constants."""
    layer = SelfAttention(config)
    memory = rng.standard_normal((2, 3, config.num_attention_heads, 3, config.head_size))

    def context(engine):
        past = engine.array(memory[0]), engine.array(memory[1])
        return AttentionContext(AttentionPattern(causal=True, offset=3), memory=past)

    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(x, scope, context(engine)),
        lambda engine, dy, scope: layer.backward(dy, scope, context(engine)),
        (3, 5, config.hidden_size),
    )


case("layer", "self_attention", "bias of the scores, ragged")(lambda rng: biased_attention_fixture(rng, TINY_BERT))
case("layer", "self_attention", "bias of the scores, tiled")(
    lambda rng: biased_attention_fixture(rng, TINY_BERT, around=tiny_tiles)
)
case("layer", "self_attention", "scale of its own")(
    lambda rng: attention_layer_fixture(rng, TINY_BERT.replace(attention_scale=0.3), {"keys": MASK})
)
case("layer", "self_attention", "memory of earlier tokens, causal")(lambda rng: memory_fixture(rng, TINY_BERT))
case("layer", "self_attention", "biases, ragged")(lambda rng: attention_layer_fixture(rng, TINY_BERT, {"keys": MASK}))
case("layer", "self_attention", "rotary, no biases, local, packed")(
    lambda rng: attention_layer_fixture(rng, TINY_MODERN, {"segments": SEGMENTS, "window": 2})
)
case("layer", "self_attention", "dropout, causal")(
    lambda rng: attention_layer_fixture(rng, TINY_BERT.replace(**DROPOUT), {"causal": True}, dropout=True)
)
case("layer", "self_attention", "tiled, rotary, local, ragged")(
    lambda rng: attention_layer_fixture(rng, TINY_MODERN, {"keys": MASK, "window": 1}, around=tiny_tiles)
)
case("layer", "self_attention", "tiled, dropout, packed")(
    lambda rng: attention_layer_fixture(
        rng, TINY_BERT.replace(**DROPOUT), {"segments": SEGMENTS}, dropout=True, around=tiny_tiles, engines_agree=False
    )
)


def feed_forward_fixture(rng: Rng, config: EncoderConfig, **options: Any) -> Fixture:
    layer = FEED_FORWARDS[config.feed_forward](config)
    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(x, scope),
        lambda engine, dy, scope: layer.backward(dy, scope),
        (1, 3, config.hidden_size),
        **options,
    )


case("layer", "feed_forward", "gelu")(lambda rng: feed_forward_fixture(rng, TINY_BERT))
case("layer", "feed_forward", "relu, no biases")(
    lambda rng: feed_forward_fixture(rng, TINY_BERT.replace(activation="relu", ffn_bias=False))
)
case("layer", "feed_forward", "geglu, dropout")(
    lambda rng: feed_forward_fixture(rng, TINY_MODERN.replace(**DROPOUT), dropout=True)
)


def block_fixture(
    rng: Rng,
    config: EncoderConfig,
    index: int,
    pattern: Mapping[str, Any],
    read: list[int] | None = None,
    **options: Any,
) -> Fixture:
    """`read` are the tokens that are read of a last layer, of 15; None: all."""
    layer = BLOCKS[config.norm_position](config, index)

    def context(engine):
        rows = None if read is None else engine.integers(np.array(read, np.int64))
        return context_on(engine, config, pattern, 5)._replace(rows=rows)

    return layer_fixture(
        rng,
        layer.parameters(),
        lambda engine, x, scope: layer.forward(x, scope, context(engine)),
        lambda engine, dy, scope: layer.backward(dy, scope, context(engine)),
        (3, 5, config.hidden_size),
        **options,
    )


case("layer", "block", "post-norm, ragged")(lambda rng: block_fixture(rng, TINY_BERT, 0, {"keys": MASK}))
case("layer", "block", "post-norm, dropout")(
    lambda rng: block_fixture(rng, TINY_BERT.replace(**DROPOUT), 1, {"keys": MASK}, dropout=True)
)
case("layer", "block", "pre-norm, first norm left out")(lambda rng: block_fixture(rng, TINY_MODERN, 0, {"keys": MASK}))
case("layer", "block", "pre-norm, local, dropout")(
    lambda rng: block_fixture(rng, TINY_MODERN.replace(**DROPOUT), 1, {"window": 1}, dropout=True)
)
case("layer", "block", "post-norm, some tokens read")(
    lambda rng: block_fixture(rng, TINY_BERT, 1, {"keys": MASK}, [1, 4, 12])
)
case("layer", "block", "post-norm, the first tokens read, dropout")(
    lambda rng: block_fixture(rng, TINY_BERT.replace(**DROPOUT), 1, {"keys": MASK}, [0, 5, 10], dropout=True)
)
case("layer", "block", "pre-norm, some tokens read, one twice")(
    lambda rng: block_fixture(rng, TINY_MODERN, 1, {"window": 1}, [2, 7, 13, 2])
)
case("layer", "block", "pre-norm, one token read, first norm left out")(
    lambda rng: block_fixture(rng, TINY_MODERN, 0, {"keys": MASK}, [11])
)
