"""Heads: from hidden states to an output.

A head is a class with `parameters`, `prepare_labels`, `forward` and `backward`. There is a class for each kind of input
unit (words, tokens, sequences, embeddings); the kind of output sets its loss. `@HEADS.register("mine")` adds a class.

`head_names()` lists the values of `head=`: the classes, and short names for a class with a loss ("binary").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from glassbert.errors import ConfigError
from glassbert.layers.registry import Registry, unknown
from glassbert.models.config import EncoderConfig
from glassbert.models.heads.aligned import AlignedHead
from glassbert.models.heads.discriminator import DiscriminatorHead
from glassbert.models.heads.forecast import ForecastHead
from glassbert.models.heads.head import Head, HeadPart, pad_rows
from glassbert.models.heads.losses import LOSS_OPTIONS, LossOptions
from glassbert.models.heads.mlm import CausalLanguageHead, MaskedLanguageHead
from glassbert.models.heads.pooling import EmbeddingHead, pooler, pooler_backward, pooler_parameters, with_pooling
from glassbert.models.heads.pretraining import PretrainingHead
from glassbert.models.heads.rtd import ReplacedTokenHead
from glassbert.models.heads.sequence import PairHead, SequenceHead
from glassbert.models.heads.tokens import SpanHead, TokenHead

__all__ = [
    "HEADS",
    "LOSS_OPTIONS",
    "SHORT_NAMES",
    "AlignedHead",
    "CausalLanguageHead",
    "DiscriminatorHead",
    "EmbeddingHead",
    "ForecastHead",
    "Head",
    "HeadPart",
    "LossOptions",
    "MaskedLanguageHead",
    "PairHead",
    "PretrainingHead",
    "ReplacedTokenHead",
    "SequenceHead",
    "SpanHead",
    "TokenHead",
    "head_names",
    "make_head",
    "pad_rows",
    "pooler",
    "pooler_backward",
    "pooler_parameters",
    "resolve_head",
    "with_pooling",
]

HEADS: Registry[type[Head]] = Registry("head")
for _head in (
    *(MaskedLanguageHead, TokenHead, SequenceHead, PretrainingHead, SpanHead, EmbeddingHead),
    *(ForecastHead, CausalLanguageHead, DiscriminatorHead, ReplacedTokenHead, AlignedHead),
):
    HEADS.register(_head.kind)(_head)

# Short name -> the class, and the labels and loss that the name implies.
SHORT_NAMES: dict[str, dict[str, Any]] = {
    "binary": {"kind": "sequence", "num_labels": 1, "loss": "binary_cross_entropy"},
    "multiclass": {"kind": "sequence", "loss": "cross_entropy"},
    "multilabel": {"kind": "sequence", "loss": "binary_cross_entropy"},
    "regression": {"kind": "sequence", "loss": "mean_squared_error"},
    "ordinal": {"kind": "sequence", "loss": "ordinal"},
}
DEFAULT_LABELS = {"regression": 1}


def head_names() -> list[str]:
    """The possible values of `head=`."""
    return [*HEADS, *SHORT_NAMES]


class HeadChoice(NamedTuple):
    """The class of a head, its number of labels and its loss."""

    kind: str
    num_labels: int | None
    loss: str | None


def resolve_head(name: str, num_labels: int | None = None, loss: str | None = None) -> HeadChoice:
    """The class, number of labels and loss for a name such as "binary" or "sequence"."""
    if name in HEADS:
        return HeadChoice(name, num_labels, loss)
    if name not in SHORT_NAMES:
        raise ConfigError(unknown("head", name, head_names()))
    implied = SHORT_NAMES[name]
    fixed = implied.get("num_labels")
    if fixed is not None and num_labels not in (None, 0, fixed, fixed + 1):
        raise ConfigError(f"a {name} head has one output; num_labels {num_labels} does not fit")
    if loss is not None and loss != implied["loss"]:
        raise ConfigError(f"a {name} head has the loss {implied['loss']}; for {loss!r} give head='sequence'")
    return HeadChoice(implied["kind"], fixed or num_labels or DEFAULT_LABELS.get(name), implied["loss"])


def make_head(
    kind: str,
    config: EncoderConfig,
    num_labels: int = 0,
    loss: str | None = None,
    loss_options: Mapping[str, Any] | None = None,
) -> Head:
    """Create a head by its name. `num_labels` is 0 if the name or the class implies it."""
    kind, labels, loss = resolve_head(kind, num_labels or None, loss)
    num_labels = labels or 0
    head = HEADS[kind]
    if not head.flattens and config.classifier_pooling == "flatten" and hasattr(head, "pooling"):
        raise ConfigError(f"a {kind} head needs one vector a window; choose the pooling 'mean' or 'attention'")
    if not head.labelled:
        return head(config, head.own_labels, loss, loss_options)
    if not isinstance(num_labels, int) or num_labels < 1:
        raise ConfigError(f"a {kind} head needs num_labels of at least 1, got {num_labels!r}")
    return head(config, num_labels, loss, loss_options)
