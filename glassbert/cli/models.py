"""`glassbert models`: the models, heads and recipes that can be created by name, with their sizes."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from glassbert.cli.options import AsJson
from glassbert.cli.output import print_json
from glassbert.families.bert import MINI_BERT_CONFIG
from glassbert.families.factory import REGISTRY, create_from_registry, create_model, model_names
from glassbert.models.heads import HEADS, SHORT_NAMES, head_names, resolve_head
from glassbert.models.model import Model

COUNT_ONLY: dict[str, Any] = {"engine": "numpy", "initialize": False}  # parameters are only counted
EXAMPLE_LABELS = 3
ENCODER = ("embeddings.", "layers.", "final_norm.")


def run(as_json: AsJson = False) -> None:
    """Show the models that `create_model` makes, the heads they can have, and the recipes of `create_from_registry`.

    Parameter counts are computed from the config. Heads are counted on a Mini-BERT, with three labels if the
    number is free.
    """
    tables = {"models": models(), "heads": heads(), "recipes": recipes()}
    if as_json:
        print_json(tables)
    else:
        show(Console(), tables)


def models() -> list[dict[str, Any]]:
    return [describe(name, create_model(name, **COUNT_ONLY)) for name in model_names()]


def heads() -> list[dict[str, Any]]:
    """All head types and the parameters they add to an encoder."""
    rows = []
    for name in head_names():
        labels = None if "num_labels" in SHORT_NAMES.get(name, {}) else EXAMPLE_LABELS
        series: dict[str, Any] = {"window": 36, "patch": 12} if name == "forecast" else {}
        fitting = MINI_BERT_CONFIG.replace(**HEADS[resolve_head(name).kind].fits)
        model = create_model("bert_with_head", head=name, num_labels=labels, config=fitting, **series, **COUNT_ONLY)
        assert model.head is not None
        rows.append({
            "name": name,
            "class": type(model.head).__name__,
            "loss": model.head.loss_name,
            "pooling": getattr(model.head, "pooling", None),
            "parameters": sum(math.prod(p.shape) for p in model.specification if not p.name.startswith(ENCODER)),
        })  # fmt: skip
    return rows


def recipes() -> list[dict[str, Any]]:
    return [describe(name, create_from_registry(name, **COUNT_ONLY)) for name in REGISTRY]


def describe(name: str, model: Model) -> dict[str, Any]:
    config = model.config
    return {
        "name": name,
        "class": type(model).__name__,
        "family": config.family,
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "size": f"{config.num_hidden_layers} × {config.hidden_size:,}",
        "head": None if model.head is None else model.head.kind,
        "loss": None if model.head is None else model.head.loss_name,
        "parameters": model.get_parameter_count(),
    }


TITLES = {
    "models": "create_model(name, head=..., num_labels=..., ...)",
    "heads": "head=..., on a Mini-BERT with three labels",
    "recipes": "create_from_registry(name); register(name, recipe) adds a recipe",
}


COLUMNS = ("name", "size", "pooling", "head", "loss", "parameters")  # that fit into 80 characters


def show(console: Console, tables: dict[str, list[dict[str, Any]]]) -> None:
    for key, rows in tables.items():
        table = Table(title=TITLES[key], title_justify="left", title_style="bold", pad_edge=False, box=None)
        shown = [column for column in COLUMNS if column in rows[0]]
        for column in shown:
            table.add_column(column, justify="right" if isinstance(rows[0][column], int) else "left", no_wrap=True)
        for row in rows:
            table.add_row(*(_cell(row[column]) for column in shown))
        console.print(table)
        console.print()


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
