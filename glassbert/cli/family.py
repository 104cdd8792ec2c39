"""`glassbert family`: the members beside BERT, or one of them with its formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from glassbert.cli.options import AsJson
from glassbert.cli.output import print_json
from glassbert.cli.with_option import Extensions
from glassbert.evaluation.family import BATCH, LENGTH, REFERENCE, Member, as_dict, member, members
from glassbert.training.objectives import Objectives


def run(
    name: Annotated[str | None, typer.Argument(help="A member, such as albert or roberta. Without it: all.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a Markdown page about all members, with pictures."),
    ] = None,
    as_json: AsJson = False,
    extensions: Extensions = None,
) -> None:
    """Compare BERT's descendants: parameters, FLOPs a token, memory, and what differs from BERT.

    With a name, explain one member with its formulas. Sizes are computed from the configs.

    glassbert family
    glassbert family albert
    """
    console = Console(highlight=False)
    if output is not None:
        from glassbert.evaluation.family_page import write_page

        written = write_page(output)
        console.print(
            f"{len(written)} files written: {output} and the pictures beside it", soft_wrap=True, markup=False
        )
        return
    if name is None:
        every = members()
        if as_json:
            print_json([as_dict(one) for one in every])
        else:
            show_all(console, every)
        return
    one = member(name)
    if as_json:
        print_json(as_dict(one))
    else:
        show_one(console, one)


def show_all(console: Console, every: list[Member]) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("member", no_wrap=True)
    for column in ("parameters", "FLOPs a token", "memory"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("differs from BERT in")
    for one in every:
        text = "" if one.name == REFERENCE else ", ".join(one.family.differences)
        size = one.base
        table.add_row(
            one.title,
            f"{size.parameters / 1e6:,.1f} M",
            f"{size.flops_per_token / 1e6:,.0f} M",
            f"{size.memory / 2**30:,.1f} GiB",
            text,
        )
    console.print(table)
    console.print(
        Text(
            f"Base sizes with the head of their pretraining; a training step of {BATCH} × {LENGTH} tokens in float32 "
            f"with AdamW. One member: glassbert family NAME, one of {', '.join(one.name for one in every)}.",
            style="dim",
        )
    )


def show_one(console: Console, one: Member) -> None:
    family = one.family
    console.print(Text(one.title, style="bold"))
    console.print(Text(f"{family.paper}.\n", style="dim"))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for aspect, text in family.differences.items():
        table.add_row(aspect, text)
    console.print(table)
    console.print()
    console.print(Text(family.formulas.rstrip() + "\n"), soft_wrap=True)
    sizes = Table(box=box.SIMPLE, pad_edge=False)
    sizes.add_column("size", no_wrap=True)
    for column in ("parameters", "FLOPs a token", "memory"):
        sizes.add_column(column, justify="right", no_wrap=True)
    for size in (one.base, one.mini):
        sizes.add_row(
            size.preset,
            f"{size.parameters:,}",
            f"{size.flops_per_token / 1e6:,.1f} M",
            f"{size.memory / 2**20:,.0f} MiB",
        )
    console.print(sizes)
    console.print(Text(f"Presets    {', '.join(family.presets)}"))
    console.print(Text(f"Objective  {family.objective}; tokenizer {family.tokenizer}"))
    teacher = " --teacher FOLDER" if Objectives.parse(family.objective).taught else ""
    console.print(Text(f"Train it   glassbert pretrain --family {one.name}{teacher} --minutes 5"))
