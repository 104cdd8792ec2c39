"""The table of members: their classes in transformers, and the small configs over which they are compared.

A file of this folder for each member enters it with `member(...)`; `test_members.py` runs all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import transformers

from tests.parity.families.sweep import CLASSES, RAGGED, SMALL, random_model

Case = tuple[dict[str, Any], list[int]]  # fields of the config, and the lengths of the rows of a batch
LONG: Case = ({"max_position_embeddings": 340}, [300, 31])


@dataclass(frozen=True)
class Member:
    """A family as transformers has it.

    heads   our head (None: bare) -> the end of the name of their class
    cases   name -> fields of their config that differ from `small`, and lengths of rows
    names   our names of the fields in `small` -> theirs, where they differ
    """

    family: str
    prefix: str
    heads: Mapping[str | None, str]
    cases: Mapping[str, Case]
    small: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    presets: Mapping[str, str | None] = field(default_factory=dict)  # preset -> the head that it is counted with

    def config(self, head: str | None = None, **changes: Any) -> Any:
        fields = {self.names.get(name, name): value for name, value in SMALL.items()}
        labels = 2 if head == "span" else CLASSES
        own = getattr(transformers, f"{self.prefix}Config")
        return own(**{**fields, **self.small, **changes}, num_labels=labels)

    def model(self, head: str | None, dtype: str = "float32", **changes: Any) -> Any:
        kind = getattr(transformers, self.prefix + self.heads[head])
        return random_model(kind, self.config(head, **changes), dtype)


MEMBERS: dict[str, Member] = {}
HEADS = {
    None: "Model",
    "mlm": "ForMaskedLM",
    "sequence": "ForSequenceClassification",
    "token": "ForTokenClassification",
    "span": "ForQuestionAnswering",
}
ODD = {"hidden_size": 33, "num_attention_heads": 3, "intermediate_size": 41}
SWEEP: dict[str, Case] = {
    "ragged": ({}, RAGGED),
    "odd sizes, an empty row": (ODD, [7, 0, 6]),
    "one token": ({"num_hidden_layers": 1}, [1, 1]),
    "untied": ({"tie_word_embeddings": False}, RAGGED),
    "long": LONG,
}


def member(family: str, prefix: str, **options: Any) -> None:
    MEMBERS[family] = Member(family, prefix, **{"heads": HEADS, "cases": SWEEP, **options})
