"""The format of Hugging Face: tensor names and config.json of a family as in transformers.

A model with an embedding head is stored as a bare encoder and the modules of sentence-transformers
(`glassbert.checkpoints.sentence`). Settings without a key in transformers are stored in config.json under "glassbert",
which transformers ignores.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from glassbert.checkpoints.description import (
    CORE,
    MAY_DIFFER,
    Description,
    carried_with_labels,
    differences,
    has_no_effect,
)
from glassbert.checkpoints.family import Family
from glassbert.checkpoints.fields import read_fields, write_fields
from glassbert.checkpoints.names import Entry, fill_names, fill_table
from glassbert.checkpoints.sentence import POOLINGS
from glassbert.errors import CheckpointError
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS

Value = TypeVar("Value")

LOSS_OF_PROBLEM = {
    "regression": "mean_squared_error",
    "single_label_classification": "cross_entropy",
    "multi_label_classification": "binary_cross_entropy",
}
# Keys of a config.json that are always written, in addition to those of the family's rules.
ALWAYS_WRITTEN = {
    "model_type",
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "num_labels",
    "problem_type",
    "glassbert",
}
EMBEDDING = "embedding"
EXTRA_KEYS = ("loss_options", "loss", "head_type")  # under "glassbert", in addition to fields of our config
CLASSIFIER_WEIGHT, CLASSIFIER_BIAS = "head.classifier.weight", "head.classifier.bias"


class HuggingFaceFormat:
    """The format of transformers for one family."""

    def __init__(self, family: Family):
        self.family = family

    # ---- config.json ----------------------------------------------------------------------------------------------

    def saved_head(self, fields: Mapping[str, Any], tensors: Iterable[str], requested: str | None) -> str | None:
        """The head that the file was saved with, by its plain names; None if GlassBERT has no such head.

        A file with only an encoder has no head ("core"), also where config.json names a class with one: folders of
        sentence-transformers keep the class that the encoder came from. If config.json names no class, the file has
        the requested head if it has any of its tensors.
        """
        architecture, names = self._architecture(fields), set(tensors)
        if architecture == self.family.architectures[CORE] and _extra(fields).get("head_type") == EMBEDDING:
            return EMBEDDING
        heads = {architecture: head for head, architecture in self.family.architectures.items()}
        named = requested if architecture is None else {**heads, **self.family.also_opens}.get(str(architecture))
        own = self._names_of_head(named)
        if own & names or (architecture is not None and not own):
            return named
        if all(self._in_encoder(name) for name in names):
            return CORE
        return None if architecture is None else named

    def _names_of_head(self, head: str | None) -> set[str]:
        """The tensors of a head, by plain names, without those of the encoder that it shares."""
        names = fill_names(name for entry in self.family.heads.get(head or CORE, {}).values() for name in entry.theirs)
        return {name for name in names if not self._in_encoder(name)}

    def _in_encoder(self, name: str) -> bool:
        """Whether a plain name is that of a tensor of the encoder."""
        first = {theirs.removeprefix("{core}").split(".")[0] for e in self.family.core.values() for theirs in e.theirs}
        return name.split(".")[0] in first

    def _architecture(self, fields: Mapping[str, Any]) -> Any:
        named = fields.get("architectures")
        return named[0] if isinstance(named, list) and named else None

    def explain_unknown_head(self, fields: Mapping[str, Any]) -> str:
        architecture = self._architecture(fields)
        if architecture is None:
            heads = " | ".join(map(repr, (CORE, *HEADS)))
            return f"it names no architecture; give the head of the model: load(..., head={heads})"
        known = ", ".join([*self.family.architectures.values(), *self.family.also_opens])
        return (
            f"it names the architecture {architecture!r}, but GlassBERT opens {known}; "
            f"load(..., head={CORE!r}) opens the encoder without its head"
        )

    def read(self, fields: Mapping[str, Any], head: str, tensors: Mapping[str, Any]) -> Description:
        family = self.family
        for key, allowed in self._supported_values(head).items():
            if fields.get(key) not in allowed:
                only = " or ".join(repr(value) for value in allowed if value is not None)
                raise CheckpointError(f"{key} is {fields[key]!r}; GlassBERT supports only {only}")
        for keys, default in family.equal_keys.get(head, ()):
            found = {key: fields.get(key, default) for key in keys}
            if any(value != found[keys[0]] for value in found.values()):
                each = " and ".join(f"{key} is {value!r}" for key, value in found.items())
                raise CheckpointError(f"{each}; GlassBERT has one setting for both")
        values = read_fields(family.rules, fields)
        for name, tensor in family.inferred_from_tensor.items():
            if head == CORE:
                values[name] = tensor in tensors
        extras = dict(_extra(fields))
        loss_options, own_loss, _ = (extras.pop(key, None) for key in EXTRA_KEYS)
        if not isinstance(loss_options or {}, dict):
            raise CheckpointError(f"glassbert.loss_options must hold options by name, got {loss_options!r}")
        for name in extras:
            if name not in MAY_DIFFER:
                raise CheckpointError(f"glassbert.{name} cannot be set in a checkpoint of the Hugging Face format")
        values.update(extras)
        problem = fields.get("problem_type")
        if problem is not None and problem not in list(LOSS_OF_PROBLEM):
            raise CheckpointError(f"problem_type is {problem!r}; it must be one of {', '.join(LOSS_OF_PROBLEM)}")
        loss = LOSS_OF_PROBLEM.get(problem) if head == "sequence" and problem is not None else None
        loss = own_loss if head == EMBEDDING else loss
        ours = {key for rule in family.rules for key in rule.theirs} | ALWAYS_WRITTEN | set(family.supported_values)
        carried = {key: value for key, value in fields.items() if key not in ours}
        config = family.config_class.from_dict(values)
        return Description(config, head, _count_labels(fields), loss, loss_options or {}, carried)

    def _supported_values(self, head: str) -> Mapping[str, tuple[Any, ...]]:
        return {**self.family.supported_values, **self.family.head_values.get(head, {})}

    def write(self, described: Description) -> dict[str, Any]:
        family, config = self.family, described.config
        fields = carried_with_labels(described)
        for key, token in family.token_ids.items():
            fields.setdefault(key, token if token < config.vocab_size else None)
        fields.update(write_fields(family.rules, _config_to_write(described)))
        fields["model_type"] = family.model_type or family.name
        fields["architectures"] = [family.architectures[CORE if described.head == EMBEDDING else described.head]]
        if described.loss is not None and described.head != EMBEDDING:
            fields["problem_type"] = next(key for key, loss in LOSS_OF_PROBLEM.items() if loss == described.loss)
        inferred = set() if described.head != CORE else set(family.inferred_from_tensor)
        extras: dict[str, Any] = {
            name: value for name, value, _ in differences(config, self._read_back(fields)) if name not in inferred
        }
        if described.loss_options:
            extras["loss_options"] = described.loss_options
        if described.head == EMBEDDING:
            extras |= {"head_type": EMBEDDING, "loss": described.loss}
        return {**fields, **({"glassbert": extras} if extras else {})}

    def _read_back(self, fields: Mapping[str, Any]) -> EncoderConfig:
        return self.family.config_class.from_dict(read_fields(self.family.rules, fields))

    def obstacles(self, described: Description, names: list[str]) -> list[str]:
        """The reasons why Hugging Face has no class for this model; empty if it has one."""
        family, config, head = self.family, described.config, described.head
        if config.series is not None:
            return ["it reads values instead of words"]
        if config.numbers is not None:
            return ["it reads numbers beside its words"]
        too_small = [name for name, least in family.at_least.items() if getattr(config, name) < least]
        found = [f"{name} is {getattr(config, name)}" for name in too_small]
        if head == EMBEDDING:
            if config.classifier_pooling not in POOLINGS:
                found.append(f"sentence-transformers has no pooling {config.classifier_pooling!r}")
        elif head not in family.architectures:
            found.append(f"there is no class with the head {head!r}")
        config = _config_to_write(described)
        written = write_fields(family.rules, config)
        for key, allowed in self._supported_values(head).items():
            if key in written and written[key] not in allowed:
                found.append(f"{key} cannot be {written[key]!r} there")
        for name, value, theirs in differences(config, self._read_back(written)):
            if not has_no_effect(name, config, head):
                found.append(f"{name} is {value!r} (there: {theirs!r})")
        entries = self.entries(config, head, names)
        found += [f"there is no tensor for the parameter {name}" for name in names if name not in entries]
        if described.loss == "cross_entropy" and described.num_labels == 1:
            found.append("a classification with one label is not allowed there")
        if head != EMBEDDING and described.loss not in (None, *LOSS_OF_PROBLEM.values()):
            found.append(f"there is no loss {described.loss!r} there")
        return found

    # ---- names ----------------------------------------------------------------------------------------------------

    def entries(self, config: EncoderConfig, head: str, names: Iterable[str], prefix: str = "") -> dict[str, Entry]:
        """Our names -> theirs, those of the encoder with `prefix`."""
        key = f"{head}_untied" if head in HEADS and HEADS[head].decodes and not config.tie_word_embeddings else head
        table = fill_table({**self.family.core, **self.family.heads.get(key, {})}, config.num_hidden_layers, prefix)
        return {name: table[name] for name in names if name in table}

    def prefix_for(self, head: str) -> str:
        """The prefix of the encoder's names in a written model with this head."""
        return "" if head in (CORE, EMBEDDING) else self.family.core_prefix

    def to_file(self, described: Description, name: str, values: np.ndarray) -> np.ndarray:
        """The values of one of our parameters as stored in the file.

        A regression head is trained on scaled targets (y - mean) / scale; mean and scale are options of its loss and
        unknown to transformers. So the file contains the classifier of y = scale (W x + b) + mean: scale W and
        scale b + mean. `from_file` is the inverse.
        """
        mean, scale = _target_scaling(described.loss_options)
        if name not in (CLASSIFIER_WEIGHT, CLASSIFIER_BIAS) or (mean is None and scale is None):
            return values
        wide = values.astype(np.float64)
        wide = wide * (1.0 if scale is None else scale.reshape(-1, *[1] * (wide.ndim - 1)))
        return (wide + mean if name == CLASSIFIER_BIAS and mean is not None else wide).astype(values.dtype)

    def from_file(self, described: Description, name: str, values: np.ndarray) -> np.ndarray:
        """The values of our parameter from those in the file, the inverse of `to_file`."""
        mean, scale = _target_scaling(described.loss_options)
        if name not in (CLASSIFIER_WEIGHT, CLASSIFIER_BIAS) or (mean is None and scale is None):
            return values
        wide = values.astype(np.float64)
        wide = wide - mean if name == CLASSIFIER_BIAS and mean is not None else wide
        return (wide / (1.0 if scale is None else scale.reshape(-1, *[1] * (wide.ndim - 1)))).astype(values.dtype)

    def prefix_in(self, names: Iterable[str]) -> str:
        """The prefix of the encoder's names in a file with these names."""
        return self.family.core_prefix if any(name.startswith(self.family.core_prefix) for name in names) else ""

    def plain_names(self, tensors: Mapping[str, Value]) -> dict[str, Value]:
        """The tensors of the file by present names, without prefix and without buffers."""
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

    def may_be_unused(self, name: str, another_head: bool) -> bool:
        """Whether a file may contain this tensor although the model does not use it.

        A head is accepted only if the model has another one, whatever its tensors are called.
        """
        return name in fill_names(self.family.pretraining_only) or (another_head and not self._in_encoder(name))


def _count_labels(fields: Mapping[str, Any]) -> int:
    names = fields.get("id2label")
    if isinstance(names, dict) and names:
        if not all(key.isdecimal() for key in names):
            raise CheckpointError(f"id2label must number the labels, got the keys {', '.join(map(repr, names))}")
        return len(names)
    count = fields.get("num_labels")
    return 2 if count is None else count  # transformers' default


def _extra(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings under our own key "glassbert"."""
    extras = fields.get("glassbert") or {}
    if not isinstance(extras, dict):
        raise CheckpointError(f"glassbert must hold config fields, got {extras!r}")
    return extras


def _config_to_write(described: Description) -> EncoderConfig:
    """The config without the pooling of an embedding head, which is stored in 1_Pooling/config.json."""
    config = described.config
    if described.head != EMBEDDING:
        return config
    default = next(field.default for field in dataclasses.fields(config) if field.name == "classifier_pooling")
    return config.replace(classifier_pooling=default)


def _target_scaling(options: Mapping[str, Any]) -> list[np.ndarray | None]:
    given = (options.get("target_mean"), options.get("target_scale"))
    return [None if one is None else np.asarray(one, np.float64).reshape(-1) for one in given]
