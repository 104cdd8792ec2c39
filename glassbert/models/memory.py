"""The memory of a training step, computed from the config.

Most of it is what a forward pass saves for the backward. The functions below count it in numbers per token.
`tests/models/test_memory.py` compares it with a real cache, and `benchmarks/memory.py` compares the total with the
memory of a process.
"""

from __future__ import annotations

from glassbert.layers.attention import DENSE_LENGTH
from glassbert.layers.registry import ATTENTIONS
from glassbert.models.config import EncoderConfig
from glassbert.models.flops import last_tokens
from glassbert.models.heads import HEADS


def layer_numbers(
    config: EncoderConfig, layer: int, length: int, training: bool = True, read: float = 1.0
) -> dict[str, float]:
    """Numbers that one block saves for every token; a dropout mask takes a byte, a quarter of a number.

    `read` is the share of the tokens that are computed after the attention.
    """
    size, wide, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    dense = length <= DENSE_LENGTH
    norms = 0 if layer == 0 and config.skip_first_norm else size + 1
    kept: dict[str, float] = {
        "attention.x": size,
        "attention.qkv": 5 * size if config.positions == "rotary" else 3 * size,  # rotated q and k are new arrays
        "attention.context": size,
        "attention.weights": heads * (length + 1) if dense else heads,
        "attention.norm": norms if config.norm_position == "pre" else 0,
    }
    after: dict[str, float] = {
        "attention.norm": 0 if config.norm_position == "pre" else norms,
        "attention.read": size if read < 1 else 0,
        "ffn.x": size,
        "ffn.hidden": 2 * wide if config.gated else 0 if config.activation == "relu" else wide,  # ReLU works in place
        "ffn.activation": 0 if config.activation == "relu" else wide,
        "ffn.activated": 2 * wide if config.gated else wide,
        "ffn.norm": size + 1,
    }
    kept["attention.more"] = ATTENTIONS[config.attention].more_numbers(config, length)
    if training:
        after["dropout"] = ((size * 2 if config.hidden_dropout else 0) + (wide if config.ffn_dropout else 0)) / 4
        kept["attention.dropout"] = heads * length / 4 if config.attention_dropout and dense else 0
    for name, numbers in after.items():
        kept[name] = kept.get(name, 0) + read * numbers
    return kept


def activation_numbers(
    config: EncoderConfig, batch: int, length: int, head: str | None = "mlm", checkpointing: bool = False
) -> dict[str, float]:
    """Numbers saved by a forward pass over a batch: embeddings, layers, head. Multiply by 4 for bytes in float32."""
    tokens, size = batch * length, config.hidden_size
    count = config.num_hidden_layers
    share = HEADS[head].scored_share if head is not None else 1.0
    read = last_tokens(config, batch, length, head, round(tokens * share)) / tokens
    shares = [1.0] * (count - 1) + [read]
    layers = [sum(layer_numbers(config, i, length, read=shares[i]).values()) for i in range(count)]
    blocks = size * len(layers) + max(layers, default=0.0) if checkpointing else sum(layers)
    embedding = (size + 1 if config.embedding_norm else 0) + (size / 4 if config.embedding_dropout else 0)
    result = {"embeddings": tokens * embedding, "layers": tokens * blocks}
    result["final norm"] = tokens * (size + 1) if config.final_norm else 0.0
    if head is not None and (inside := HEADS[head].head_of_generator):
        result["head"] = sum(activation_numbers(config.generator(), batch, length, inside, checkpointing).values())
    if head is not None and HEADS[head].scores_tokens:
        result["head"] = result.get("head", 0.0) + tokens * 4 * size
    if head is not None and HEADS[head].decodes:
        rows = tokens * HEADS[head].scored_share
        transform = 4 * size if config.head_transform else 0
        result["head"] = rows * (2 * config.vocab_size + size + transform)  # the scores, and their gradient
    return result


def working_numbers(config: EncoderConfig, batch: int, length: int, threads: int = 1) -> float:
    """Numbers that the backward allocates temporarily, in addition to what the forward saved.

    These are the gradients inside one block (of the wide hidden state, q, k, v, the context and both residual
    branches), the slope of an activation other than ReLU, and one set of layer gradients for every thread besides the
    first.
    """
    size, wide = config.hidden_size, config.intermediate_size
    up = wide * (2 if config.gated else 1)
    slope = 0 if config.activation == "relu" else 2 * wide
    block = 4 * size * size + (up + wide) * size
    return batch * length * (up + slope + 6 * size) + (threads - 1) * config.num_hidden_layers * block


def training_numbers(
    config: EncoderConfig, batch: int, length: int, head: str | None, checkpointing: bool = False, threads: int = 1
) -> float:
    """Numbers of a training step in addition to weights, gradients and optimizer state."""
    kept = activation_numbers(config, batch, length, head, checkpointing)
    return sum(kept.values()) + working_numbers(config, batch, length, min(threads, batch))
