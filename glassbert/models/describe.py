"""Tables of a model's parameters, shapes, memory and FLOPs, computed from its config."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from glassbert.models.flops import forward_flops
from glassbert.models.memory import training_numbers

BATCH_SIZES = (1, 8, 32, 128)


def describe(model: Any, batch_size: int = 32, length: int | None = None) -> str:
    """Print the tables and return them as plain text."""
    length = min(length or model.config.max_length, model.config.max_length)
    tables = Group(
        _headline(model),
        _parameter_table(model),
        _memory_table(model, length),
        _arithmetic_table(model, batch_size, length),
    )
    Console().print(tables)
    plain = Console(file=io.StringIO(), width=100, no_color=True)
    plain.print(tables)
    return plain.file.getvalue()  # type: ignore[attr-defined]


def count(number: float) -> str:
    """Format a number: 12,345,678 gives 12.3 M."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:,.0f}"


def mebibytes(bytes_: float) -> str:
    return f"{bytes_ / 2**30:,.2f} GiB" if bytes_ >= 2**30 else f"{bytes_ / 2**20:,.1f} MiB"


def _headline(model: Any) -> Text:
    config = model.config
    head = f" with head '{model.head.kind}'" if model.head else ""
    return Text(
        f"{type(model).__name__}{head}: {config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{config.num_attention_heads} heads of {config.head_size}, {model.get_parameter_count():,} parameters",
        style="bold",
    )


def _rows(model: Any) -> list[tuple[str, str, int]]:
    """Name, shape and number of parameters; equal parameters of all layers are one row."""
    rows: dict[str, list[Any]] = {}
    for name, shape in model.layout.shapes.items():
        name = re.sub(r"(^|\.)layers\.\d+\.", r"\1layers.*.", name)
        entry = rows.setdefault(name, [" × ".join(f"{n:,}" for n in shape), 0, 0])
        entry[1] += int(np.prod(shape, dtype=np.int64))
        entry[2] += 1
    return [(name, f"{n} of {s}" if n > 1 else s, total) for name, (s, total, n) in rows.items()]


def _parameter_table(model: Any) -> Table:
    table = Table(title="Parameters", box=box.SIMPLE, title_justify="left")
    table.add_column("name")
    table.add_column("shape")
    table.add_column("number", justify="right")
    table.add_column("share", justify="right")
    total = model.get_parameter_count()
    for name, shape, number in _rows(model):
        table.add_row(name, shape, f"{number:,}", f"{number / total:.1%}")
    table.add_section()
    table.add_row("all", "", f"{total:,}", "100 %")
    return table


def _memory_table(model: Any, length: int) -> Table:
    number = 8 if model.engine.dtype_name == "float64" else 4
    activation = model.engine.bytes_kept
    weights = model.get_parameter_count() * number
    title = (
        f"Memory of a training step at {length} tokens: weights {mebibytes(weights)}, gradients {mebibytes(weights)}, "
        f"optimizer {mebibytes(2 * weights)}, and"
    )
    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for column in ("batch", "activations", "all together", "all, with checkpointing"):
        table.add_column(column, justify="right")
    head = model.head.kind if model.head else None
    for batch in BATCH_SIZES:
        kept, less = (
            activation * training_numbers(model.config, batch, length, head, checkpointing, model.engine.threads)
            for checkpointing in (False, True)
        )
        table.add_row(str(batch), *(mebibytes(x) for x in (kept, 4 * weights + kept, 4 * weights + less)))
    return table


def _arithmetic_table(model: Any, batch: int, length: int) -> Table:
    head = None if model.head is None else model.head.kind
    labels = model.head.outputs if model.head else 0
    rows = round(batch * length * model.head.scored_share) if head is not None and model.head.decodes else None
    flops = forward_flops(model.config, batch, length, head=head, num_labels=labels, scored_rows=rows)
    total = sum(flops.values())
    scored = f", {rows:,} tokens scored" if rows else ""
    table = Table(title=f"Arithmetic of {batch} × {length} tokens{scored}", box=box.SIMPLE, title_justify="left")
    table.add_column("part")
    table.add_column("forward FLOPs", justify="right")
    table.add_column("share", justify="right")
    for name, number in flops.items():
        table.add_row(name, count(number), f"{number / total:.1%}")
    table.add_section()
    table.add_row("forward", count(total), "100 %")
    table.add_row("forward and backward", count(3 * total), "")
    return table
