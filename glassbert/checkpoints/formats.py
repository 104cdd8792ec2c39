"""The two kinds of checkpoint: Hugging Face's for every family it has a class for, and our own for the rest.

Both answer the same questions: which names do the parameters have in the file, what does config.json say, and which
other tensors may lie beside them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, TypeVar

from glassbert.checkpoints.description import (
    CORE,
    MAY_DIFFER,
    Description,
    differences,
    has_choice_of_loss,
    has_no_effect,
)
from glassbert.checkpoints.families import FAMILIES, Family
from glassbert.checkpoints.fields import read_fields, write_fields
from glassbert.checkpoints.names import Entry, fill_names, fill_table, one
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
LABEL_NAMES = ("id2label", "label2id")
NATIVE = "glassbert"


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
        for key, allowed in family.honoured.items():
            if fields.get(key) not in allowed:
                only = " or ".join(repr(value) for value in allowed if value is not None)
                raise CheckpointError(f"{key} is {fields[key]!r}; GlassBERT can honour only {only}")
        for keys, default in family.must_agree.get(head, ()):
            said = {key: fields.get(key, default) for key in keys}
            if any(value != said[keys[0]] for value in said.values()):
                each = " and ".join(f"{key} is {value!r}" for key, value in said.items())
                raise CheckpointError(f"{each}; GlassBERT has one setting for both")
        values = read_fields(family.rules, fields)
        for name, told_by in family.told_by_tensor.items():
            if head == CORE:
                values[name] = told_by in tensors
        extras, loss_options = _extra_fields(fields)
        values.update(extras)
        problem = fields.get("problem_type")
        if problem is not None and problem not in list(LOSS_OF_PROBLEM):
            raise CheckpointError(f"problem_type is {problem!r}; it must be one of {', '.join(LOSS_OF_PROBLEM)}")
        loss = LOSS_OF_PROBLEM.get(problem) if head == "sequence" and problem is not None else None
        ours = {key for rule in family.rules for key in rule.theirs} | WRITTEN_ANEW | set(family.honoured)
        carried = {key: value for key, value in fields.items() if key not in ours}
        config = family.config_class.from_dict(values)
        return Description(config, head, _count_labels(fields), loss, loss_options, carried)

    def write(self, described: Description) -> dict[str, Any]:
        family, config = self.family, described.config
        fields = _kept(described)
        for key, token in family.token_ids.items():
            fields.setdefault(key, token if token < config.vocab_size else None)
        fields.update(write_fields(family.rules, config))
        fields["model_type"] = family.name
        fields["architectures"] = [family.architectures[described.head]]
        if described.loss is not None:
            fields["problem_type"] = next(key for key, loss in LOSS_OF_PROBLEM.items() if loss == described.loss)
        told = set() if described.head != CORE else set(family.told_by_tensor)
        extras: dict[str, Any] = {
            name: value for name, value, _ in differences(config, self._read_back(fields)) if name not in told
        }
        if described.loss_options:
            extras["loss_options"] = described.loss_options
        return {**fields, **({"glassbert": extras} if extras else {})}

    def _read_back(self, fields: Mapping[str, Any]) -> EncoderConfig:
        return self.family.config_class.from_dict(read_fields(self.family.rules, fields))

    def obstacles(self, described: Description, names: list[str]) -> list[str]:
        """Why Hugging Face has no class for this model; empty where it has one."""
        family, config, head = self.family, described.config, described.head
        too_small = [name for name, least in family.at_least.items() if getattr(config, name) < least]
        found = [f"{name} is {getattr(config, name)}" for name in too_small]
        if head not in family.architectures:
            found.append(f"there is no class with the head {head!r}")
        written = write_fields(family.rules, config)
        for key, allowed in family.honoured.items():
            if key in written and written[key] not in allowed:
                found.append(f"{key} cannot be {written[key]!r} there")
        for name, value, theirs in differences(config, self._read_back(written)):
            if not has_no_effect(name, config, head):
                found.append(f"{name} is {value!r} (there: {theirs!r})")
        entries = self.entries(config, head, names)
        found += [f"there is no place for the parameter {name}" for name in names if name not in entries]
        if described.loss == "cross_entropy" and described.num_labels == 1:
            found.append("a classification with one label is not allowed there")
        if described.loss not in (None, *LOSS_OF_PROBLEM.values()):
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
        return "" if head == CORE else self.family.core_prefix

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

        kept = _kept(described)
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

    def prefix_in(self, names: Iterable[str]) -> str:
        return ""

    def plain_names(self, tensors: Mapping[str, Value]) -> dict[str, Value]:
        return dict(tensors)

    def may_be_left(self, name: str, another_head: bool) -> bool:
        return another_head and name.startswith(("head.", "pooler."))


Format = HuggingFaceFormat | NativeFormat


def format_of_file(fields: Mapping[str, Any]) -> Format:
    model_type = fields.get("model_type")
    if model_type == NATIVE:
        return NativeFormat()
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise CheckpointError(f"model_type is {model_type!r}; GlassBERT opens {', '.join([*FAMILIES, NATIVE])}")
    return HuggingFaceFormat(FAMILIES[model_type])


def format_of_model(described: Description, names: list[str]) -> tuple[Format, list[str]]:
    """Hugging Face's layout where it has a class for this model; ours elsewhere, with the reasons."""
    family = FAMILIES.get(described.config.family)
    if family is None:
        return NativeFormat(), [f"it has no family {described.config.family!r}"]
    theirs = HuggingFaceFormat(family)
    obstacles = theirs.obstacles(described, names)
    return (NativeFormat(), obstacles) if obstacles else (theirs, [])


def _count_labels(fields: Mapping[str, Any]) -> int:
    names = fields.get("id2label")
    if isinstance(names, dict) and names:
        if not all(key.isdecimal() for key in names):
            raise CheckpointError(f"id2label must number the labels, got the keys {', '.join(map(repr, names))}")
        return len(names)
    count = fields.get("num_labels")
    return 2 if count is None else count  # transformers' default


def _extra_fields(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What transformers has no key for and we keep under a key of our own, which it ignores: fields, loss options."""
    extras = fields.get("glassbert") or {}
    if not isinstance(extras, dict):
        raise CheckpointError(f"glassbert must hold config fields, got {extras!r}")
    values = dict(extras)
    loss_options = values.pop("loss_options", {})
    if not isinstance(loss_options, dict):
        raise CheckpointError(f"glassbert.loss_options must hold options by name, got {loss_options!r}")
    for name in values:
        if name not in MAY_DIFFER:
            raise CheckpointError(f"glassbert.{name} cannot be set in a checkpoint of Hugging Face's layout")
    return values, loss_options


def _kept(described: Description) -> dict[str, Any]:
    """The carried fields, and names for the labels of this head."""
    if described.head == CORE or described.num_labels == 0:
        return dict(described.carried)
    names = described.carried.get("id2label")
    if not isinstance(names, dict) or len(names) != described.num_labels:
        names = {str(i): f"LABEL_{i}" for i in range(described.num_labels)}
    return {**described.carried, "id2label": names, "label2id": {label: int(i) for i, label in names.items()}}
