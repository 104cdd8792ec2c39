"""Models by name: the factory for any encoder with any head, and a registry of ready recipes."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from glassbert.errors import ConfigError
from glassbert.models.config import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, PRESETS, BertConfig, ModernBertConfig
from glassbert.models.model import BertCore, BertWithHead, LargerBERT, MiniBERT, Model, ModernBertCore

MODELS: dict[str, Callable[..., Model]] = {
    "bert": BertCore,
    "modernbert": ModernBertCore,
    "bert_with_head": BertWithHead,
    "modernbert_with_head": lambda config=None, **options: BertWithHead(
        config or ModernBertConfig.get_base_config(), **options
    ),
    "mini-bert": MiniBERT,
    "larger-bert": LargerBERT,
}

HEAD_TYPES: dict[str, dict[str, Any]] = {
    "mlm": {"head_type": "mlm"},
    "pretraining": {"head_type": "pretraining"},
    "token": {"head_type": "token"},
    "sequence": {"head_type": "sequence"},
    "binary": {"head_type": "sequence", "num_labels": 1, "loss": "binary_cross_entropy"},
    "multiclass": {"head_type": "sequence", "loss": "cross_entropy"},
    "multilabel": {"head_type": "sequence", "loss": "binary_cross_entropy"},
    "regression": {"head_type": "sequence", "num_labels": 1, "loss": "mean_squared_error"},
}

REGISTRY: dict[str, Callable[..., Model]] = {
    "mini-bert": MiniBERT,
    "larger-bert": LargerBERT,
    "larger-bert-tied": lambda **options: LargerBERT(LARGER_BERT_CONFIG.replace(tie_word_embeddings=True), **options),
    "bert-base": lambda **options: BertWithHead(BertConfig.get_base_config(), "mlm", **options),
    "bert-large": lambda **options: BertWithHead(BertConfig.get_large_config(), "mlm", **options),
    "modernbert-base": lambda **options: BertWithHead(ModernBertConfig.get_base_config(), "mlm", **options),
    "modernbert-large": lambda **options: BertWithHead(ModernBertConfig.get_large_config(), "mlm", **options),
    "modernbert-binary": lambda **options: create_model("modernbert_with_head", head_type="binary", **options),
    "titanic-bert": lambda **options: create_model(
        "bert_with_head", head_type="binary", config=MINI_BERT_CONFIG, **options
    ),
}


def create_model(name: str, *, head_type: str | None = None, num_labels: int | None = None, **options: Any) -> Model:
    """An encoder by name ("bert", "modernbert") or with a head ("bert_with_head", "modernbert_with_head").

    `head_type` is "mlm", "pretraining", "token", "binary", "multiclass", "multilabel" or "regression"; `config` takes
    another config, or the name of a preset.
    """
    make = MODELS.get(name)
    if make is None:
        raise ConfigError(_unknown("model", name, MODELS))
    if isinstance(options.get("config"), str):
        options["config"] = PRESETS.get(options["config"]) or _raise(_unknown("preset", options["config"], PRESETS))
    if head_type is not None:
        if not name.endswith("_with_head"):
            raise ConfigError(f"{name!r} has no head to choose; 'bert_with_head' and 'modernbert_with_head' have")
        if head_type not in HEAD_TYPES:
            raise ConfigError(_unknown("head type", head_type, HEAD_TYPES))
        options = {**HEAD_TYPES[head_type], **options}
    if num_labels is not None:
        fixed = HEAD_TYPES.get(head_type or "", {}).get("num_labels")
        if fixed is not None and num_labels not in (fixed, fixed + 1):
            raise ConfigError(f"a {head_type} head has one output; num_labels {num_labels} does not fit")
        options.setdefault("num_labels", num_labels)
    return make(**options)


def create_from_registry(name: str, **options: Any) -> Model:
    """A ready recipe by its name; `register` adds your own."""
    if name not in REGISTRY:
        raise ConfigError(_unknown("recipe", name, REGISTRY))
    return REGISTRY[name](**options)


def register(name: str, recipe: Callable[..., Model]) -> None:
    """Make `recipe` available as create_from_registry(name)."""
    if name in REGISTRY:
        raise ConfigError(f"there is a recipe {name!r} already; choose another name")
    REGISTRY[name] = recipe


def _unknown(what: str, name: str, known: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown {what} {name!r}{hint} There are {', '.join(known)}."


def _raise(message: str) -> Any:
    raise ConfigError(message)
