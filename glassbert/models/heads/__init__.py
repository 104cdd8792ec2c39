"""Heads: from hidden states to an answer, and from the answer's error back to the hidden states.

A head is a small class with four methods over plain arrays: `forward`, `backward`, `loss`, `loss_backward`. What it
answers about decides the class (words, tokens, sequences, embeddings); what kind of answer it gives decides its loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassbert.errors import ConfigError
from glassbert.models.config import EncoderConfig
from glassbert.models.heads.embedding import EmbeddingHead
from glassbert.models.heads.forecast import ForecastHead
from glassbert.models.heads.head import Head, HeadPart
from glassbert.models.heads.labels import pad_rows
from glassbert.models.heads.losses import LOSS_OPTIONS, LossOptions
from glassbert.models.heads.mlm import MaskedLanguageHead
from glassbert.models.heads.pooling import pooler, pooler_backward, pooler_parameters, with_pooling
from glassbert.models.heads.pretraining import PretrainingHead
from glassbert.models.heads.sequence import PairHead, SequenceHead
from glassbert.models.heads.tokens import SpanHead, TokenHead

__all__ = [
    "HEADS",
    "LOSS_OPTIONS",
    "EmbeddingHead",
    "ForecastHead",
    "Head",
    "HeadPart",
    "LossOptions",
    "MaskedLanguageHead",
    "PairHead",
    "PretrainingHead",
    "SequenceHead",
    "SpanHead",
    "TokenHead",
    "make_head",
    "pad_rows",
    "pooler",
    "pooler_backward",
    "pooler_parameters",
    "with_pooling",
]

HEADS: dict[str, type[Head]] = {
    head.kind: head
    for head in (
        *(MaskedLanguageHead, TokenHead, SequenceHead, PretrainingHead, SpanHead, EmbeddingHead),
        ForecastHead,
    )
}


def make_head(
    kind: str,
    config: EncoderConfig,
    num_labels: int = 0,
    loss: str | None = None,
    loss_options: Mapping[str, Any] | None = None,
) -> Head:
    if kind not in HEADS:
        raise ConfigError(f"unknown head {kind!r}; choose one of {', '.join(HEADS)}")
    head = HEADS[kind]
    if not head.flattens and config.classifier_pooling == "flatten" and hasattr(head, "pooling"):
        raise ConfigError(f"a {kind} head needs one vector a window, so it cannot flatten; choose mean or attention")
    if not head.labelled:
        return head(config, head.own_labels, loss, loss_options)
    if not isinstance(num_labels, int) or num_labels < 1:
        raise ConfigError(f"a {kind} head needs num_labels of at least 1, got {num_labels!r}")
    return head(config, num_labels, loss, loss_options)
