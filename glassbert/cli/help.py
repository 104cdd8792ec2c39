"""Help pages: plain paragraphs and a list of options, wrapped to the width of the terminal.

The docstring of a command is its help. Lines of a paragraph are joined and wrapped again; a line that begins with
`glassbert` is an example and stays a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

NAMES_WIDTH = 30
WIDE_ENOUGH = 72  # columns, for names and texts side by side
EXAMPLE = "glassbert "


class Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        show_help(self, ctx, Console(highlight=False))


class Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        show_help(self, ctx, Console(highlight=False))
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(200)) for name, one in commands if one is not None and not one.hidden]
        show_list("Commands", rows, Console(highlight=False))


def new_app(**options: Any) -> typer.Typer:
    """An application whose help is written by this module. Its commands are added with `command(app)`."""
    return typer.Typer(**{
        "cls": Group,
        "rich_markup_mode": None,
        "pretty_exceptions_enable": False,
        "add_completion": False,
        "no_args_is_help": True,
        **options,
    })  # fmt: skip


def show_help(command: Any, ctx: Any, console: Console) -> None:
    """Print usage, description, arguments and options of a command."""
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    console.print(Text.assemble(("Usage: ", "bold"), usage))
    for paragraph in paragraphs(command.help or ""):
        console.print()
        for text in paragraph:
            style, indent = ("bold", 2) if text.startswith(EXAMPLE) else ("", 0)
            console.print(Padding(Text(text, style), (0, 0, 0, indent), expand=False))
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panel = getattr(parameter, "rich_help_panel", None)
            sections.setdefault(panel if isinstance(panel, str) else kind, []).append(record)
    for title, rows in sections.items():
        show_list(title, rows, console)


def paragraphs(help: str) -> Iterator[list[str]]:
    """The paragraphs of a docstring, each as lines to be wrapped: running text is one line, every example another."""
    for block in "\n".join(line.strip() for line in help.strip().split("\n")).split("\n\n"):
        lines: list[str] = []
        for line in filter(None, block.split("\n")):
            joins = bool(lines) and not line.startswith(EXAMPLE) and not lines[-1].startswith(EXAMPLE)
            if joins:
                lines[-1] += " " + line
            else:
                lines.append(line)
        if lines:
            yield lines


def show_list(title: str, rows: Iterable[tuple[str, str]], console: Console) -> None:
    """Names and their texts: side by side where there is room, else one below the other."""
    console.print()
    console.print(Text(title, "bold"))
    if console.width < WIDE_ENOUGH:
        for name, text in rows:
            console.print(Padding(Text(name, "cyan"), (0, 0, 0, 2), expand=False))
            if text:
                console.print(Padding(Text(text), (0, 0, 0, 4), expand=False))
        return
    rows = list(rows)
    width = min(NAMES_WIDTH, max((len(name) for name, _ in rows), default=0))
    table = _grid(width)
    for name, text in rows:
        if len(name) > width:  # a line of its own, with the text below it
            console.print(Padding(table, (0, 0, 0, 2), expand=False))
            console.print(Padding(Text(name, "cyan"), (0, 0, 0, 2), expand=False))
            table, name = _grid(width), ""
        table.add_row(Text(name, "cyan"), Text(text))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _grid(width: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=width)
    table.add_column()
    return table
