"""Translation between the fields of our config and those of a Hugging Face config.json, in both directions.

A family has one rule for each of our fields that its config.json can express. A missing key means the default of
Hugging Face, which is also the default of our config class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from glassbert.errors import CheckpointError
from glassbert.models.config import EncoderConfig

MISSING = object()  # returned by a rule if the file does not have its key

# Their name -> ours. Of several names for one activation the first is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "tanh": "tanh",
}

Fields = Mapping[str, Any]


class Rule(NamedTuple):
    """How one of our fields is read from a config.json, and how it is written."""

    ours: str
    theirs: tuple[str, ...]
    read: Callable[[Fields], Any]
    write: Callable[[EncoderConfig], dict[str, Any]]


def same(ours: str, theirs: str | None = None) -> Rule:
    """The same value, under the same or another name."""
    key = theirs or ours
    return Rule(ours, (key,), lambda fields: fields.get(key, MISSING), lambda config: {key: getattr(config, ours)})


def follows(ours: str, theirs: str) -> Rule:
    """Read from `theirs` and never written: another of our fields writes that key."""
    return same(ours, theirs)._replace(write=lambda config: {})


def falls_back(ours: str, theirs: str, fallback: str) -> Rule:
    """Read from `theirs`, or from `fallback` if `theirs` is null or missing."""

    def read(fields: Fields) -> Any:
        value = fields.get(theirs)
        return fields.get(fallback, MISSING) if value is None else value

    return Rule(ours, (theirs,), read, lambda config: {theirs: getattr(config, ours)})


def translated(
    ours: str, theirs: str, read: Callable[[Fields], Any], write: Callable[[Any], Any] = lambda value: value
) -> Rule:
    """Another value under another name: `read` takes all their fields, `write` the value of ours."""
    return Rule(ours, (theirs,), read, lambda config: {theirs: write(getattr(config, ours))})


def activation(theirs: str, *also_written: str) -> Rule:
    def read(fields: Fields) -> Any:
        return ACTIVATIONS[_known_activation(fields, theirs)] if theirs in fields else MISSING

    def write(config: EncoderConfig) -> dict[str, Any]:
        names = [theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation]
        return dict.fromkeys((theirs, *also_written), names[0]) if names else {}

    return Rule("activation", (theirs, *also_written), read, write)


def named_activation(ours: str, theirs: str, default: str) -> Rule:
    """An activation of a part; `default` is theirs if the key is missing."""

    def read(fields: Fields) -> Any:
        name = _known_activation({theirs: default, **fields}, theirs)
        return ACTIVATIONS[name]

    def write(config: EncoderConfig) -> dict[str, Any]:
        names = [name for name, known in ACTIVATIONS.items() if known == getattr(config, ours)]
        return {theirs: names[0]} if names else {}

    return Rule(ours, (theirs,), read, write)


def _known_activation(fields: Fields, key: str) -> str:
    name = fields[key]
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise CheckpointError(f"{key} is {name!r}; GlassBERT has {', '.join(ACTIVATIONS)}")
    return name


# ---- ModernBERT: local and global layers, and the base of rotary positions -------------------------------------------
#
# Files of transformers 4 have global_attn_every_n_layers, global_rope_theta and local_rope_theta; those of
# transformers 5 have layer_types and rope_parameters, which take precedence. We write both.

GLOBAL, LOCAL = "full_attention", "sliding_attention"


def local_window() -> Rule:
    """Their window is the total width, ours is the width to one side."""

    def read(fields: Fields) -> Any:
        if "local_attention" not in fields:
            return MISSING
        width = fields["local_attention"]
        if not isinstance(width, int) or width < 2:
            raise CheckpointError(f"local_attention must be an integer of at least 2, got {width!r}")
        return width // 2

    return Rule(
        "local_window",
        ("local_attention",),
        read,
        lambda config: {} if config.local_window is None else {"local_attention": 2 * config.local_window},
    )


def global_attention_every() -> Rule:
    def read(fields: Fields) -> Any:
        every = fields.get("global_attn_every_n_layers", MISSING)
        types = fields.get("layer_types")
        if types is None:
            return every
        layers = fields.get("num_hidden_layers", 22)
        if not isinstance(types, list) or len(types) != layers or any(kind not in (GLOBAL, LOCAL) for kind in types):
            raise CheckpointError(
                f"layer_types must name {GLOBAL!r} or {LOCAL!r} for each of {layers} layers, got {types!r}"
            )
        if isinstance(every, int) and every > 0 and _layer_types(layers, every) == types:
            return every
        later = [i for i, kind in enumerate(types) if i and kind == GLOBAL]
        every = later[0] if later else max(1, layers)
        if _layer_types(layers, every) != types:
            raise CheckpointError(
                f"layer_types {types!r} are not of the form 'every n-th layer from the first is global', "
                f"the only one that GlassBERT supports"
            )
        return every

    def write(config: EncoderConfig) -> dict[str, Any]:
        types = [GLOBAL if config.window_of(i) is None else LOCAL for i in range(config.num_hidden_layers)]
        return {"layer_types": types, "global_attn_every_n_layers": config.global_attention_every}

    return Rule("global_attention_every", ("layer_types", "global_attn_every_n_layers"), read, write)


def _layer_types(layers: int, every: int) -> list[str]:
    return [LOCAL if i % every else GLOBAL for i in range(layers)]


def rope_theta(ours: str, kind: str) -> Rule:
    def read(fields: Fields) -> Any:
        settings = _rope_settings(fields, kind)
        if "rope_theta" in settings:
            return settings["rope_theta"]
        if kind == LOCAL and fields.get(ours, MISSING) is None:
            return fields.get("global_rope_theta", MISSING)
        return fields.get(ours, MISSING)

    def write(config: EncoderConfig) -> dict[str, Any]:
        settings = {"rope_theta": getattr(config, ours), "rope_type": "default"}
        return {ours: getattr(config, ours), "rope_parameters": {kind: settings}}

    return Rule(ours, (ours, "rope_parameters"), read, write)


def _rope_settings(fields: Fields, kind: str) -> Mapping[str, Any]:
    kinds = fields.get("rope_parameters") or {}
    if not isinstance(kinds, dict) or any(key not in (GLOBAL, LOCAL) for key in kinds):
        raise CheckpointError(f"rope_parameters must have the entries {GLOBAL!r} and {LOCAL!r}, got {kinds!r}")
    settings = kinds.get(kind) or {}
    if not isinstance(settings, dict):
        raise CheckpointError(f"rope_parameters[{kind!r}] must be an object, got {settings!r}")
    rope_type = settings.get("rope_type", settings.get("type", "default"))
    if rope_type != "default":
        raise CheckpointError(
            f"rope_parameters[{kind!r}] has the rope_type {rope_type!r}; GlassBERT has only 'default'"
        )
    return settings


# ---- reading and writing by rules ------------------------------------------------------------------------------------


def read_fields(rules: tuple[Rule, ...], fields: Fields) -> dict[str, Any]:
    """The fields of our config that this config.json sets."""
    values = ((rule.ours, rule.read(fields)) for rule in rules)
    return {name: value for name, value in values if value is not MISSING}


def write_fields(rules: tuple[Rule, ...], config: EncoderConfig) -> dict[str, Any]:
    """The keys of a config.json for this config."""
    written: dict[str, Any] = {}
    for rule in rules:
        for key, value in rule.write(config).items():
            both = isinstance(value, dict) and isinstance(written.get(key), dict)
            written[key] = {**written[key], **value} if both else value
    return written
