"""Longformer: RoBERTa with windows and a few global tokens, so that its cost grows linearly with the length.

Differs from BERT in
    attention       a token attends to w tokens on each side, and to the global tokens
    global tokens   they attend to all tokens, with queries, keys and values of their own
    positions       real tokens count from pad + 1; padding has position pad, which is not trained
    length          4,096 tokens
    classifiers     dropout, dense and tanh before the classifier of a sequence, in the head
    defaults        the first token is global for sequences, the question for spans, none otherwise

    local i:    softmax over { j : |i - j| <= w, j not global } and all global j,  of q_i k_j / sqrt(d)
    global i:   softmax over all j of q'_i k'_j / sqrt(d), with values v'_j
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.checkpoints.family import CLASSIFIER, COMMON_KEYS, SHARED_RULES, Family, register_family
from glassbert.checkpoints.fields import MISSING, Fields, Rule, activation, follows, same
from glassbert.checkpoints.names import one, stacked
from glassbert.errors import CheckpointError, ConfigError, InputError
from glassbert.families.bert import BERT_CORE, BERT_LAYER, BERT_WORDS, BertWithHead
from glassbert.layers.attention import (
    DENSE_LENGTH,
    AttentionContext,
    SelfAttention,
    heads_first,
    join_qkv,
    merge_heads,
)
from glassbert.layers.registry import ATTENTIONS
from glassbert.layers.scope import Parameter, Scope, linear_parameters
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model
from glassbert.ops import AttentionPattern
from glassbert.ops.attention import attention_weights, split_heads

MASK = "global_attention_mask"
INDEX, SLOT = "global_index", "global_slot"  # positions [B, G] of global tokens; their places [B, T] among them
MULTIPLE = 8  # several global tokens are padded to it, so that few shapes are compiled


@ATTENTIONS.register("window_and_global")
class WindowAndGlobalAttention(SelfAttention):
    """Windows by tiles, with the global keys before all others; global queries against all keys."""

    inputs = (MASK,)

    def parameters(self) -> list[Parameter]:
        size, bias = self.config.hidden_size, self.config.attention_bias
        return [
            *super().parameters(),
            *linear_parameters("global_query", size, size, bias),
            *linear_parameters("global_kv", size, 2 * size, bias),
        ]

    @classmethod
    def more_inputs(
        cls, config: Any, head: str | None, given: Mapping[str, Any], checked: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """`global_attention_mask` [B, T]: 1 for global tokens. Padding is never global."""
        ids = checked["ids"]
        if given.get(MASK) is None:
            if head not in DEFAULTS:
                return {}
            chosen = DEFAULTS[head](config, ids)
        else:
            mask = np.asarray(given[MASK])
            if mask.shape != ids.shape:
                raise InputError(f"{MASK} must have the shape of input_ids, {list(ids.shape)}, got {list(mask.shape)}")
            if mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
                raise InputError(f"{MASK} must hold only 1 (a global token) and 0 (a local one)")
            chosen = mask.astype(np.bool_)
        for real in (checked["mask"], checked["segments"]):
            chosen = chosen if real is None else chosen & (real != 0)
        if not is_numpy(chosen):
            return recorded_places(chosen)
        if not chosen.any():
            return {}
        if checked.get("pairs") is not None or checked.get("memory") is not None:
            raise InputError("global tokens go with an attention_mask [B, T], not with one of pairs or a memory")
        most = int(chosen.sum(1).max())
        width = most if most == 1 else min(-(-most // MULTIPLE) * MULTIPLE, ids.shape[1])
        place = np.arange(ids.shape[1])
        first = np.argsort(np.where(chosen, place, ids.shape[1] + place), axis=1)[:, :width]
        index = np.where(np.take_along_axis(chosen, first, 1), first, -1)
        return {INDEX: index, SLOT: np.where(chosen, np.cumsum(chosen, 1) - 1, -1)}

    @classmethod
    def full_inputs(cls, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Two global tokens: without any their projections take no part."""
        return {MASK: np.broadcast_to(np.arange(ids.shape[1]) < 2, ids.shape).astype(np.int64)}

    def keeps_weights(self, q: Array, pattern: AttentionPattern, rate: float) -> bool:
        """Long rows are always computed in tiles, whose memory grows linearly."""
        return q.shape[2] <= DENSE_LENGTH and super().keeps_weights(q, pattern, rate)

    def forward(self, x: Array, scope: Scope, context: AttentionContext) -> Array:
        batch = context.batch
        if INDEX not in batch.more:
            return super().forward(x, scope, context)
        xp, index, slot = namespace(x), batch.more[INDEX], batch.more[SLOT]
        scope.record("input", x)
        q, k, v = split_heads(scope.linear(x, "qkv"), self.heads)  # [B, T, heads, d]
        k, v = (
            xp.concatenate([scope.run("take_tokens", f"{name}_taken", value, index, slot), value], 1)
            for name, value in (("k", k), ("v", v))
        )  # [B, G + T, heads, d]
        q, k, v = heads_first(q), heads_first(k), heads_first(v)
        q, k, v = (scope.store(name, x, token_axes=(2,)) for name, x in (("q", q), ("k", k), ("v", v)))
        pattern = local_pattern(batch, context.pattern.window, xp)
        local = self.attend(q, k, v, None, scope, pattern)  # [B, heads, T, d]
        among, states = self.global_queries(x, scope, batch)  # [B, heads, G, d]
        merged = scope.run("put_tokens", "put", merge_heads(local), merge_heads(among), index, slot)
        rest = (*states, index, slot, self.scale)
        scope.compute_later("weights", lambda: whole_weights(q, k, pattern, *rest), token_axes=(2, 3))
        return scope.record("output", scope.linear(scope.record("merged", merged), "output"))

    def global_queries(self, x: Array, scope: Scope, batch: Any) -> tuple[Array, tuple[Array, Array, AttentionPattern]]:
        """q'_i against all k'_j, for the global tokens i: the context, and what its weights are computed from."""
        xp, index = namespace(x), batch.more[INDEX]
        size = self.config.head_size
        taken = scope.run("take_tokens", "x_taken", x, index, batch.more[SLOT])  # [B, G, H]
        q = heads_first(scope.linear(taken, "global_query").reshape(*index.shape, self.heads, size))
        kv = scope.linear(x, "global_kv").reshape(*x.shape[:2], 2, self.heads, size)
        k, v = heads_first(kv[:, :, 0]), scope.record("global_v", heads_first(kv[:, :, 1]), token_axes=(2,))
        pattern = AttentionPattern(mask=visible_to_global(batch, xp))
        rate = self.config.attention_dropout if scope.dropout_source is not None else 0.0
        mask = None
        if rate > 0.0:
            shape = (*q.shape[:3], k.shape[2])
            mask = scope.dropout_source.mask(scope.name("global_dropout"), shape, rate)  # type: ignore[union-attr]
        return scope.run("attention", "global", q, k, v, pattern, None, self.scale, mask, rate), (q, k, pattern)

    def global_queries_backward(self, dcontext: Array, scope: Scope) -> Array:
        """Returns what the global tokens add to the gradient of x."""
        dq, dk, dv, _ = scope.run_backward("global", dcontext)
        xp = namespace(dq)
        dkv = xp.stack([heads_first(dk), heads_first(dv)], 2)  # [B, T, 2, heads, d]
        dx = scope.linear_backward(dkv.reshape(*dkv.shape[:2], -1), "global_kv")
        return dx + scope.run_backward("x_taken", scope.linear_backward(merge_heads(dq), "global_query"))

    def backward(self, dy: Array, scope: Scope, context: AttentionContext) -> Array:
        """`forward` from its last line to its first."""
        if INDEX not in context.batch.more:
            return super().backward(dy, scope, context)
        scope.record("d_output", dy)
        dlocal, damong = scope.run_backward("put", scope.linear_backward(dy, "output"))
        dcontext, dglobal = (
            heads_first(d.reshape(*d.shape[:2], self.heads, self.config.head_size)) for d in (dlocal, damong)
        )
        scope.record("d_context", dcontext, token_axes=(2,))
        if scope.cache.trace:
            index, slot = context.batch.more[INDEX], context.batch.more[SLOT]
            of_global = dglobal @ scope["global_v"].swapaxes(-1, -2)
            dweights = by_token(self.weight_gradient(dcontext, scope), of_global, index, slot)
            scope.record("d_weights", dweights, token_axes=(2, 3))
        dx = self.global_queries_backward(dglobal, scope)
        dq, dk, dv, _ = scope.run_backward("attention", dcontext)
        for name, value in (("d_q", dq), ("d_k", dk), ("d_v", dv)):
            scope.record(name, value, token_axes=(2,))
        taken = context.batch.more[INDEX].shape[1]
        dk, dv = (
            d[:, taken:] + scope.run_backward(f"{name}_taken", d[:, :taken])
            for name, d in (("k", heads_first(dk)), ("v", heads_first(dv)))
        )
        dx = dx + scope.linear_backward(join_qkv(scope, heads_first(dq), dk, dv), "qkv")
        return scope.record("d_input", dx)

    @classmethod
    def more_flops(cls, config: Any, batch: int, length: int, layers: int, pairs: int) -> dict[str, int]:
        """With one global token a row: its keys and values, and its query."""
        layers, size = config.num_hidden_layers, config.hidden_size
        return {"attention.global": layers * batch * (2 * length * size * 2 * size + 2 * size * size)}

    @classmethod
    def more_numbers(cls, config: Any, length: int) -> float:
        return 2 * config.hidden_size


def recorded_places(chosen: Array) -> dict[str, Array]:
    """Index and slot where the number of global tokens becomes known only when a recorded graph runs."""
    xp = namespace(chosen)
    slot = xp.where(chosen, xp.cumsum(chosen, 1) - 1, -1)  # [B, T]
    places = xp.arange_until(xp.maximum((slot + 1).max(), 1), "global_tokens")  # [G]
    here = slot[:, None] == places[None, :, None]  # [B, G, T]
    return {INDEX: xp.where(here.any(-1), here.argmax(-1), -1), SLOT: slot}


def local_pattern(batch: Any, window: int | None, xp: Any) -> AttentionPattern:
    """Keys are the global tokens, which are in every window, and then all tokens, of which the global ones are out."""
    index, slot = batch.more[INDEX], batch.more[SLOT]
    near = slot < 0
    if batch.mask is not None:
        near = near & (batch.mask != 0)
    segments = batch.segments
    if segments is not None:
        segments = xp.concatenate([xp.take_along_axis(segments, xp.maximum(index, 0), 1), segments], 1)
    taken = index.shape[1]
    keys = xp.concatenate([index >= 0, near], 1)  # [B, G + T]
    return AttentionPattern(keys, segments, window, offset=taken, always=taken)


def visible_to_global(batch: Any, xp: Any) -> Array:
    """Which tokens a global token attends to, [B, G, T]: real ones, of its own document."""
    index = batch.more[INDEX]
    seen = xp.broadcast_to((index >= 0)[:, :, None], (*index.shape, batch.ids.shape[1]))
    if batch.mask is not None:
        seen = seen & (batch.mask != 0)[:, None]
    if batch.segments is not None:
        own = xp.take_along_axis(batch.segments, xp.maximum(index, 0), 1)
        seen = seen & (own[:, :, None] == batch.segments[:, None])
    return seen


def whole_weights(
    q: Array, k: Array, pattern: AttentionPattern, q_global: Array, k_global: Array, to_all: AttentionPattern,
    index: Array, slot: Array, scale: float | None,
) -> Array:  # fmt: skip
    """The weights [B, heads, T, T] of local and global queries, for the reader: quadratic in the length."""
    local = attention_weights(q, k, pattern, None, scale)  # [B, heads, T, G + T]
    return by_token(local, attention_weights(q_global, k_global, to_all, None, scale), index, slot)


def by_token(local: Array, of_global: Array, index: Array, slot: Array) -> Array:
    """Values of local queries [B, heads, T, G + T] and of global ones [B, heads, G, T] as [B, heads, T, T]."""
    xp = namespace(local)
    taken = index.shape[1]
    columns = xp.broadcast_to(xp.maximum(slot, 0)[:, None, None], (*local.shape[:3], slot.shape[1]))
    to_global = xp.take_along_axis(local[..., :taken], columns, 3)
    local = xp.where(slot[:, None, None] >= 0, to_global, local[..., taken:])
    rows = xp.broadcast_to(xp.maximum(slot, 0)[:, None, :, None], local.shape)
    return xp.where(slot[:, None, :, None] >= 0, xp.take_along_axis(of_global, rows, 2), local)


# ---- which tokens are global where none are given --------------------------------------------------------------------


def first_token(config: Any, ids: Array) -> Array:
    xp = namespace(ids)
    return xp.broadcast_to(xp.arange(ids.shape[1])[None] == 0, ids.shape)


def question(config: Any, ids: Array) -> Array:
    """The tokens before the first separator. A row without a separator has no question, and no global token."""
    if config.sep_token_id is None:
        raise InputError(f"this model does not know the separator after a question; give {MASK}, or a sep_token_id")
    separator = ids == config.sep_token_id
    return (np.cumsum(separator, 1) == 0) & separator.any(1, keepdims=True)


DEFAULTS = {"sequence": first_token, "span": question}


# ---- config and files ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LongformerConfig(EncoderConfig):
    """Longformer: a window in every layer, global tokens, positions from pad + 1.

    `position_offset` follows from `pad_token_id`. Defaults are those of transformers for a config without these fields.
    """

    family: str = "longformer"
    type_vocab_size: int = 2
    pad_token_id: int | None = 1
    sep_token_id: int | None = 2
    position_offset: int = 2
    attention: str = "window_and_global"
    local_window: int | None = 256
    global_attention_every: int = 0
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    hidden_dropout: float = 0.1
    pooler_dropout: float = 0.1
    classifier_dropout: float = 0.1
    pooler: bool = True

    def __post_init__(self) -> None:
        if self.pad_token_id is None and self.series is None:
            raise ConfigError("this family counts positions from pad_token_id + 1, so pad_token_id must be an id")
        if self.pad_token_id is None or isinstance(self.pad_token_id, int):
            offset = 0 if self.pad_token_id is None else self.pad_token_id + 1  # a series has no padding
            object.__setattr__(self, "position_offset", offset)
        super().__post_init__()

    @classmethod
    def get_base_config(cls) -> LongformerConfig:
        return cls(vocab_size=50_265, max_position_embeddings=4_098, type_vocab_size=1, layer_norm_eps=1e-5)

    @classmethod
    def get_large_config(cls) -> LongformerConfig:
        large = {"hidden_size": 1_024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4_096}
        return cls.get_base_config().replace(**large)


LONGFORMER_MINI = LongformerConfig(
    vocab_size=8_192,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=768,
    max_position_embeddings=1_025,
    pad_token_id=0,
    sep_token_id=3,
    local_window=32,
    type_vocab_size=1,
    layer_norm_eps=1e-5,
    embedding_dropout=0.0,
    attention_dropout=0.0,
    hidden_dropout=0.0,
    pooler_dropout=0.0,
    classifier_dropout=0.0,
)


def attention_window() -> Rule:
    """Theirs is the width of both sides together, one for all layers or a list."""

    def read(fields: Fields) -> Any:
        if "attention_window" not in fields:
            return MISSING
        given = fields["attention_window"]
        widths = given if isinstance(given, list) else [given]
        if not widths or any(not isinstance(width, int) or width < 2 or width % 2 for width in widths):
            raise CheckpointError(f"attention_window must be even numbers of at least 2, got {given!r}")
        if len(set(widths)) > 1:
            raise CheckpointError(f"attention_window is {given!r}; GlassBERT has one window for all layers")
        return widths[0] // 2

    def write(config: EncoderConfig) -> dict[str, Any]:
        if config.local_window is None:
            return {}
        return {"attention_window": [2 * config.local_window] * config.num_hidden_layers}

    return Rule("local_window", ("attention_window",), read, write)


def class_for(config: EncoderConfig, head: str | None) -> type[Model]:
    return Model if head is None else BertWithHead


SELF = BERT_LAYER + "attention.self."
MLM = {"head.transform.{part}": one("lm_head.dense.{part}"), "head.norm.{part}": one("lm_head.layer_norm.{part}")}

LONGFORMER = register_family(
    Family(
        name="longformer",
        config_class=LongformerConfig,
        architectures={
            "core": "LongformerModel",
            "mlm": "LongformerForMaskedLM",
            "sequence": "LongformerForSequenceClassification",
            "token": "LongformerForTokenClassification",
            "span": "LongformerForQuestionAnswering",
        },
        core_prefix="longformer.",
        core={
            **BERT_CORE,
            "layers.{layer}.attention.global_query.{part}": one(SELF + "query_global.{part}"),
            "layers.{layer}.attention.global_kv.{part}": stacked(
                SELF + "key_global.{part}", SELF + "value_global.{part}"
            ),
        },
        heads={
            "core": {},
            "mlm": {
                **MLM,
                "embeddings.token": one(BERT_WORDS, tied=("lm_head.decoder.weight",)),
                "head.decoder.bias": one("lm_head.bias", tied=("lm_head.decoder.bias",)),
            },
            "mlm_untied": {
                **MLM,
                "head.decoder.weight": one("lm_head.decoder.weight"),
                "head.decoder.bias": one("lm_head.decoder.bias", copies=("lm_head.bias",)),
            },
            "sequence": {
                "pooler.{part}": one("classifier.dense.{part}"),
                "head.classifier.{part}": one("classifier.out_proj.{part}"),
            },
            "token": CLASSIFIER,
            "span": {"head.classifier.{part}": one("qa_outputs.{part}")},
        },
        rules=(
            *SHARED_RULES,
            same("sep_token_id"),
            same("type_vocab_size"),
            same("layer_norm_eps"),
            activation("hidden_act"),
            attention_window(),
            same("hidden_dropout", "hidden_dropout_prob"),
            *(follows(name, "hidden_dropout_prob") for name in ("embedding_dropout", "pooler_dropout")),
            follows("classifier_dropout", "hidden_dropout_prob"),
            same("attention_dropout", "attention_probs_dropout_prob"),
        ),
        supported_values=COMMON_KEYS,
        # The head has GELU, whatever activation the layers have.
        head_values={"mlm": {"hidden_act": (None, "gelu", "gelu_python")}},
        at_least={"type_vocab_size": 1},
        token_ids={"bos_token_id": 0, "eos_token_id": 2},
        not_weights=("embeddings.position_ids",),
        pretraining_only=("pooler.dense.{part}",),
        inferred_from_tensor={"pooler": "pooler.dense.weight"},
        presets={
            "longformer-base": LongformerConfig.get_base_config(),
            "longformer-large": LongformerConfig.get_large_config(),
            "longformer-mini": LONGFORMER_MINI,
        },
        title="Longformer",
        paper="Beltagy et al. 2020, Longformer: The Long-Document Transformer",
        differences={
            "attention": "a window of 256 tokens on each side, and a few global tokens",
            "global tokens": "attend to all tokens with projections of their own, and all tokens attend to them",
            "cost": "linear in the length instead of quadratic",
            "positions": "4,096, from pad + 1",
            "classifiers": "dropout, dense and tanh before the classifier of a sequence",
        },
        formulas="""\
local i:   softmax over near j and global j of q_i k_j / sqrt(d)       near: |i - j| <= w
global i:  softmax over all j of q'_i k'_j / sqrt(d)                    q', k', v': projections of their own
cost of a layer: T (2 w + 1 + G) scores instead of T^2""",
        mini="longformer-mini",
        objective="mlm",
        tokenizer="bpe",
        training={"length": 128},
        class_for=class_for,
    )
)
