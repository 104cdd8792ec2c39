"""The two checkpoint formats: that of Hugging Face for models it has a class for, and our own for all others.

A format gives the names of the parameters in the file, reads and writes config.json, and decides which other tensors a
file may contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from glassbert.checkpoints.description import CORE, Description, carried_with_labels, has_choice_of_loss
from glassbert.checkpoints.family import FAMILIES
from glassbert.checkpoints.huggingface import EMBEDDING, HuggingFaceFormat
from glassbert.checkpoints.names import Entry, one
from glassbert.errors import CheckpointError
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS

__all__ = [
    "EMBEDDING",
    "Format",
    "HuggingFaceFormat",
    "NativeFormat",
    "family_of_names",
    "format_of_file",
    "format_of_model",
    "saved_head",
]

Value = TypeVar("Value")

LABEL_NAMES = ("id2label", "label2id")
NATIVE = "glassbert"


class NativeFormat:
    """Our own format: our parameter names, and our config fields with `"model_type": "glassbert"`."""

    # The allowed types of keys that are not fields of the config (and of "family", which the config does not check).
    other_keys: Mapping[str, tuple[type, ...]] = {
        "family": (str,),
        "model_type": (str,),
        "head_type": (str, NoneType),
        "num_labels": (int,),
        "loss": (str, NoneType),
        "loss_options": (dict,),
        "dtype": (str,),
        "quantization": (dict,),
        "glassbert_version": (str,),
        **dict.fromkeys(LABEL_NAMES, (dict,)),
    }

    def saved_head(self, fields: Mapping[str, Any], tensors: Iterable[str], requested: str | None) -> str | None:
        head = fields.get("head_type") or CORE
        return head if head in (CORE, *HEADS) else None

    def explain_unknown_head(self, fields: Mapping[str, Any]) -> str:
        return f"head_type is {fields.get('head_type')!r}; GlassBERT has {', '.join(HEADS)}"

    def read(self, fields: Mapping[str, Any], head: str, tensors: Mapping[str, Any]) -> Description:
        for key, kinds in self.other_keys.items():
            if key in fields and type(fields[key]) not in kinds:
                raise CheckpointError(f"{key} cannot be {fields[key]!r}")
        values = {key: value for key, value in fields.items() if key == "family" or key not in self.other_keys}
        family = FAMILIES.get(str(values.get("family")))
        config_class = family.config_class if family else EncoderConfig
        labels = fields.get("num_labels", 0)
        loss = fields.get("loss") if has_choice_of_loss(head) else None
        carried = {key: fields[key] for key in LABEL_NAMES if key in fields}
        return Description(config_class.from_dict(values), head, labels, loss, fields.get("loss_options", {}), carried)

    def write(self, described: Description) -> dict[str, Any]:
        from glassbert import __version__

        labels = carried_with_labels(described)
        return {
            "model_type": NATIVE,
            "glassbert_version": __version__,
            "head_type": None if described.head == CORE else described.head,
            "num_labels": described.num_labels,
            "loss": described.loss,
            **({"loss_options": described.loss_options} if described.loss_options else {}),
            **{key: labels[key] for key in LABEL_NAMES if key in labels},
            **described.config.to_dict(),
        }

    def entries(self, config: EncoderConfig, head: str, names: Iterable[str], prefix: str = "") -> dict[str, Entry]:
        return {name: one(name) for name in names}

    def prefix_for(self, head: str) -> str:
        return ""

    def to_file(self, described: Description, name: str, values: np.ndarray) -> np.ndarray:
        return values

    def from_file(self, described: Description, name: str, values: np.ndarray) -> np.ndarray:
        return values

    def prefix_in(self, names: Iterable[str]) -> str:
        return ""

    def plain_names(self, tensors: Mapping[str, Value]) -> dict[str, Value]:
        return dict(tensors)

    def may_be_unused(self, name: str, another_head: bool) -> bool:
        return another_head and name.startswith(("head.", "pooler.", "decoder."))  # decoder: that of masked words


Format = HuggingFaceFormat | NativeFormat


def format_of_file(fields: Mapping[str, Any]) -> Format:
    """The format that `model_type` of a config.json names."""
    model_type = fields.get("model_type")
    if model_type == NATIVE:
        return NativeFormat()
    named = FAMILIES.get(model_type) if isinstance(model_type, str) else None  # most have the name of their type
    if named is not None and named.architectures and (named.model_type or named.name) == model_type:
        return HuggingFaceFormat(named)
    known = {family.model_type or name: family for name, family in FAMILIES.items() if family.architectures}
    if not isinstance(model_type, str) or model_type not in known:
        raise CheckpointError(f"model_type is {model_type!r}; GlassBERT opens {', '.join([*known, NATIVE])}")
    return HuggingFaceFormat(known[model_type])


def saved_head(fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> str | None:
    """The head that a file was saved with; None if GlassBERT has no such head, or it cannot be told."""
    file_format = format_of_file(fields)
    return file_format.saved_head(fields, file_format.plain_names(tensors), None)


def format_of_model(described: Description, names: list[str]) -> tuple[Format, list[str]]:
    """The format of Hugging Face if it has a class for this model; otherwise ours, with the reasons."""
    family = FAMILIES.get(described.config.family)
    if family is None:
        return NativeFormat(), [f"it has no family {described.config.family!r}"]
    if not family.architectures:
        return NativeFormat(), [f"it has no classes of the family {family.name!r}"]
    theirs = HuggingFaceFormat(family)
    obstacles = theirs.obstacles(described, names)
    return (NativeFormat(), obstacles) if obstacles else (theirs, [])


def family_of_names(tensors: Iterable[str]) -> str:
    """The family whose tensors have most of these names, preferably with its prefix; "" if there is none."""
    names = set(tensors)
    best, most = "", (0.5, False)
    for family in FAMILIES.values():
        if not family.architectures:
            continue
        entries = family.core.values()  # weights only: not every model has biases
        wanted = {theirs.format(core="", layer=0, part="weight") for entry in entries for theirs in entry.theirs}
        plain = {name.removeprefix(family.core_prefix) for name in names}
        prefixed = any(name.startswith(family.core_prefix) for name in names)
        score = (len(wanted & plain) / len(wanted), prefixed)
        if score > most:
            best, most = family.name, score
    return best
