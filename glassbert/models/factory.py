"""Models by name: the factory for any encoder with any head, and a registry of ready recipes."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any

from glassbert.errors import ConfigError
from glassbert.models.config import (
    LARGER_BERT_CONFIG,
    PRESETS,
    BertConfig,
    EncoderConfig,
    ModernBertConfig,
)
from glassbert.models.heads import HEADS, LOSS_OPTIONS, with_pooling
from glassbert.models.model import BertCore, BertWithHead, LargerBERT, MiniBERT, Model, ModernBertCore
from glassbert.models.series import SERIES_OPTIONS, SeriesConfig, with_series

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

DEFAULT_CONFIGS: dict[str, EncoderConfig] = {
    "bert_with_head": BertConfig.get_base_config(),
    "modernbert_with_head": ModernBertConfig.get_base_config(),
}

HEAD_TYPES: dict[str, dict[str, Any]] = {
    "mlm": {"head_type": "mlm"},
    "pretraining": {"head_type": "pretraining"},
    "token": {"head_type": "token"},
    "span": {"head_type": "span"},
    "embedding": {"head_type": "embedding"},
    "sequence": {"head_type": "sequence"},
    "binary": {"head_type": "sequence", "num_labels": 1, "loss": "binary_cross_entropy"},
    "multiclass": {"head_type": "sequence", "loss": "cross_entropy"},
    "multilabel": {"head_type": "sequence", "loss": "binary_cross_entropy"},
    "regression": {"head_type": "sequence", "loss": "mean_squared_error"},
    "ordinal": {"head_type": "sequence", "loss": "ordinal"},
    "forecast": {"head_type": "forecast"},
}
USUAL_LABELS = {"regression": 1}  # where the user need not say


def create_model(
    name: str,
    *,
    head_type: str | None = None,
    num_labels: int | None = None,
    horizon: int | None = None,
    pooling: str | None = None,
    **options: Any,
) -> Model:
    """An encoder by name ("bert", "modernbert") or with a head ("bert_with_head", "modernbert_with_head").

    head_type   "mlm", "pretraining", "token", "span", "binary", "multiclass", "multilabel", "regression", "ordinal",
                "embedding" or "forecast" (and "sequence", whose `loss` you name)
    num_labels  classes, labels, ranks, or the numbers that a regression gives (1)
    horizon     how many values a forecast gives
    pooling     "cls" (through BERT's pooler where the config has one), "mean", "max", "attention"; a forecast also
                takes "flatten", all tokens side by side
    config      another config, or the name of a preset

    Options of the loss come by their names: class_weights, positive_weights, label_smoothing, focal_gamma, temperature,
    target_mean, target_scale, huber_delta. With a `window` the encoder reads series instead of words; patch, stride,
    centre, divide, shortcut, mean and scale say how (`glassbert.models.series`). All of it is saved with the model.
    """
    make = MODELS.get(name)
    if make is None:
        raise ConfigError(_unknown("model", name, MODELS))
    if isinstance(options.get("config"), str):
        options["config"] = PRESETS.get(options["config"]) or _raise(_unknown("preset", options["config"], PRESETS))
    given = {option: options.pop(option) for option in SERIES_OPTIONS if option in options}
    config = options.get("config") or DEFAULT_CONFIGS.get(name) or BertConfig.get_base_config()
    if given or (head_type == "forecast" and config.series is None):
        options["config"] = with_series(config, SeriesConfig.from_dict(given))
    if head_type is not None:
        if not name.endswith("_with_head"):
            raise ConfigError(f"{name!r} has no head to choose; 'bert_with_head' and 'modernbert_with_head' have")
        if head_type not in HEAD_TYPES:
            raise ConfigError(_unknown("head type", head_type, HEAD_TYPES))
        options = {**HEAD_TYPES[head_type], **options}
        num_labels = USUAL_LABELS.get(head_type) if num_labels is None else num_labels
        if head_type == "forecast":
            num_labels = _horizon(horizon if num_labels is None else num_labels)
        elif horizon is not None:
            raise ConfigError(f"a {head_type} head looks into no future; horizon belongs to 'forecast'")
        pooling = pooling or HEADS[options["head_type"]].default_pooling
    if num_labels is not None:
        fixed = HEAD_TYPES.get(head_type or "", {}).get("num_labels")
        if fixed is not None and num_labels not in (fixed, fixed + 1):
            raise ConfigError(f"a {head_type} head has one output; num_labels {num_labels} does not fit")
        options.setdefault("num_labels", num_labels)
    if pooling is not None:
        if head_type is None or not hasattr(HEADS[options["head_type"]], "pooling"):
            raise ConfigError(f"pooling makes one vector of a sequence, which a head {head_type!r} does not ask for")
        options["config"] = with_pooling(options.get("config") or DEFAULT_CONFIGS[name], pooling)
    loss_options = {option: options.pop(option) for option in LOSS_OPTIONS if option in options}
    if loss_options:
        options["loss_options"] = loss_options
    return make(**options)


# What a recipe says can be said differently: create_from_registry("sst5-bert", pooling="attention").
on_bert = partial(create_model, "bert_with_head")
on_modernbert = partial(create_model, "modernbert_with_head")
REGISTRY: dict[str, Callable[..., Model]] = {
    "mini-bert": MiniBERT,
    "larger-bert": LargerBERT,
    "larger-bert-tied": partial(LargerBERT, config=LARGER_BERT_CONFIG.replace(tie_word_embeddings=True)),
    "bert-base": partial(on_bert, head_type="mlm"),
    "bert-large": partial(on_bert, head_type="mlm", config="bert-large"),
    "modernbert-base": partial(on_modernbert, head_type="mlm"),
    "modernbert-large": partial(on_modernbert, head_type="mlm", config="modernbert-large"),
    "titanic-bert": partial(on_bert, head_type="binary", config="mini"),
    "sst5-bert": partial(on_bert, head_type="ordinal", num_labels=5, pooling="mean", config="mini"),
    "bert-binary": partial(on_bert, head_type="binary"),
    "bert-qa": partial(on_bert, head_type="span"),
    "mini-forecast": partial(on_bert, head_type="forecast", config="mini", window=36, patch=12, horizon=12),
    "bert-embedding": partial(on_bert, head_type="embedding"),
    "modernbert-binary": partial(on_modernbert, head_type="binary"),
    "modernbert-regression": partial(on_modernbert, head_type="regression", pooling="mean"),
    "modernbert-embedding": partial(on_modernbert, head_type="embedding", loss="contrastive"),
}


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


def _horizon(values: int | None) -> int:
    if not isinstance(values, int) or isinstance(values, bool) or values < 1:
        raise ConfigError(f"a forecast needs a horizon of at least 1, the number of values to forecast; got {values!r}")
    return values


def _unknown(what: str, name: str, known: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown {what} {name!r}{hint} There are {', '.join(known)}."


def _raise(message: str) -> Any:
    raise ConfigError(message)
