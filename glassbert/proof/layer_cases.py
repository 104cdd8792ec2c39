"""Cases of the layers: operations tied to parameters, cache and gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Array, Layout
from glassbert.families.bert import BertConfig
from glassbert.families.modernbert import ModernBertConfig
from glassbert.layers import attention, basics, block, embeddings, feed_forward
from glassbert.layers.attention import Sight
from glassbert.layers.scope import Cache, Parameter, Scope, linear_parameters, norm_parameters
from glassbert.models.config import EncoderConfig
from glassbert.ops import rotary_angles
from glassbert.proof.attention_cases import pattern_on, tiles
from glassbert.proof.cases import Fixture, FrozenDropout, case, settings

Rng = np.random.Generator
ENTRIES = 8
RATES = ("embedding_dropout", "attention_dropout", "hidden_dropout", "ffn_dropout", "classifier_dropout")
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
    """Values of a size at which every gradient can be seen: gamma is not 1, no bias is 0."""
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
    forward: Callable[[Any, Array, Scope, Any], Array],
    backward: Callable[[Any, Array, Scope, Any], Array | None],
    shape: tuple[int, ...] | None = (3, 5, 6),
    dropout: bool = False,
    **options: Any,
) -> Fixture:
    """forward(engine, x, at, source) and backward(engine, dy, at, source) with a scope around; shape None: no x."""
    inputs = random_parameters(rng, parameters)
    layout = Layout({name: values.shape for name, values in inputs.items()})
    if shape is not None:
        inputs["x"] = rng.standard_normal(shape)

    def function(engine: Any, inputs: Mapping[str, Array]) -> Any:
        values = {name: value for name, value in inputs.items() if name != "x"}
        cache = Cache()
        source = FrozenDropout(engine) if dropout else None
        y = forward(engine, inputs.get("x"), Scope(values, cache), source)

        def run_backward(dy: Array) -> dict[str, Array]:
            gradients = engine.gradients(layout)
            dx = backward(engine, dy, Scope(values, cache, gradients), source)
            if values:
                gradients.finish()
            return {**gradients, "x": dx}

        return y, run_backward

    return Fixture(inputs, function, **{"entries": ENTRIES, **options})


# ---- dense, norm, drop ---------------------------------------------------------------------------------------------


def dense_fixture(rng: Rng, bias: bool) -> Fixture:
    def forward(engine, x, at, source):
        at.keep("x", x)
        return basics.dense(x, at, "up")

    return layer_fixture(
        rng,
        linear_parameters("up", 6, 5, bias),
        forward,
        lambda engine, dy, at, source: basics.dense_backward(dy, at["x"], at, "up"),
    )


def norm_fixture(rng: Rng, bias: bool) -> Fixture:
    return layer_fixture(
        rng,
        norm_parameters("norm", 6, bias),
        lambda engine, x, at, source: basics.norm(x, at, "norm", 1e-5),
        lambda engine, dy, at, source: basics.norm_backward(dy, at, "norm"),
    )


def drop_fixture(rng: Rng, dropout: bool, rate: float = 0.4) -> Fixture:
    return layer_fixture(
        rng,
        [],
        lambda engine, x, at, source: basics.drop(x, at, "dropout", rate, source),
        lambda engine, dy, at, source: basics.drop_backward(dy, at, "dropout", rate),
        dropout=dropout,
    )


case("layer", "dense", "bias")(lambda rng: dense_fixture(rng, True))
case("layer", "dense", "no bias")(lambda rng: dense_fixture(rng, False))
case("layer", "norm", "bias")(lambda rng: norm_fixture(rng, True))
case("layer", "norm", "no bias")(lambda rng: norm_fixture(rng, False))
case("layer", "drop", "frozen mask")(lambda rng: drop_fixture(rng, True))
case("layer", "drop", "evaluation")(lambda rng: drop_fixture(rng, False))


# ---- embeddings ----------------------------------------------------------------------------------------------------


def embeddings_fixture(
    rng: Rng, config: EncoderConfig, types: Any = None, positions: Any = None, dropout: bool = False
) -> Fixture:
    places = np.arange(5)[None] if positions is None else np.asarray(positions)

    def forward(engine, x, at, source):
        kinds = None if types is None else engine.integers(np.asarray(types))
        ids = engine.integers(np.asarray(IDS))
        return embeddings.embeddings(ids, engine.integers(places), kinds, at, config, source)

    return layer_fixture(
        rng,
        embeddings.embeddings_parameters(config),
        forward,
        lambda engine, dy, at, source: embeddings.embeddings_backward(dy, at, config),
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
case("layer", "embeddings", "rotary: tokens alone")(lambda rng: embeddings_fixture(rng, TINY_MODERN))


def after_sum_fixture(rng: Rng, config: EncoderConfig, dropout: bool = False) -> Fixture:
    return layer_fixture(
        rng,
        norm_parameters("norm", config.hidden_size, config.norm_bias) if config.embedding_norm else [],
        lambda engine, x, at, source: embeddings.after_sum(x, at, config, source),
        lambda engine, dy, at, source: embeddings.after_sum_backward(dy, at, config),
        shape=(3, 5, config.hidden_size),
        dropout=dropout,
    )


case("layer", "after_sum", "norm and dropout")(
    lambda rng: after_sum_fixture(rng, TINY_BERT.replace(**DROPOUT), dropout=True)
)
case("layer", "after_sum", "no norm")(lambda rng: after_sum_fixture(rng, TINY_BERT.replace(embedding_norm=False)))


# ---- attention, feed-forward, block --------------------------------------------------------------------------------


def sight_on(engine: Any, config: EncoderConfig, who: Mapping[str, Any], length: int) -> Sight:
    pattern = pattern_on(engine, **who)
    if config.positions != "rotary":
        return Sight(pattern)
    dtype = np.dtype("float64" if engine.dtype_name == "float64" else "float32")
    angles = rotary_angles(np.arange(length)[None], config.head_size, 100.0, dtype)
    return Sight(pattern, *map(engine.array, angles))


def tiny_tiles() -> contextlib.ExitStack:
    """Several tiles in a row of five tokens, and no row short enough to keep its weights."""
    stack = contextlib.ExitStack()
    stack.enter_context(settings(tiles, QUERY_TILE=2, KEY_TILE=3))
    stack.enter_context(settings(attention, DENSE_LENGTH=0))
    return stack


def attention_layer_fixture(rng: Rng, config: EncoderConfig, who: Mapping[str, Any], **options: Any) -> Fixture:
    return layer_fixture(
        rng,
        attention.attention_parameters(config),
        lambda engine, x, at, source: attention.self_attention(x, at, config, sight_on(engine, config, who, 5), source),
        lambda engine, dy, at, source: attention.self_attention_backward(
            dy, at, config, sight_on(engine, config, who, 5), source
        ),
        (3, 5, config.hidden_size),
        **options,
    )


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
    return layer_fixture(
        rng,
        feed_forward.feed_forward_parameters(config),
        lambda engine, x, at, source: feed_forward.feed_forward(x, at, config, source),
        lambda engine, dy, at, source: feed_forward.feed_forward_backward(dy, at, config),
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


def block_fixture(rng: Rng, config: EncoderConfig, index: int, who: Mapping[str, Any], **options: Any) -> Fixture:
    return layer_fixture(
        rng,
        block.block_parameters(config, index),
        lambda engine, x, at, source: block.block(x, at, config, sight_on(engine, config, who, 5), source),
        lambda engine, dy, at, source: block.block_backward(dy, at, config, sight_on(engine, config, who, 5), source),
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
