"""One vector for a whole sequence: which tokens it is made of, and BERT's last step before a classifier."""

from __future__ import annotations

from glassbert.arrays import Array
from glassbert.errors import ConfigError
from glassbert.layers.scope import Parameter, Scope, linear_parameters
from glassbert.models.config import CHOICES, EncoderConfig

POOLINGS = {"cls": "cls_pool", "mean": "mean_pool", "max": "max_pool", "attention": "attention_pool"}


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


def pool(hidden: Array, mask: Array | None, scope: Scope, pooling: str) -> Array:
    """[B, T, H] -> [B, H]"""
    query = (scope.parameter("pool.query"),) if pooling == "attention" else ()
    return scope.record("pooled", scope.run(POOLINGS[pooling], "pool", hidden, mask, *query))


def pool_backward(dy: Array, scope: Scope, pooling: str) -> Array:
    scope.record("d_pooled", dy)
    if pooling != "attention":
        return scope.run_backward("pool", dy)
    dx, dquery = scope.run_backward("pool", dy)
    scope.add("pool.query", dquery)
    return dx


def pooler(x: Array, scope: Scope, config: EncoderConfig) -> Array:
    """BERT's last step before a classifier: tanh(x Wᵀ + b)."""
    outer = scope.without_prefix()  # the pooler belongs to the encoder
    hidden = outer.linear(x, "pooler")
    return outer.record("pooler.output", outer.run(config.pooler_activation, "pooler.activation", hidden))


def pooler_backward(dy: Array, scope: Scope) -> Array:
    outer = scope.without_prefix()  # the pooler belongs to the encoder
    outer.record("pooler.d_output", dy)
    return outer.linear_backward(outer.run_backward("pooler.activation", dy), "pooler")


def pooler_parameters(config: EncoderConfig) -> list[Parameter]:
    return linear_parameters("pooler", config.hidden_size, config.hidden_size, True)
