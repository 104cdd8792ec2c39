"""What a checkpoint says about its model, and what of a config can differ without changing what is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS
from glassbert.models.model import Model

CORE = "core"  # no head
NO_LABELS = (CORE, "forecast")  # a horizon is a number of values

TRAINING_ONLY = {
    "embedding_dropout",
    "attention_dropout",
    "hidden_dropout",
    "ffn_dropout",
    "classifier_dropout",
    "initializer",
    "initializer_range",
    "span_dropout",
}
READ_BY_HEADS = {
    "tie_word_embeddings": ("mlm", "pretraining"),
    "head_transform": ("mlm", "pretraining"),
    "decoder_bias": ("mlm", "pretraining"),
    "head_bias": ("mlm", "pretraining", "sequence", "token", "span"),
    "classifier_pooling": ("sequence", "embedding", "forecast"),
    "pooler": ("pretraining", "sequence"),  # without a head it changes which parameters exist
    "pooler_activation": ("pretraining", "sequence"),
    "classifier_transform": ("pretraining", "sequence", "token", "span"),
}
ONLY_FOR_ROTARY = {"global_rope_theta", "local_rope_theta"}
ONLY_FOR_LOCAL_LAYERS = {"local_rope_theta", "local_window", "global_attention_every"}
MAY_DIFFER = TRAINING_ONLY | set(READ_BY_HEADS) | ONLY_FOR_ROTARY | ONLY_FOR_LOCAL_LAYERS


@dataclass(frozen=True)
class Description:
    """A model without its weights. `carried` holds fields of a config.json that we keep for others."""

    config: EncoderConfig
    head: str = CORE
    num_labels: int = 0
    loss: str | None = None  # where the head has a choice
    loss_options: dict[str, Any] = field(default_factory=dict)
    carried: dict[str, Any] = field(default_factory=dict)


def describe(model: Model) -> Description:
    carried = model.carried_fields
    if model.head is None:
        return Description(model.config, carried=carried)
    head = model.head
    loss = head.loss_name if has_choice_of_loss(head.kind) else None
    return Description(model.config, head.kind, head.num_labels, loss, head.loss_options.to_dict(), carried)


def has_choice_of_loss(head: str) -> bool:
    return head in HEADS and len(HEADS[head].losses) > 1


def differences(one: EncoderConfig, other: EncoderConfig) -> Iterator[tuple[str, Any, Any]]:
    for item in dataclasses.fields(EncoderConfig):
        values = getattr(one, item.name), getattr(other, item.name)
        if values[0] != values[1]:
            yield item.name, *values


def has_no_effect(name: str, config: EncoderConfig, head: str) -> bool:
    """Whether this model, evaluated, computes the same for any value of the field."""
    if name in TRAINING_ONLY:
        return True
    if name in READ_BY_HEADS:
        return head not in READ_BY_HEADS[name]
    if name in ONLY_FOR_ROTARY and config.positions != "rotary":
        return True
    no_local_layer = all(config.window_of(i) is None for i in range(config.num_hidden_layers))
    return name in ONLY_FOR_LOCAL_LAYERS and no_local_layer


def kept_fields(described: Description) -> dict[str, Any]:
    """The carried fields, and names for the labels of this head."""
    if described.head in NO_LABELS or described.num_labels == 0:
        return dict(described.carried)
    names = described.carried.get("id2label")
    if not isinstance(names, dict) or len(names) != described.num_labels:
        names = {str(i): f"LABEL_{i}" for i in range(described.num_labels)}
    return {**described.carried, "id2label": names, "label2id": {label: int(i) for i, label in names.items()}}
