"""The floating-point operations of a model's matrix products, computed from its config.

A product of [n, k] and [k, m] takes 2 · n · k · m operations: a multiplication and an addition for every term. Only
necessary work is counted: the keys that a query attends to, the rows of the head that are scored, the tokens of the
last layer that are read, no recomputation.
Norms, softmax and other elementwise operations are not counted, as is usual, so that utilisation figures are
comparable with those of other libraries.

    The backward of y = x Wᵀ is dx = dy W and dW = dyᵀ x, two products of the same size: training takes three times the
    operations of the forward.
"""

from __future__ import annotations

from glassbert.layers.registry import ATTENTIONS
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Encoder
from glassbert.models.heads import HEADS
from glassbert.models.read_rows import few_enough

TRAINING_FACTOR = 3  # forward, the gradient of the input, the gradient of the weight


def visible_pairs(length: int, window: int | None = None, causal: bool = False) -> int:
    """The number of (query, key) pairs with attention in one sequence."""
    reach = length - 1 if window is None else min(window, length - 1)
    # every query attends to itself and to `reach` keys to a side, less the triangle beyond the end of the sequence
    one_side = length * reach - reach * (reach + 1) // 2
    return length + (one_side if causal else 2 * one_side)


def last_tokens(
    config: EncoderConfig, batch: int, length: int, head: str | None = None, scored_rows: int | None = None
) -> int:
    """The tokens that the last layer computes after its attention (`glassbert.models.read_rows`)."""
    tokens = batch * length
    read = tokens if head is None else HEADS[head].tokens_read(config, batch, length, scored_rows)
    return read if few_enough(read, tokens) and Encoder(config).selects_rows else tokens


def forward_flops(
    config: EncoderConfig,
    batch: int,
    length: int,
    *,
    head: str | None = None,
    num_labels: int = 0,
    scored_rows: int | None = None,
) -> dict[str, int]:
    """Operations of one forward pass over `batch` rows of `length` tokens, by component, summed over the layers.

    `head` is None or a kind of `HEADS`. `scored_rows` is the number of tokens that a decoder scores: in training the
    masked ones; None means all.
    """
    tokens, size, wide = batch * length, config.hidden_size, config.intermediate_size
    layers, of_head = config.num_hidden_layers, None if head is None else HEADS[head]
    pairs = batch * sum(visible_pairs(length, config.window_of(i), config.causal) for i in range(layers))
    if of_head is not None and of_head.uses_mask_decoder and config.mask_decoder:  # the last layer runs twice
        layers, pairs = layers + 1, pairs + batch * visible_pairs(length, config.window_of(layers - 1), config.causal)
    after_attention = (layers - 1) * tokens + last_tokens(config, batch, length, head, scored_rows)
    flops = {
        "attention.qkv": layers * 2 * tokens * size * 3 * size,
        "attention.scores": 2 * pairs * size,  # all heads together have hidden_size features
        "attention.context": 2 * pairs * size,
        "attention.output": 2 * after_attention * size * size,
        "ffn.up": 2 * after_attention * size * (2 * wide if config.gated else wide),
        "ffn.down": 2 * after_attention * wide * size,
    }
    flops |= ATTENTIONS[config.attention].more_flops(config, batch, length, layers, pairs)
    if config.series is not None:
        flops["embeddings.projection"] = 2 * tokens * config.series.patch * size
    elif config.embedding_width != size:
        flops["embeddings.projection"] = 2 * tokens * config.embedding_width * size
    if of_head is None:
        return flops
    if of_head.head_of_generator:
        own = forward_flops(config.generator(), batch, length, head=of_head.head_of_generator, scored_rows=scored_rows)
        flops.update({f"head.generator.{name}": number for name, number in own.items()})
    return flops | of_head.flops(config, batch, length, num_labels, scored_rows)


def training_flops(
    config: EncoderConfig,
    batch: int,
    length: int,
    *,
    head: str | None = "mlm",
    num_labels: int = 0,
    scored_rows: int | None = None,
) -> int:
    """Operations of forward and backward together. Recomputation (checkpointing, tiled attention) is not counted."""
    forward = forward_flops(config, batch, length, head=head, num_labels=num_labels, scored_rows=scored_rows)
    return TRAINING_FACTOR * sum(forward.values())
