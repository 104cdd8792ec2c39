"""The reference of the commands, made from the commands themselves; also the parser for command lines in pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import groupby
from typing import Any

import typer
from rich.text import Text

from glassbert.cli import COMMANDS

EXAMPLE = re.compile(r": {2,}(glassbert .*)")  # "A text:   glassbert predict ..."


@cache
def command(name: str) -> Any:
    """The command `glassbert NAME`, or the group of its subcommands."""
    module = import_module(f"glassbert.cli.{name.replace('-', '_')}")
    if hasattr(module, "app"):
        return typer.main.get_command(module.app)
    app = typer.Typer(add_completion=False)
    app.command(name)(module.run)
    return typer.main.get_command(app)


def leaves(name: str) -> Iterator[tuple[str, Any]]:
    """Every command that takes options, with its whole name."""
    found = command(name)
    if getattr(found, "callback", None) is not None and getattr(found, "params", None):
        yield name, found
    for sub, one in sorted(getattr(found, "commands", {}).items()):
        if not one.hidden:
            yield f"{name} {sub}", one


def parse(arguments: list[str]) -> dict[str, Any]:
    """The values that a command line (without `glassbert`) gives to its command; raises for anything that is wrong."""
    if arguments and arguments[0] in ("--help", "-h", "--version"):
        return {}
    if not arguments or arguments[0] not in COMMANDS:
        raise LookupError(f"there is no command {' '.join(arguments[:1])!r}")
    found, rest = command(arguments[0]), arguments[1:]
    if getattr(found, "commands", {}):
        if not rest and not found.invoke_without_command:
            raise LookupError(f"{arguments[0]} needs one of {', '.join(found.commands)}")
        if not rest or rest[0] in ("--help", "-h"):
            return {}
        _, found, rest = found.resolve_command(found.make_context(arguments[0], [], resilient_parsing=True), rest)
        if found is None:
            raise LookupError(f"there is no command {' '.join(arguments[:2])!r}")
    while "--with" in rest and any("--with" in parameter.opts for parameter in found.params):
        at = rest.index("--with")  # parsing it would execute the file
        rest = rest[:at] + rest[at + 2 :]
    return found.make_context(arguments[0], rest, resilient_parsing="--help" in rest).params


def page() -> str:
    """The page "Commands"."""
    lines = ["# Commands", "", "`glassbert COMMAND --help` shows the same in a terminal.", ""]
    lines += ["| command | what it does |", "|---|---|"]
    lines += [f"| [`{name}`](#glassbert-{name}) | {summary} |" for name, summary in COMMANDS.items()]
    for name in COMMANDS:
        for whole, one in leaves(name):
            lines += ["", f"## `glassbert {whole}`", "", *_description(one), *_options(one)]
        if not any(whole == name for whole, _ in leaves(name)):
            position = lines.index(f"## `glassbert {next(leaves(name))[0]}`")
            lines[position:position] = [f'<a id="glassbert-{name}"></a>', ""]
    return "\n".join(lines) + "\n"


def _description(one: Any) -> list[str]:
    """The docstring of a command: lines that are command lines as code, the rest as text."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", (one.help or one.short_help or "").replace("\b", "")):
        for is_code, group in groupby(paragraph.strip().split("\n"), lambda line: plain(line).startswith("glassbert ")):
            if is_code:
                lines += ["```bash", *map(plain, group), "```", ""]
            else:
                text = EXAMPLE.sub(r": `\1`", "\n".join(group))
                lines += [linked(escape(plain(text))), ""]
    return lines


def _options(one: Any) -> list[str]:
    """A table of the arguments and options of a command under each of its headings."""
    panels: dict[str, list[str]] = {}
    for parameter in one.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        is_option = parameter.opts[0].startswith("-")
        panel = getattr(parameter, "rich_help_panel", None) or ("Options" if is_option else "Arguments")
        names = " ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
        panels.setdefault(panel, []).append(
            f"| {names if is_option else f'`{parameter.name.upper()}`'} | {_kind(parameter)} | {_help(parameter)} |"
        )
    lines: list[str] = []
    for panel, rows in panels.items():
        lines += [f"**{panel}**", "", '<div class="options" markdown>', "", "| | | |", "|---|---|---|", *rows, ""]
        lines += ["</div>", ""]
    return lines


def _kind(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    descriptor = getattr(parameter, "type_descriptor", None)
    shown = str(descriptor.annotation if descriptor is not None else getattr(parameter.type, "name", parameter.type))
    for kind, word in (("Path", "path"), ("float", "number"), ("int", "whole number"), ("bool", "yes or no")):
        if kind in shown:
            return word
    return "text"


def _help(parameter: Any) -> str:
    text = plain(parameter.help or "")
    default = parameter.default
    shown = getattr(parameter, "show_default", True) and default not in (None, False, [], (), "", ...)
    if shown and not callable(default):
        text += f" (default: {'yes' if default is True else getattr(default, 'value', default)})"
    if parameter.required:
        text += " Required."
    return linked(escape(text.strip())) or " "


def linked(text: str) -> str:
    """Names of pages, such as docs/recipes.md, as links from a page of the reference."""
    return re.sub(r"`?docs/([\w-]+)\.md`?", r"[\1](../\1.md)", text)


def plain(text: str) -> str:
    """Without Rich's markup, in one line."""
    return " ".join(Text.from_markup(text).plain.split())


def escape(text: str) -> str:
    """Text that Markdown leaves as it is; what stands in backquotes stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([\\*_\[\]<>$#])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")
