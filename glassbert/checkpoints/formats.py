"""The two kinds of checkpoint: Hugging Face's for every family it has a class for, and our own for the rest.

Both answer the same questions: which names do the parameters have in the file, what does config.json say, and which
other tensors may lie beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassbert.checkpoints.description import Description
from glassbert.checkpoints.family import FAMILIES
from glassbert.checkpoints.huggingface import EMBEDDING, HuggingFaceFormat
from glassbert.checkpoints.native import NATIVE, NativeFormat
from glassbert.errors import CheckpointError

__all__ = ["EMBEDDING", "Format", "HuggingFaceFormat", "NativeFormat", "format_of_file", "format_of_model"]

Format = HuggingFaceFormat | NativeFormat


def format_of_file(fields: Mapping[str, Any]) -> Format:
    model_type = fields.get("model_type")
    if model_type == NATIVE:
        return NativeFormat()
    known = [name for name, family in FAMILIES.items() if family.architectures]
    if not isinstance(model_type, str) or model_type not in known:
        raise CheckpointError(f"model_type is {model_type!r}; GlassBERT opens {', '.join([*known, NATIVE])}")
    return HuggingFaceFormat(FAMILIES[model_type])


def format_of_model(described: Description, names: list[str]) -> tuple[Format, list[str]]:
    """Hugging Face's layout where it has a class for this model; ours elsewhere, with the reasons."""
    family = FAMILIES.get(described.config.family)
    if family is None:
        return NativeFormat(), [f"it has no family {described.config.family!r}"]
    if not family.architectures:
        return NativeFormat(), [f"it has no classes of the family {family.name!r}"]
    theirs = HuggingFaceFormat(family)
    obstacles = theirs.obstacles(described, names)
    return (NativeFormat(), obstacles) if obstacles else (theirs, [])
