"""Command-line options made from the fields of a settings dataclass.

A field is defined once, in the dataclass. Flag, type, help text and TOML key follow from it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from glassbert.checkpoints.family import PRESETS
from glassbert.cli.options import chosen, counted
from glassbert.models.config import CHOICES, PARTS, EncoderConfig, activations
from glassbert.training.settings import CHECKS, CONFIG_FIELDS, TrainingSettings
from glassbert.training.settings_base import Check, Names

ALIASES = {"batch": "--batch-size", "learning_rate": "--lr"}
TYPES: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool, "tuple[str, ...]": list[str]}


def with_settings(
    command: Callable[..., None], options: Callable[[], Iterator[inspect.Parameter]] | None = None
) -> Callable[..., None]:
    """Add an option for every field to a command whose last parameter is `**settings`.

    `options` yields the options (default: those of pretraining). `settings` receives only the options that were given.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind != p.VAR_KEYWORD]
    parameters = [*own, *(options or pretraining_options)()]

    def run(**given: Any) -> None:
        names = {parameter.name for parameter in own}
        chosen = {name: value for name, value in given.items() if name not in names and value not in (None, [])}
        command(**{name: given[name] for name in names}, **chosen)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = command.__doc__
    return run


def options_of(
    settings: type[Any],
    checks: Mapping[str, Check] | None = None,
    default_of: str = "default",
    only: Sequence[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Iterator[inspect.Parameter]:
    """An option for every field that has a help text, or only for some of them.

    `checks` says which fields have names as values; `defaults` are those of a command that differ from the fields'.
    """
    own = vars(settings).get("__annotations__", {})
    named = {name: valid.names for name, (_, valid) in (checks or {}).items() if isinstance(valid, Names)}
    choices: dict[str, Collection[str]] = {"preset": PRESETS, **named}
    for field in sorted(dataclasses.fields(settings), key=lambda field: field.name not in own):  # inherited ones last
        if "help" in field.metadata and (only is None or field.name in only):
            value = (defaults or {}).get(field.name, field.default)
            shown = ", ".join(value) if isinstance(value, tuple) else value
            default = "" if shown in (None, "", False) else f" ({default_of}: {shown})"
            text = field.metadata["help"] + default
            yield _option(field, text, field.metadata["panel"], choices.get(field.name, ()))


def pretraining_options() -> Iterator[inspect.Parameter]:
    """An option for every field of the pretraining settings and of the model config."""
    yield from options_of(TrainingSettings, CHECKS, "default for Mini")
    choices: dict[str, Collection[str]] = {**CHOICES, **PARTS, "activation": activations()}
    defaults = {field.name: field.default for field in dataclasses.fields(EncoderConfig)}
    for name, field in CONFIG_FIELDS.items():
        yield _option(field, f"BERT-base: {defaults[name]}", "Model config", choices.get(name, ()))


def _option(field: dataclasses.Field[Any], text: str, panel: str, choices: Collection[str]) -> inspect.Parameter:
    kind = TYPES[str(field.type).removesuffix(" | None")]
    flag = "--" + field.name.replace("_", "-")
    flags = (f"{flag}/--no-{flag[2:]}",) if kind is bool else (flag, *filter(None, [ALIASES.get(field.name)]))
    shared: dict[str, Any] = {"rich_help_panel": panel, "show_default": False}
    if kind is int:
        option = counted(text, *flags, least=None, **shared)
    elif choices:
        option = chosen(text, choices, *flags, **shared)
    else:
        shared["metavar"] = {float: "NUMBER", bool: None}.get(kind, "TEXT")
        option = typer.Option(*flags, help=text, **shared)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )
