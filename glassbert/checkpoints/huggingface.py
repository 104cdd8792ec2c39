"""The layout of Hugging Face: names and config.json of a family as transformers has them.

Heads for embeddings are a bare encoder there, with the modules of sentence-transformers beside it
(`glassbert.checkpoints.sentence`). What transformers has no key for stands in config.json under "glassbert", where it
is ignored.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from glassbert.checkpoints.description import (
    CORE,
    MAY_DIFFER,
    Description,
    differences,
    has_no_effect,
    kept_fields,
)
from glassbert.checkpoints.family import Family
from glassbert.checkpoints.fields import read_fields, write_fields
from glassbert.checkpoints.names import Entry, fill_names, fill_table
from glassbert.checkpoints.sentence import POOLINGS
from glassbert.checkpoints.units import from_units, in_units
from glassbert.errors import CheckpointError
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS

Value = TypeVar("Value")

LOSS_OF_PROBLEM = {
    "regression": "mean_squared_error",
    "single_label_classification": "cross_entropy",
    "multi_label_classification": "binary_cross_entropy",
}
# Keys of a config.json that are made anew on writing, besides those of the family's rules.
WRITTEN_ANEW = {
    "model_type",
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "num_labels",
    "problem_type",
    "glassbert",
}
SCORES_WORDS = ("mlm", "pretraining")  # heads with a score for every word, by a table that may be tied
EMBEDDING = "embedding"
BESIDE_FIELDS = ("loss_options", "loss", "head_type")  # under "glassbert", besides fields of our config


class HuggingFaceFormat:
    """The layout of transformers for one family."""

    def __init__(self, family: Family):
        self.family = family

    # ---- config.json ----------------------------------------------------------------------------------------------

    def own_head(self, fields: Mapping[str, Any], tensors: Iterable[str], asked: str | None) -> str | None:
        """The head that the file was saved with; None where that is none of ours.

        A config.json may name no architecture. Then a file with nothing but an encoder has none, and any other has the
        head that was asked for.
        """
        architecture = self._architecture(fields)
        if architecture == self.family.architectures[CORE] and _extra(fields).get("head_type") == EMBEDDING:
            return EMBEDDING
        if architecture is None:
            encoder = {
                name.removeprefix("{core}").split(".")[0] for e in self.family.core.values() for name in e.theirs
            }
            return CORE if all(name.split(".")[0] in encoder for name in tensors) else asked
        heads = {architecture: head for head, architecture in self.family.architectures.items()}
        return {**heads, **self.family.also_opens}.get(str(architecture))

    def _architecture(self, fields: Mapping[str, Any]) -> Any:
        named = fields.get("architectures")
        return named[0] if isinstance(named, list) and named else None

    def explain_unknown_head(self, fields: Mapping[str, Any]) -> str:
        architecture = self._architecture(fields)
        if architecture is None:
            heads = " | ".join(map(repr, (CORE, *HEADS)))
            return f"it names no architecture; say which head the model has: load(..., head={heads})"
        known = ", ".join([*self.family.architectures.values(), *self.family.also_opens])
        return (
            f"it names the architecture {architecture!r}, and GlassBERT opens {known}; "
            f"load(..., head={CORE!r}) opens the encoder without its head"
        )

    def read(self, fields: Mapping[str, Any], head: str, tensors: Mapping[str, Any]) -> Description:
        family = self.family
        for key, allowed in family.supported_values.items():
            if fields.get(key) not in allowed:
                only = " or ".join(repr(value) for value in allowed if value is not None)
                raise CheckpointError(f"{key} is {fields[key]!r}; GlassBERT can honour only {only}")
        for keys, default in family.equal_keys.get(head, ()):
            said = {key: fields.get(key, default) for key in keys}
            if any(value != said[keys[0]] for value in said.values()):
                each = " and ".join(f"{key} is {value!r}" for key, value in said.items())
                raise CheckpointError(f"{each}; GlassBERT has one setting for both")
        values = read_fields(family.rules, fields)
        for name, told_by in family.inferred_from_tensor.items():
            if head == CORE:
                values[name] = told_by in tensors
        extras = dict(_extra(fields))
        loss_options, own_loss, _ = (extras.pop(key, None) for key in BESIDE_FIELDS)
        if not isinstance(loss_options or {}, dict):
            raise CheckpointError(f"glassbert.loss_options must hold options by name, got {loss_options!r}")
        for name in extras:
            if name not in MAY_DIFFER:
                raise CheckpointError(f"glassbert.{name} cannot be set in a checkpoint of Hugging Face's layout")
        values.update(extras)
        problem = fields.get("problem_type")
        if problem is not None and problem not in list(LOSS_OF_PROBLEM):
            raise CheckpointError(f"problem_type is {problem!r}; it must be one of {', '.join(LOSS_OF_PROBLEM)}")
        loss = LOSS_OF_PROBLEM.get(problem) if head == "sequence" and problem is not None else None
        loss = own_loss if head == EMBEDDING else loss
        ours = {key for rule in family.rules for key in rule.theirs} | WRITTEN_ANEW | set(family.supported_values)
        carried = {key: value for key, value in fields.items() if key not in ours}
        config = family.config_class.from_dict(values)
        return Description(config, head, _count_labels(fields), loss, loss_options or {}, carried)

    def write(self, described: Description) -> dict[str, Any]:
        family, config = self.family, described.config
        fields = kept_fields(described)
        for key, token in family.token_ids.items():
            fields.setdefault(key, token if token < config.vocab_size else None)
        fields.update(write_fields(family.rules, _in_config(described)))
        fields["model_type"] = family.name
        fields["architectures"] = [family.architectures[CORE if described.head == EMBEDDING else described.head]]
        if described.loss is not None and described.head != EMBEDDING:
            fields["problem_type"] = next(key for key, loss in LOSS_OF_PROBLEM.items() if loss == described.loss)
        told = set() if described.head != CORE else set(family.inferred_from_tensor)
        extras: dict[str, Any] = {
            name: value for name, value, _ in differences(config, self._read_back(fields)) if name not in told
        }
        if described.loss_options:
            extras["loss_options"] = described.loss_options
        if described.head == EMBEDDING:
            extras |= {"head_type": EMBEDDING, "loss": described.loss}
        return {**fields, **({"glassbert": extras} if extras else {})}

    def _read_back(self, fields: Mapping[str, Any]) -> EncoderConfig:
        return self.family.config_class.from_dict(read_fields(self.family.rules, fields))

    def obstacles(self, described: Description, names: list[str]) -> list[str]:
        """Why Hugging Face has no class for this model; empty where it has one."""
        family, config, head = self.family, described.config, described.head
        if config.series is not None:
            return ["it reads values instead of words"]
        too_small = [name for name, least in family.at_least.items() if getattr(config, name) < least]
        found = [f"{name} is {getattr(config, name)}" for name in too_small]
        if head == EMBEDDING:
            if config.classifier_pooling not in POOLINGS:
                found.append(f"sentence-transformers has no pooling {config.classifier_pooling!r}")
        elif head not in family.architectures:
            found.append(f"there is no class with the head {head!r}")
        config = _in_config(described)
        written = write_fields(family.rules, config)
        for key, allowed in family.supported_values.items():
            if key in written and written[key] not in allowed:
                found.append(f"{key} cannot be {written[key]!r} there")
        for name, value, theirs in differences(config, self._read_back(written)):
            if not has_no_effect(name, config, head):
                found.append(f"{name} is {value!r} (there: {theirs!r})")
        entries = self.entries(config, head, names)
        found += [f"there is no place for the parameter {name}" for name in names if name not in entries]
        if described.loss == "cross_entropy" and described.num_labels == 1:
            found.append("a classification with one label is not allowed there")
        if head != EMBEDDING and described.loss not in (None, *LOSS_OF_PROBLEM.values()):
            found.append(f"there is no loss {described.loss!r} there")
        return found

    # ---- names ----------------------------------------------------------------------------------------------------

    def entries(self, config: EncoderConfig, head: str, names: Iterable[str], prefix: str = "") -> dict[str, Entry]:
        """Our names -> theirs, those of the encoder behind `prefix`."""
        key = f"{head}_untied" if head in SCORES_WORDS and not config.tie_word_embeddings else head
        table = fill_table({**self.family.core, **self.family.heads[key]}, config.num_hidden_layers, prefix)
        return {name: table[name] for name in names if name in table}

    def prefix_for(self, head: str) -> str:
        """What stands before the encoder's names when a model with this head is written."""
        return "" if head in (CORE, EMBEDDING) else self.family.core_prefix

    def outward(self, described: Description, name: str, values: np.ndarray) -> np.ndarray:
        """One of our weights as the file has it: a regression answers there in the units of its labels."""
        return in_units(described, name, values)

    def inward(self, described: Description, name: str, values: np.ndarray) -> np.ndarray:
        return from_units(described, name, values)

    def prefix_in(self, names: Iterable[str]) -> str:
        """What stands before them in a file that has these names."""
        return self.family.core_prefix if any(name.startswith(self.family.core_prefix) for name in names) else ""

    def plain_names(self, tensors: Mapping[str, Value]) -> dict[str, Value]:
        """The file's tensors under their present names, without the prefix and without buffers."""
        plain: dict[str, Value] = {}
        for name, value in tensors.items():
            short = name.removeprefix(self.family.core_prefix)
            for old, new in self.family.renamed.items():
                if short.endswith(old):
                    short = short.removesuffix(old) + new
            if any(fnmatch.fnmatchcase(short, pattern) for pattern in self.family.not_weights):
                continue
            if short in plain:
                raise CheckpointError(f"the file has two tensors for {short!r}; one of them is {name!r}")
            plain[short] = value
        return plain

    def may_be_left(self, name: str, another_head: bool) -> bool:
        """Whether a file may have this beside the model's own: other heads only where one of them was not asked for."""
        left = set(self.family.pretraining_only)
        if another_head:
            entries = [entry for table in self.family.heads.values() for entry in table.values()]
            left.update(*(entry.all_names() for entry in entries))
        return name in fill_names(left)


def _count_labels(fields: Mapping[str, Any]) -> int:
    names = fields.get("id2label")
    if isinstance(names, dict) and names:
        if not all(key.isdecimal() for key in names):
            raise CheckpointError(f"id2label must number the labels, got the keys {', '.join(map(repr, names))}")
        return len(names)
    count = fields.get("num_labels")
    return 2 if count is None else count  # transformers' default


def _extra(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What transformers has no key for and we keep under a key of our own, which it ignores."""
    extras = fields.get("glassbert") or {}
    if not isinstance(extras, dict):
        raise CheckpointError(f"glassbert must hold config fields, got {extras!r}")
    return extras


def _in_config(described: Description) -> EncoderConfig:
    """The config that their fields speak of: how embeddings are pooled stands elsewhere."""
    config = described.config
    return config.replace(classifier_pooling="cls") if described.head == EMBEDDING else config
