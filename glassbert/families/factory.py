"""Create models by name: any encoder with any head, and a registry of recipes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from glassbert.checkpoints.family import FAMILIES, PRESETS
from glassbert.errors import ConfigError
from glassbert.families.bert import LARGER_BERT_CONFIG, BertWithHead, LargerBERT, MiniBERT
from glassbert.layers.registry import unknown
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS, LOSS_OPTIONS, head_names, resolve_head, with_pooling
from glassbert.models.model import Model
from glassbert.models.series import SERIES_OPTIONS, SeriesConfig, with_series

WITH_HEAD = "_with_head"
NAMED: dict[str, Callable[..., Model]] = {"mini-bert": MiniBERT, "larger-bert": LargerBERT}


def model_names() -> list[str]:
    """The names for `create_model`: every family with and without a head, "mini-bert" and "larger-bert"."""
    families = [name for family in FAMILIES for name in (family, family + WITH_HEAD)]
    return [*families, *NAMED]


def default_config(family: str) -> EncoderConfig:
    """The config of the base size of a family."""
    config_class = FAMILIES[family].config_class
    return config_class.get_base_config() if hasattr(config_class, "get_base_config") else config_class()


def create_model(
    name: str,
    *,
    head: str | None = None,
    head_type: str | None = None,
    num_labels: int | None = None,
    horizon: int | None = None,
    pooling: str | None = None,
    **options: Any,
) -> Model:
    """Create an encoder ("bert", "modernbert"), or one with a head ("bert_with_head", "modernbert_with_head").

    head        "mlm", "causal", "pretraining", "token", "span", "binary", "multiclass", "multilabel", "regression",
                "ordinal", "embedding", "forecast", or "sequence" with a `loss` of your choice; without it that of the
                family's pretraining. `head_type` is the same argument
    num_labels  number of classes, labels, ranks, or outputs of a regression (1)
    horizon     number of values of a forecast
    pooling     "cls" (through BERT's pooler if the config has one), "mean", "max", "attention", "last"; for a forecast
                also "flatten", all tokens concatenated
    config      a config, or the name of a preset

    Options of the loss are keyword arguments: class_weights, positive_weights, label_smoothing, focal_gamma,
    temperature, target_mean, target_scale, huber_delta. With a `window` the encoder reads series instead of words;
    patch, stride, centre, divide, shortcut, logarithm, mean and scale are its options (`glassbert.models.series`). All
    options are saved with the model.
    """
    if name not in model_names():
        raise ConfigError(unknown("model", name, model_names()))
    if head is not None and head_type is not None and head != head_type:
        raise ConfigError(f"head is {head!r} and head_type {head_type!r}; they are the same argument, so give only one")
    head = head if head is not None else head_type
    if isinstance(options.get("config"), str):
        if options["config"] not in PRESETS:
            raise ConfigError(unknown("preset", options["config"], PRESETS))
        options["config"] = PRESETS[options["config"]]
    loss_options = {option: options.pop(option) for option in LOSS_OPTIONS if option in options}
    if loss_options:
        options["loss_options"] = loss_options
    if name in NAMED:
        if head is not None or pooling is not None or num_labels is not None:
            raise ConfigError(
                f"{name!r} has the head 'mlm'; for another head use create_model('bert_with_head', config='mini')"
            )
        return NAMED[name](**options)
    family = name.removesuffix(WITH_HEAD)
    config = options.pop("config", None) or default_config(family)
    series = {option: options.pop(option) for option in SERIES_OPTIONS if option in options}
    if series or (head == "forecast" and config.series is None):
        config = with_series(config, SeriesConfig.from_dict(series))
    if not name.endswith(WITH_HEAD):
        if head is not None or pooling is not None:
            raise ConfigError(f"{name!r} has no head; use {family + WITH_HEAD!r}")
        return FAMILIES[family].class_for(config, None)(config, **options)
    head = head or FAMILIES[family].head
    if head not in head_names():
        raise ConfigError(unknown("head", head, head_names()))
    if head == "forecast":
        num_labels = _horizon(horizon if num_labels is None else num_labels)
    elif horizon is not None:
        raise ConfigError(f"a {head} head makes no forecast; horizon is an argument of the head 'forecast'")
    kind = resolve_head(head, num_labels, options.get("loss")).kind
    if pooling is not None and not hasattr(HEADS[kind], "pooling"):
        raise ConfigError(f"pooling makes one vector of a sequence, which the head {head!r} does not use")
    pooling = pooling or HEADS[kind].default_pooling
    if pooling is not None:
        config = with_pooling(config, pooling)
    return BertWithHead(config, head, 0 if num_labels is None else num_labels, **options)


# Options of a recipe can be replaced: create_from_registry("sst5-bert", pooling="attention").
on_bert = partial(create_model, "bert_with_head")
on_modernbert = partial(create_model, "modernbert_with_head")
REGISTRY: dict[str, Callable[..., Model]] = {
    "mini-bert": MiniBERT,
    "larger-bert": LargerBERT,
    "larger-bert-tied": partial(LargerBERT, config=LARGER_BERT_CONFIG.replace(tie_word_embeddings=True)),
    "bert-base": partial(on_bert, head="mlm"),
    "bert-large": partial(on_bert, head="mlm", config="bert-large"),
    "modernbert-base": partial(on_modernbert, head="mlm"),
    "modernbert-large": partial(on_modernbert, head="mlm", config="modernbert-large"),
    "titanic-bert": partial(on_bert, head="binary", config="mini"),
    "sst5-bert": partial(on_bert, head="ordinal", num_labels=5, pooling="mean", config="mini"),
    "bert-binary": partial(on_bert, head="binary"),
    "bert-qa": partial(on_bert, head="span"),
    "mini-forecast": partial(on_bert, head="forecast", config="mini", window=36, patch=12, horizon=12),
    "bert-embedding": partial(on_bert, head="embedding"),
    "modernbert-binary": partial(on_modernbert, head="binary"),
    "modernbert-regression": partial(on_modernbert, head="regression", pooling="mean"),
    "modernbert-embedding": partial(on_modernbert, head="embedding", loss="contrastive"),
}


def create_from_registry(name: str, **options: Any) -> Model:
    """Create a model by the name of a recipe; `register` adds recipes."""
    if name not in REGISTRY:
        raise ConfigError(unknown("recipe", name, REGISTRY))
    return REGISTRY[name](**options)


def register(name: str, recipe: Callable[..., Model]) -> None:
    """Make `recipe` available as create_from_registry(name)."""
    if name in REGISTRY:
        raise ConfigError(f"there is already a recipe {name!r}; choose another name")
    REGISTRY[name] = recipe


def _horizon(values: int | None) -> int:
    if not isinstance(values, int) or isinstance(values, bool) or values < 1:
        raise ConfigError(f"a forecast needs a horizon of at least 1, the number of values to forecast; got {values!r}")
    return values
