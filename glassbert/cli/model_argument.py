"""The argument MODEL that many commands share: its help, and a line that says which model a name means."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from glassbert.checkpoints.packaged import DEFAULT_MODEL, which_model

MODEL_HELP = f"A run, a folder with a model, a hub id, or {DEFAULT_MODEL}: the model that ships with GlassBERT."

SHORT_TEXT = 2_000  # characters


def named_model(name: str) -> str:
    """The same name; says on standard error which model it means, where it could mean two."""
    found = which_model(name)
    if found is not None:
        Console(stderr=True, highlight=False).print(found, style="dim", markup=False)
    return name


def kernels_for(*texts: str | None) -> str:
    """The kernels for texts that a command is given: loading compiled loops takes longer than a short text without."""
    return "plain" if sum(len(text) for text in texts if text) <= SHORT_TEXT else "fast"


def model_and_text(first: str, text: str | None) -> tuple[str, str]:
    """The model and the text of a command that takes both; a single argument that is a text means the default model."""
    if not text and (" " in first or "[MASK]" in first) and not Path(first).exists():
        return DEFAULT_MODEL, first
    return first, text or ""
