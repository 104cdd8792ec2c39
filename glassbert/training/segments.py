"""Rows that are read in segments, each with the memory of those before it.

    segment 1: tokens 1 ... n            no memory
    segment 2: tokens n + 1 ... 2 n      memory: the hidden states of segment 1, as constants

The segments of a row are computed one after the other inside one step, with the same weights, and every segment is
trained on its own targets. So the memory needs no place in a checkpoint: a step depends on its batch alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import TrainingError
from glassbert.layers.registry import ATTENTIONS
from glassbert.models.config import EncoderConfig
from glassbert.models.inputs import as_array

MEMORY_SEGMENTS = "memory_segment_ids"


class Segment(NamedTuple):
    """Some columns of a batch: inputs and labels by name. `past` is the number of tokens in the memory."""

    inputs: dict[str, Any]
    labels: dict[str, Any]
    past: int


def cut_rows(
    config: EncoderConfig, inputs: Mapping[str, Any], labels: Mapping[str, Any], segments: int
) -> list[Segment]:
    """The segments of a batch, from left to right, as equal in length as possible."""
    if segments == 1:
        return [Segment(dict(inputs), dict(labels), 0)]
    ids = as_array("input_ids", inputs["input_ids"])
    for name, values in labels.items():
        if values is not None and np.shape(values) != ids.shape:
            raise TrainingError(f"{name} belong to whole rows, so rows cannot be read in {segments} segments")
    if ids.shape[1] < segments:
        raise TrainingError(f"rows of {ids.shape[1]} tokens cannot be read in {segments} segments")
    edges = np.linspace(0, ids.shape[1], segments + 1).round().astype(int)
    documents = inputs.get("segment_ids")
    kind = ATTENTIONS[config.attention]
    found = []
    for start, stop in itertools.pairwise(edges.tolist()):
        past = min(start, config.memory_length or start)
        part = {name: _columns(values, start, stop) for name, values in inputs.items()}
        if past and documents is not None and MEMORY_SEGMENTS in kind.inputs:
            part[MEMORY_SEGMENTS] = _columns(documents, start - past, start)
        targets = {name: _columns(values, start, stop) for name, values in labels.items()}
        found.append(Segment(part, targets, past))
    return found


def _columns(values: Any, start: int, stop: int) -> Any:
    return None if values is None else np.asarray(values)[:, start:stop]
