"""Our own layout, for models that Hugging Face has no class for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from glassbert.checkpoints.description import CORE, Description, has_choice_of_loss, kept_fields
from glassbert.checkpoints.family import FAMILIES
from glassbert.checkpoints.names import Entry, one
from glassbert.errors import CheckpointError
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS

Value = TypeVar("Value")

LABEL_NAMES = ("id2label", "label2id")
NATIVE = "glassbert"


class NativeFormat:
    """Our own layout: our names, and our config fields beside `"model_type": "glassbert"`."""

    # Keys whose kinds no config checks, and those beside the config's own.
    other_keys: Mapping[str, tuple[type, ...]] = {
        "family": (str,),
        "model_type": (str,),
        "head_type": (str, NoneType),
        "num_labels": (int,),
        "loss": (str, NoneType),
        "loss_options": (dict,),
        "dtype": (str,),
        "glassbert_version": (str,),
        **dict.fromkeys(LABEL_NAMES, (dict,)),
    }

    def own_head(self, fields: Mapping[str, Any], tensors: Iterable[str], asked: str | None) -> str | None:
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

        kept = kept_fields(described)
        return {
            "model_type": NATIVE,
            "glassbert_version": __version__,
            "head_type": None if described.head == CORE else described.head,
            "num_labels": described.num_labels,
            "loss": described.loss,
            **({"loss_options": described.loss_options} if described.loss_options else {}),
            **{key: kept[key] for key in LABEL_NAMES if key in kept},
            **described.config.to_dict(),
        }

    def entries(self, config: EncoderConfig, head: str, names: Iterable[str], prefix: str = "") -> dict[str, Entry]:
        return {name: one(name) for name in names}

    def prefix_for(self, head: str) -> str:
        return ""

    def outward(self, described: Description, name: str, values: np.ndarray) -> np.ndarray:
        return values

    def inward(self, described: Description, name: str, values: np.ndarray) -> np.ndarray:
        return values

    def prefix_in(self, names: Iterable[str]) -> str:
        return ""

    def plain_names(self, tensors: Mapping[str, Value]) -> dict[str, Value]:
        return dict(tensors)

    def may_be_left(self, name: str, another_head: bool) -> bool:
        return another_head and name.startswith(("head.", "pooler."))
