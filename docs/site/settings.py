"""The reference of the settings, made from the dataclasses that hold them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import tokenize
from io import StringIO
from typing import Any

from docs.site.commands import escape, linked, plain
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.forecasting.settings import ForecastSettings
from glassbert.models.config import EncoderConfig
from glassbert.text.corpus.settings import Settings as CorpusSettings
from glassbert.training.settings import TrainingSettings

# Heading, class, and where the settings are given.
INTRODUCTION = "Every setting with its default. A wrong name or value is an error that says which are right."
CLASSES: list[tuple[str, Any, str]] = [
    (
        "Pretraining",
        TrainingSettings,
        "Flags of `glassbert pretrain`, `plan`, `scale`, `adapt` and `distill` (`mask_rate` is `--mask-rate`), keys of "
        "the TOML file of `--settings`, and arguments of `glassbert.Trainer`. `settings.json` in a run holds them.",
    ),
    (
        "Fine-tuning",
        FineTuningSettings,
        "Flags of `glassbert finetune` and `distill`, and arguments of `glassbert.finetune`.",
    ),
    ("Forecasts", ForecastSettings, "Flags of `glassbert forecast` and arguments of `glassbert.forecast`."),
    (
        "Building a corpus",
        CorpusSettings,
        "Arguments of `glassbert.build_corpus`, and flags of `glassbert corpus build`.",
    ),
    (
        "The config of an encoder",
        EncoderConfig,
        "Fields of `config.json` in our own layout, of `glassbert.EncoderConfig`, and flags of `glassbert pretrain`. "
        "Shown are the defaults of every encoder; [a preset](../presets.md) and a family have their own.",
    ),
]


def page() -> str:
    """The page "Settings"."""
    lines = [
        "# Settings",
        "",
        INTRODUCTION,
    ]
    for title, settings, where in CLASSES:
        lines += ["", f"## {title}", "", where, ""]
        comments = trailing_comments(settings)
        panels: dict[str, list[str]] = {}
        for field in dataclasses.fields(settings):
            text = plain(field.metadata["help"]) if "help" in field.metadata else comments.get(field.name, "")
            row = f"| `{field.name}` | {_default(field)} | {linked(escape(text))} |"
            panels.setdefault(field.metadata.get("panel", ""), []).append(row)
        for panel, rows in sorted(panels.items(), key=lambda item: not item[0]):  # those without a heading last
            heading = f"### {title}: {panel}" if panel else f"### {title}: in files and in Python" if lines[-1] else ""
            lines += ["", heading, "", "| setting | default | |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING or field.default in (None, "", ()):
        return ""
    if isinstance(field.default, bool):
        return "yes" if field.default else "no"
    return f"`{', '.join(map(str, field.default))}`" if isinstance(field.default, tuple) else f"`{field.default}`"


def trailing_comments(settings: Any) -> dict[str, str]:
    """The comment behind the definition of each field."""
    source = textwrap.dedent(inspect.getsource(settings))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
    return {
        node.target.id: comments[node.end_lineno]
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno in comments
    }
