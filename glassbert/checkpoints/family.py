"""A family: how Hugging Face stores one kind of model, as tables of names and of config fields.

A module in `glassbert.families` registers a `Family`. This package reads and writes checkpoints by these tables. It
knows the names of the families and their modules (`MODULES`); a module is imported when its family is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from glassbert.checkpoints.fields import Rule, same
from glassbert.checkpoints.names import Table, one
from glassbert.layers.registry import Registry
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model

# Family: its module in glassbert.families. This is the order of lists.
MODULES = {
    "bert": "bert",
    "albert": "albert",
    "deberta": "deberta",
    "distilbert": "distilbert",
    "electra": "electra",
    "gpt2": "gpt2",
    "longformer": "longformer",
    "modernbert": "modernbert",
    "roberta": "roberta",
    "xlm-roberta": "roberta",
    "mpnet": "mpnet",
    "xlnet": "xlnet",
}
FAMILIES: Registry[Family] = Registry("family")
for _name, _module in MODULES.items():
    FAMILIES.later(_name, f"glassbert.families.{_module}")


def register_family(family: Family) -> Family:
    """Register a family under its name, with its presets."""
    FAMILIES.register(family.name)(family)
    return family


def family_name(given: str) -> str:
    """The name of the family that this name or title means, whatever its case and hyphens; else what was given."""
    if given in FAMILIES or not (wanted := _letters(given)):
        return given
    return next((name for name, one in FAMILIES.items() if wanted in (_letters(name), _letters(one.title))), given)


def _letters(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


class Presets(Mapping[str, EncoderConfig]):
    """The preset configs of all registered families by name."""

    def _all(self) -> dict[str, EncoderConfig]:
        return {name: config for family in FAMILIES.values() for name, config in family.presets.items()}

    def __getitem__(self, name: str) -> EncoderConfig:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


PRESETS = Presets()


@dataclass(frozen=True)
class Family:
    """How Hugging Face stores one family of models. Heads are "core" (no head) and the keys of `HEADS`."""

    name: str  # `family` in our config
    config_class: type[EncoderConfig]
    model_type: str = ""  # in their config, where it is not the name
    architectures: Mapping[str, str] = field(default_factory=dict)  # head -> their class; empty: saved in our layout
    also_opens: Mapping[str, str] = field(default_factory=dict)  # their other classes that have one of our heads
    core_prefix: str = ""
    core: Table = field(default_factory=dict)
    heads: Mapping[str, Table] = field(default_factory=dict)  # "mlm_untied": "mlm" with its own decoder weight
    rules: tuple[Rule, ...] = ()
    # Keys that change what a model computes, and the values that GlassBERT supports.
    supported_values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    head_values: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)  # the same, by head
    # For each head: groups of keys that must be equal, and the default of a missing key.
    equal_keys: Mapping[str, tuple[tuple[tuple[str, ...], Any], ...]] = field(default_factory=dict)
    at_least: Mapping[str, int] = field(default_factory=dict)  # minimum of a field in transformers
    token_ids: Mapping[str, int] = field(default_factory=dict)  # their defaults; null if the vocabulary is too small
    renamed: Mapping[str, str] = field(default_factory=dict)  # suffixes of names in old files -> present suffixes
    not_weights: tuple[str, ...] = ()  # patterns of tensors that are buffers, not parameters
    pretraining_only: tuple[str, ...] = ()  # weights that a file may contain with any head
    # Field of our config -> tensor: without a head the field is true if the file has the tensor.
    inferred_from_tensor: Mapping[str, str] = field(default_factory=dict)
    presets: Mapping[str, EncoderConfig] = field(default_factory=dict)  # configs by name
    # For `glassbert family` and `glassbert pretrain --family`.
    title: str = ""  # the name that people write, such as "ModernBERT"
    paper: str = ""  # authors, year, title
    differences: Mapping[str, str] = field(default_factory=dict)  # aspect -> how it differs from BERT
    formulas: str = ""  # what is new, as formulas in plain text
    mini: str = ""  # the preset that `pretrain --family` trains
    objective: str = "mlm"  # the objective that it is pretrained on
    head: str = "mlm"  # the head of that objective, which `create_model` gives it
    tokenizer: str = "wordpiece"  # the kind of tokenizer that `pretrain` trains for it
    training: Mapping[str, Any] = field(default_factory=dict)  # other defaults of `pretrain`
    # Fills a new model with weights of a model of another family, for `pretrain --start-from`.
    start: Callable[[Model, Model], None] | None = None
    # The class of a model with this config and head (None: no head).
    class_for: Callable[[EncoderConfig, str | None], type[Model]] = lambda config, head: Model


COMMON_KEYS = {
    "auto_map": (None, {}),
    "quantization_config": (None, {}),
    "is_decoder": (None, False),
    "is_encoder_decoder": (None, False),
    "add_cross_attention": (None, False),
    "pruned_heads": (None, {}),
    "per_layer_config": (None, {}),
}

SHARED_RULES = (
    same("vocab_size"),
    same("hidden_size"),
    same("num_hidden_layers"),
    same("num_attention_heads"),
    same("intermediate_size"),
    same("max_position_embeddings"),
    same("pad_token_id"),
    same("initializer_range"),
    same("tie_word_embeddings"),
)

CLASSIFIER = {"head.classifier.{part}": one("classifier.{part}")}
