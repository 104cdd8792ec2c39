"""`glassbert models`: every name with its computed size."""

from __future__ import annotations

import json

from rich.console import Console

from glassbert import create_from_registry
from glassbert.cli import models
from glassbert.families.factory import REGISTRY, model_names
from glassbert.models.heads import head_names


def test_names_and_sizes(capsys):
    models.run(as_json=True)
    tables = json.loads(capsys.readouterr().out)
    names = {key: [row["name"] for row in rows] for key, rows in tables.items()}
    assert names == {"models": model_names(), "heads": head_names(), "recipes": list(REGISTRY)}
    sizes = {row["name"]: row["parameters"] for row in tables["recipes"]}
    for name in ("mini-bert", "titanic-bert", "sst5-bert"):
        assert sizes[name] == create_from_registry(name, engine="numpy").get_parameter_count()
    added = {row["name"]: row["parameters"] for row in tables["heads"]}
    assert added["binary"] == 192 + 1 and added["ordinal"] == 2 * (192 + 1) and added["embedding"] == 0


def test_tables_fit_80_characters():
    console = Console(width=80)
    with console.capture() as capture:
        models.show(console, {"heads": models.heads(), "recipes": models.recipes()})
    assert "…" not in capture.get() and "395,881,664" in capture.get()
