"""The description of a model in a checkpoint, its label names, and config fields that do not affect the output."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassbert.errors import CheckpointError
from glassbert.layers.registry import POSITIONS
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS
from glassbert.models.model import Model

CORE = "core"  # no head
NO_LABELS = (CORE, "forecast")  # the num_labels of a forecast is its horizon

TRAINING_ONLY = {
    "embedding_dropout",
    "attention_dropout",
    "hidden_dropout",
    "ffn_dropout",
    "pooler_dropout",
    "classifier_dropout",
    "initializer",
    "initializer_range",
    "frozen_padding",
    "span_dropout",
    "generator_width",
    "generator_depth",
    "generator_embeddings",
    "teacher_size",
}
DECODING = ("mlm", "causal", "pretraining")
READ_BY_HEADS = {
    "tie_word_embeddings": DECODING,
    "head_transform": DECODING,
    "decoder_bias": DECODING,
    "head_bias": (*DECODING, "sequence", "token", "span"),
    "sequence_bias": ("pretraining", "sequence"),
    "classifier_pooling": ("sequence", "embedding", "forecast"),
    "pooler": ("pretraining", "sequence"),  # without a head it changes which parameters exist
    "pooler_activation": ("pretraining", "sequence"),
    "pooler_of_head": ("pretraining", "sequence"),
    "mask_decoder": ("mlm", "rtd"),
    "discriminator_norm": ("discriminator", "rtd"),
    "classifier_transform": ("pretraining", "sequence", "token", "span"),
}
ONLY_FOR_ROTARY = {"global_rope_theta", "local_rope_theta"}
ONLY_FOR_LOCAL_LAYERS = {"local_rope_theta", "local_window", "global_attention_every"}
ONLY_FOR_LIMITED = {"max_position_embeddings"}
MAY_DIFFER = ONLY_FOR_LIMITED | TRAINING_ONLY | set(READ_BY_HEADS) | ONLY_FOR_ROTARY | ONLY_FOR_LOCAL_LAYERS


@dataclass(frozen=True)
class Description:
    """A model without its weights. `carried` holds fields of a config.json that we do not use and write back."""

    config: EncoderConfig
    head: str = CORE
    num_labels: int = 0
    loss: str | None = None  # None if the head has only one
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
    """The name and both values of every field that differs."""
    names = dict.fromkeys(item.name for config in (one, other) for item in dataclasses.fields(config))
    for name in names:
        values = getattr(one, name, None), getattr(other, name, None)
        if values[0] != values[1]:
            yield name, *values


def has_no_effect(name: str, config: EncoderConfig, head: str) -> bool:
    """Whether the output of this model in evaluation is the same for any value of the field."""
    if name in TRAINING_ONLY:
        return True
    if name in READ_BY_HEADS:
        return head not in READ_BY_HEADS[name]
    if name in ONLY_FOR_LIMITED and not POSITIONS[config.positions].limited:
        return True
    if name in ONLY_FOR_ROTARY and config.positions != "rotary":
        return True
    no_local_layer = all(config.window_of(i) is None for i in range(config.num_hidden_layers))
    return name in ONLY_FOR_LOCAL_LAYERS and no_local_layer


# ---- names of labels: id2label in config.json ------------------------------------------------------------------------


def carried_with_labels(described: Description) -> dict[str, Any]:
    """The carried fields with id2label and label2id for this head."""
    if described.head in NO_LABELS or described.num_labels == 0:
        return dict(described.carried)
    names = described.carried.get("id2label")
    if not isinstance(names, dict) or len(names) != described.num_labels:
        names = {str(i): f"LABEL_{i}" for i in range(described.num_labels)}
    return {**described.carried, "id2label": names, "label2id": {label: int(i) for i, label in names.items()}}


def name_labels(model: Model, names: Sequence[str]) -> None:
    """Name the outputs of a head, in the order of the label ids.

    A binary head has one output, the score of "yes": of two names ("no", "yes") it takes the second.
    """
    head, names = model.head, list(names)
    if head is None or not head.labelled:
        raise CheckpointError("only a head with labels can have names for them")
    if head.num_labels == 1 and head.loss_name == "binary_cross_entropy" and len(names) == 2:
        names = names[1:]
    if len(names) != head.num_labels:
        raise CheckpointError(f"the head has {head.num_labels} labels, but {len(names)} names were given")
    invalid = [name for name in names if not isinstance(name, str) or not name]
    repeated = [name for name in names if names.count(name) > 1]
    if invalid or repeated:
        problem = f"{invalid[0]!r} is not one" if invalid else f"{repeated[0]!r} occurs twice"
        raise CheckpointError(f"names of labels must be different non-empty strings; {problem}")
    model.carried_fields = {**model.carried_fields, "id2label": {str(i): name for i, name in enumerate(names)}}


def label_names(model: Model) -> list[str] | None:
    """The names of the labels in the order of the outputs, or None if the labels have no names."""
    names = model.carried_fields.get("id2label")
    count = model.head.num_labels if model.head is not None else 0
    if not isinstance(names, dict) or not names or set(map(str, names)) != {str(i) for i in range(count)}:
        return None
    found = [str(dict(zip(map(str, names), names.values(), strict=True))[str(i)]) for i in range(count)]
    return None if found == [f"LABEL_{i}" for i in range(count)] else found
