"""The floating-point operations of a model's matrix products, computed from its config.

A product of [n, k] and [k, m] takes 2 · n · k · m operations: a multiplication and an addition for every term. Only
necessary work is counted: the keys that a query attends to, the rows of the head that are scored, no recomputation.
Norms, softmax and other elementwise operations are not counted, as is usual, so that utilisation figures are
comparable with those of other libraries.

    The backward of y = x Wᵀ is dx = dy W and dW = dyᵀ x, two products of the same size: training takes three times the
    operations of the forward.
"""

from __future__ import annotations

from glassbert.layers.registry import ATTENTIONS
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS

TRAINING_FACTOR = 3  # forward, the gradient of the input, the gradient of the weight


def visible_pairs(length: int, window: int | None = None, causal: bool = False) -> int:
    """The number of (query, key) pairs with attention in one sequence."""
    reach = length - 1 if window is None else min(window, length - 1)
    # every query attends to itself and to `reach` keys to a side, less the triangle beyond the end of the sequence
    one_side = length * reach - reach * (reach + 1) // 2
    return length + (one_side if causal else 2 * one_side)


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
    layers = config.num_hidden_layers
    pairs = batch * sum(visible_pairs(length, config.window_of(i), config.causal) for i in range(layers))
    if head is not None and HEADS[head].uses_mask_decoder and config.mask_decoder:  # the last layer runs twice
        layers, pairs = layers + 1, pairs + batch * visible_pairs(length, config.window_of(layers - 1), config.causal)
    flops = {
        "attention.qkv": layers * 2 * tokens * size * 3 * size,
        "attention.scores": 2 * pairs * size,  # all heads together have hidden_size features
        "attention.context": 2 * pairs * size,
        "attention.output": layers * 2 * tokens * size * size,
        "ffn.up": layers * 2 * tokens * size * (2 * wide if config.gated else wide),
        "ffn.down": layers * 2 * tokens * wide * size,
    }
    flops |= ATTENTIONS[config.attention].more_flops(config, batch, length, layers, pairs)
    if config.series is not None:
        flops["embeddings.projection"] = 2 * tokens * config.series.patch * size
    elif config.embedding_width != size:
        flops["embeddings.projection"] = 2 * tokens * config.embedding_width * size
    if head is not None and HEADS[head].scores_tokens:
        flops["head.transform"] = 2 * tokens * size * size
        flops["head.classifier"] = 2 * tokens * size
    if head is not None and (inside := HEADS[head].head_of_generator):
        own = forward_flops(config.generator(), batch, length, head=inside, scored_rows=scored_rows)
        flops.update({f"head.generator.{name}": number for name, number in own.items()})
    if head == "forecast" and config.series is not None:
        flat = length if config.classifier_pooling == "flatten" else 1
        flops["head.output"] = 2 * batch * flat * size * num_labels
        flops["head.shortcut"] = 2 * batch * config.series.window * num_labels if config.series.shortcut else 0
    if head is not None and HEADS[head].decodes:
        rows = tokens if scored_rows is None else scored_rows
        decoded = config.embedding_width if config.tie_word_embeddings or config.head_transform else size
        if config.head_transform:
            flops["head.transform"] = 2 * rows * size * decoded
        flops["head.decoder"] = 2 * rows * decoded * config.vocab_size
    if head in ("sequence", "pretraining") and config.pooler:
        flops["pooler"] = 2 * batch * size * size
    if head in ("sequence", "token", "span", "pretraining"):
        rows = tokens if head in ("token", "span") else batch
        labels = 2 if head == "pretraining" else num_labels
        if config.classifier_transform:
            flops["head.transform"] = flops.get("head.transform", 0) + 2 * rows * size * size
        flops["head.classifier"] = 2 * rows * size * labels
    return flops


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
