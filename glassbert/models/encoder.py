"""The encoder: embeddings, a stack of blocks, a last norm. Forward and backward on one screen.

Its parts are chosen by the config from the tables in `glassbert.layers.registry`. It holds no parameters: both passes
are functions of a scope and a batch, so that threads run them on parts of a batch and MLX compiles them. With a prefix
(`generator.`) several encoders live in one model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from glassbert.arrays import Array, Gradients
from glassbert.layers.attention import QUERIES, AttentionContext
from glassbert.layers.mask_decoder import MaskDecoder
from glassbert.layers.registry import BLOCKS, EMBEDDINGS, POSITIONS
from glassbert.layers.scope import Cache, NullCache, Parameter, Scope, norm_parameters, with_prefix
from glassbert.models.config import EncoderConfig
from glassbert.ops import AttentionPattern

OnComplete = Callable[[str], object]  # called with a group of parameters whose gradients are complete ("layers.3")
Memory = tuple[tuple[Array, ...], ...]  # for each layer what its attention keeps: keys and values [B, heads, M, d]


def ignore(group: str) -> None:
    """For `on_complete`, where nothing waits for gradients."""


@dataclass(frozen=True)
class Batch:
    """The checked inputs of an encoder, as arrays of its engine."""

    positions: Array  # [B or 1, T]
    ids: Array | None = None  # [B, T]
    types: Array | None = None  # [B, T]
    mask: Array | None = None  # [B, T], 0 for padding
    segments: Array | None = None  # [B, T], the document of a token, 0 for padding
    pairs: Array | None = None  # [B, T, T], which token attends to which
    position_terms: Any = None  # what the position scheme computed on the host, such as rotary angles
    windows: Array | None = None  # [B, W], values of a series in place of ids
    number_index: Array | None = None  # [B, T], see `glassbert.ops.numbers`
    number_weights: Array | None = None  # [B, T, 2]
    memory: Memory | None = None  # of earlier tokens, for each layer
    more: dict[str, Array] = field(default_factory=dict)  # inputs that only the attention of a family reads

    @property
    def size(self) -> int:
        """The number of rows."""
        rows: Array = self.windows if self.ids is None else self.ids
        return rows.shape[0]

    @property
    def outputs(self) -> int:
        """The number of hidden states of a row: its tokens, or those that a query stream predicts."""
        queries = self.more.get(QUERIES)
        return (self.positions if queries is None else queries).shape[1]

    @property
    def real_tokens(self) -> Array | None:
        """[B, T], true where a token is no padding; None: all are real."""
        if self.segments is None:
            return self.mask if self.pairs is None else self.pairs.any(1)
        real = self.segments != 0
        return real if self.mask is None else real & (self.mask != 0)

    def rows(self, part: slice) -> Batch:
        """Some rows of the batch; what all rows share stays whole."""

        def cut(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(cut(one) for one in x)
            if isinstance(x, dict):
                return {name: cut(one) for name, one in x.items()}
            return x if x is None or x.shape[0] == 1 else x[part]

        return Batch(**{name: cut(value) for name, value in vars(self).items()})


class Encoder:
    """The parts that a config names, put together."""

    def __init__(
        self,
        config: EncoderConfig,
        prefix: str = "",
        aliases: Mapping[str, str] | None = None,
        decodes: bool = False,
    ):
        self.config, self.prefix = config, prefix
        self.aliases = dict(aliases or {})  # full names of parameters -> those that take their place
        layers = list(range(config.num_hidden_layers))
        self.decoder = MaskDecoder(config)
        self.decoding = len(layers)  # the layer before which the mask decoder begins
        if decodes and config.mask_decoder:
            self.decoding = layers[-1]
            layers.append(layers[-1])  # the last layer computes twice
        self.positions = POSITIONS[config.positions](config)
        self.embeddings = EMBEDDINGS[config.embeddings](config, self.positions)
        self.blocks = [BLOCKS[config.norm_position](config, i) for i in layers]
        self.windows = [config.window_of(i) for i in layers]
        self.groups = [config.group_of(i) for i in layers]
        self.first_of_group = [config.first_of_group(i) for i in layers]
        if len(layers) > config.num_hidden_layers:
            self.first_of_group[-1] = False
        self.levels = {parameter.name: self._level(parameter.name) for parameter in self.parameters()}

    def parameters(self) -> list[Parameter]:
        parameters = with_prefix("embeddings", self.embeddings.parameters())
        parameters += with_prefix("positions", self.positions.parameters())
        for i, block in enumerate(self.blocks):
            if self.first_of_group[i]:  # layers that share parameters have one set
                parameters += with_prefix(f"layers.{self.groups[i]}", block.parameters())
        if self.decoding < len(self.blocks):
            parameters += with_prefix("decoder", self.decoder.parameters())
        if self.config.final_norm:
            parameters += norm_parameters("final_norm", self.config.hidden_size, self.config.norm_bias)
        return [parameter._replace(name=self.prefix + parameter.name) for parameter in parameters]

    @property
    def selects_rows(self) -> bool:
        """Whether the last layer can compute some tokens alone (`glassbert.models.read_rows`)."""
        return self.blocks[-1].selects_rows and not self.embeddings.finishes

    def forward(self, batch: Batch, scope: Scope, checkpointing: bool = False, rows: Array | None = None) -> Array:
        """ids [B, T] or windows [B, W] -> hidden states [B, T, H], or only those of `rows`, [M, H]"""
        bias = self.positions.begin(batch, scope.inside("positions"))
        patterns: dict[Any, AttentionPattern] = {}  # layers with equal ones share them
        contexts = [self.context(i, batch, bias, patterns) for i in range(len(self.blocks))]
        if rows is not None:
            contexts[-1] = contexts[-1]._replace(rows=rows)
        scope.save("contexts", contexts)
        x = self.embeddings.forward(batch, scope.inside("embeddings"))
        for i, block in enumerate(self.blocks):
            inner = self.layer_scope(i, scope)
            if i == self.decoding:
                for later in range(i, len(self.blocks)):
                    contexts[later] = contexts[later]._replace(states=x, states_name=scope.name("decoder.d_states"))
                x = self.decoder.forward(x, batch, scope.inside("decoder"))
            if checkpointing:
                scope.cache.store(inner.name("input"), x)
                without_cache = scope.with_cache(NullCache())  # a reference to the cache would keep both alive
                scope.cache.recompute_region(inner.prefix, partial(self.recompute, i, contexts[i], without_cache))
                x = block.forward(x, inner.with_cache(NullCache()), contexts[i])
            else:
                x = block.forward(x, inner, contexts[i])
        if self.config.final_norm:
            x = scope.norm(x, "final_norm", self.config.layer_norm_eps)
        if self.embeddings.finishes:
            x = self.embeddings.finish(x, batch, scope.inside("embeddings"))
        return scope.record("output", x)

    def backward(
        self,
        dx: Array,
        batch: Batch,
        scope: Scope,
        checkpointing: bool = False,
        on_complete: OnComplete = ignore,
    ) -> None:
        """`forward` from its last line to its first. It ends at the lowest layer with a trained parameter."""
        scope.record("d_output", dx)
        if self.embeddings.finishes:
            dx = self.embeddings.finish_backward(dx, batch, scope.inside("embeddings"))
        lowest, contexts = self.lowest_trained(scope.gradients), scope.saved("contexts")
        d_bias, d_states = scope.name("positions.d_bias"), scope.name("decoder.d_states")
        for name in (d_bias, d_states):
            scope.cache.stored.pop(name, None)  # of an earlier backward over this cache
        if self.config.final_norm and lowest <= len(self.blocks):
            dx = scope.norm_backward(dx, "final_norm")
            on_complete(f"{self.prefix}final_norm")
        for i in reversed(range(max(lowest, 0), len(self.blocks))):
            inner = self.layer_scope(i, scope)
            if checkpointing:  # the forward kept only the input of the block
                inner = inner.with_cache(self.recompute(i, contexts[i], scope, scope.cache))
            dx = self.blocks[i].backward(dx, inner, contexts[i])
            for name in (d_bias, d_states):
                if checkpointing and name in inner.cache.stored:
                    scope.cache.accumulate(name, inner.cache.stored[name])
            if i == self.decoding:
                dx = self.decoder.backward(dx, scope.inside("decoder")) + scope.cache.stored[d_states]
                on_complete(f"{self.prefix}decoder")
            if self.first_of_group[i]:
                on_complete(f"{self.prefix}layers.{self.groups[i]}")
        if lowest >= 0:
            return
        self.embeddings.backward(dx, batch, scope.inside("embeddings"))
        if d_bias in scope.cache.stored:
            self.positions.backward(scope.cache.stored[d_bias], batch, scope.inside("positions"))
        on_complete(f"{self.prefix}embeddings")
        on_complete(f"{self.prefix}positions")

    def layer_scope(self, i: int, scope: Scope) -> Scope:
        """Activations have the name of the layer, parameters that of the group that shares them."""
        return scope.inside(f"layers.{i}", parameters=f"layers.{self.groups[i]}")

    def context(
        self, i: int, batch: Batch, bias: Array | None, patterns: dict[Any, AttentionPattern]
    ) -> AttentionContext:
        memory = None if batch.memory is None else batch.memory[i]
        offset = 0 if memory is None else memory[0].shape[self.blocks[i].attention.memory_axis]
        key = self.windows[i], offset
        if key not in patterns:
            patterns[key] = AttentionPattern(
                batch.mask, batch.segments, self.windows[i], self.config.causal, batch.pairs, offset
            )
        return AttentionContext(
            patterns[key], self.positions.rotary(batch, i), bias, f"{self.prefix}positions.d_bias", memory, batch=batch,
            last=i + 1 == len(self.blocks),
        )  # fmt: skip

    def memory_names(self) -> list[list[str]]:
        """For each layer the names of the values that make up the memory of a next pass."""
        return [
            [f"{self.prefix}layers.{i}.attention.{name}" for name in block.attention.memory_names]
            for i, block in enumerate(self.blocks)
        ]

    def recompute(self, i: int, context: AttentionContext, scope: Scope, cache: Cache) -> Cache:
        """Run block i again from its input, this time with a cache."""
        again = cache.like()
        inner = self.layer_scope(i, scope).with_cache(again)
        self.blocks[i].forward(cache[inner.name("input")], inner, context)
        return again

    def lowest_trained(self, gradients: Gradients) -> int:
        """The lowest layer with a trained parameter.

        -1 stands for embeddings and positions, the number of layers for the last norm, one more for nothing at all.
        """
        trained = (level for name, level in self.levels.items() if gradients.needs(self.aliases.get(name, name)))
        return min(trained, default=len(self.blocks) + 1)

    def _level(self, name: str) -> int:
        part, _, rest = name.removeprefix(self.prefix).partition(".")
        if part == "layers":
            return self.config.layer_of_group(int(rest.partition(".")[0]))
        if part == "decoder":
            return self.decoding
        return len(self.blocks) if part == "final_norm" else -1

    def backward_order(self) -> dict[str, tuple[str, ...]]:
        """The groups of parameters in the order in which their gradients become complete.

        Each has the prefixes of the names of its parameters: its own, and the aliases among them.
        """
        groups = [f"layers.{group}" for group, first in zip(self.groups, self.first_of_group, strict=True) if first]
        order = [*(["final_norm"] if self.config.final_norm else []), *reversed(groups), "embeddings", "positions"]
        if self.decoding < len(self.blocks):
            order.insert(order.index(groups[-1]), "decoder")
        prefixes = [f"{self.prefix}{group}." for group in order]
        return {
            prefix[:-1]: (prefix, *(alias for name, alias in self.aliases.items() if name.startswith(prefix)))
            for prefix in prefixes
        }


def host_terms(positions: np.ndarray, encoder: Encoder, engine: Any) -> Any:
    """The constants of the position scheme as arrays of the engine."""
    dtype = np.dtype("float64" if engine.dtype_name == "float64" else "float32")

    def on_engine(value: Any) -> Any:
        return tuple(on_engine(one) for one in value) if isinstance(value, tuple) else engine.array(value)

    terms = encoder.positions.on_host(positions, dtype)
    return None if terms is None else on_engine(terms)
