"""One vector for a whole sequence: which tokens it is made of, and BERT's last step before a classifier."""

from __future__ import annotations

from glassbert.engines.namespace import Array
from glassbert.errors import ConfigError
from glassbert.layers.basics import dense, dense_backward
from glassbert.layers.parameters import Parameter, linear_parameters
from glassbert.layers.scope import Scope
from glassbert.models.config import CHOICES, EncoderConfig
from glassbert.ops import (
    attention_pool,
    attention_pool_backward,
    cls_pool,
    cls_pool_backward,
    max_pool,
    max_pool_backward,
    mean_pool,
    mean_pool_backward,
    tanh,
    tanh_backward,
)

POOLINGS = {
    "cls": (cls_pool, cls_pool_backward),
    "mean": (mean_pool, mean_pool_backward),
    "max": (max_pool, max_pool_backward),
}


def with_pooling(config: EncoderConfig, pooling: str) -> EncoderConfig:
    """The config with another pooling. BERT's tanh pooler was trained on [CLS], so only "cls" goes through it.

    For [CLS] without the pooler, give a config with `pooler=False`.
    """
    if pooling not in CHOICES["classifier_pooling"]:
        raise ConfigError(f"unknown pooling {pooling!r}; choose one of {', '.join(CHOICES['classifier_pooling'])}")
    return config.replace(classifier_pooling=pooling, pooler=config.pooler and pooling == "cls")


def pool_parameters(config: EncoderConfig, pooling: str) -> list[Parameter]:
    """A query of zeros weighs all tokens alike: attention begins as the mean."""
    return [Parameter("pool.query", (config.hidden_size,), "zeros")] if pooling == "attention" else []


def pool(hidden: Array, mask: Array | None, at: Scope, pooling: str) -> Array:
    """[B, T, H] -> [B, H]"""
    at.keep("pool.shape", hidden.shape)
    if pooling == "attention":
        pooled, cache = attention_pool(hidden, mask, at.parameter("pool.query"))
        at.note("pool.weights", cache[1])
    else:
        pooled, cache = POOLINGS[pooling][0](hidden, mask)
    at.keep("pool.cache", cache)
    return at.note("pooled", pooled)


def pool_backward(dy: Array, at: Scope, pooling: str) -> Array:
    at.note("d_pooled", dy)
    if pooling != "attention":
        return POOLINGS[pooling][1](dy, at["pool.shape"], at["pool.cache"])
    dx, dquery = attention_pool_backward(dy, at["pool.cache"], at.parameter("pool.query"))
    at.add("pool.query", dquery)
    return dx


def pooler(x: Array, at: Scope) -> Array:
    """BERT's own last step before a classifier: tanh(x Wᵀ + b)."""
    at.keep("pooler.x", x)
    hidden = at.keep("pooler.hidden", dense(x, at, "pooler"))
    output, cache = tanh(hidden)
    at.keep("pooler.cache", cache)
    return at.note("pooler.output", output)


def pooler_backward(dy: Array, at: Scope) -> Array:
    at.note("pooler.d_output", dy)
    return dense_backward(tanh_backward(dy, at["pooler.hidden"], at["pooler.cache"]), at["pooler.x"], at, "pooler")


def pooler_parameters(config: EncoderConfig) -> list[Parameter]:
    return linear_parameters("pooler", config.hidden_size, config.hidden_size, True)
