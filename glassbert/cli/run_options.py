"""Options of `glassbert pretrain`, made from the fields of the settings and of the model's config.

A field is written once, in its dataclass; the flag, its type, its help and the key of the TOML file follow from it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from glassbert.models.config import EncoderConfig
from glassbert.training.settings import CONFIG_FIELDS, TrainingSettings

TYPES: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool, "tuple[str, ...]": list[str]}
NOT_FLAGS = ("model",)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, whose last parameter is `**settings`, an option for every field."""
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.kind != p.VAR_KEYWORD]
    parameters = [*own, *_options()]

    def run(**given: Any) -> None:
        names = {parameter.name for parameter in own}
        chosen = {name: value for name, value in given.items() if name not in names and value not in (None, [])}
        command(**{name: given[name] for name in names}, **chosen)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = command.__doc__
    return run


def _options() -> Iterator[inspect.Parameter]:
    for field in dataclasses.fields(TrainingSettings):
        if field.name not in NOT_FLAGS:
            default = "" if field.default in (None, "", ()) else f" [dim](default for Mini: {field.default})[/]"
            yield _option(field, field.metadata["help"] + default, field.metadata["panel"])
    defaults = {field.name: field.default for field in dataclasses.fields(EncoderConfig)}
    for name, field in CONFIG_FIELDS.items():
        yield _option(field, f"[dim]BERT-base: {defaults[name]}[/]", "Model config, field by field")


def _option(field: dataclasses.Field[Any], text: str, panel: str) -> inspect.Parameter:
    kind = TYPES[str(field.type).removesuffix(" | None")]
    flag = "--" + field.name.replace("_", "-")
    declaration = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
    option = typer.Option(declaration, help=text, rich_help_panel=panel, show_default=False)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )
