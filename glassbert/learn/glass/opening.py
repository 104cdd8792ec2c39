"""Opening the glass: from names of models and texts to a `Glass`, and from a `Glass` to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glassbert.errors import CheckpointError, GlassBertError, InputError
from glassbert.insight.inputs import LoadedModel, open_model
from glassbert.learn.glass.inputs import View, tokens_of
from glassbert.learn.glass.session import TEXT, Glass
from glassbert.models.quantized import QuantizedModel
from glassbert.training.fill_mask import MASK

DEFAULT_MODEL = "mini"
MASKED_WORD = "door"  # of the first text


def open_glass(models: Sequence[str], texts: Sequence[str] = ()) -> Glass:
    """The glass of some runs or model folders; without any, of the model that the package ships."""
    loaded = [in_floats(open_model(name, "numpy")) for name in models] if models else [_default()]
    for one in loaded:
        if one.model.head is not None and one.model.head.kind == "aligned":
            raise InputError(f"{one.name} compares two texts word by word, and the glass shows a pass over one text")
    views = [first_view(loaded[0], text) for text in (texts or [TEXT])]
    return Glass(loaded, views)


def _default() -> LoadedModel:
    try:
        return open_model(DEFAULT_MODEL, "numpy")
    except (CheckpointError, OSError) as error:
        raise InputError(
            f"no model was given, and the package has no model {DEFAULT_MODEL!r} of its own; "
            "give a run or a model folder: glassbert glass RUN"
        ) from error


def in_floats(loaded: LoadedModel) -> LoadedModel:
    """A quantised model as the floats that its codes stand for, because the formulas and gradients are those of floats.

    Its name, which the page shows, says so.
    """
    model = loaded.model
    if not isinstance(model, QuantizedModel):
        return loaded
    return replace(loaded, name=f"{loaded.name} (quantised, shown in floats)", model=model.in_floats())


def first_view(loaded: LoadedModel, text: str) -> dict[str, Any]:
    """A text with one word masked, so that there is a loss: the longest word, unless a [MASK] is written."""
    view: dict[str, Any] = {"text": text, "masked": []}
    head = loaded.model.head
    if MASK in text or head is None or "mlm" not in head.parts:
        return view
    tokens = tokens_of(loaded, View.of(view))
    pieces: dict[int, list[int]] = {}
    for position, word in enumerate(tokens.words):
        if word is not None:
            pieces.setdefault(word, []).append(position)

    def size(positions: list[int]) -> tuple[bool, bool, int]:
        word = "".join(tokens.tokens[i] for i in positions)
        return len(positions) == 1, word == MASKED_WORD, len(word)

    return {**view, "masked": max(pieces.values(), key=size)}


def export_page(glass: Glass, file: Path) -> str:
    """Write the page, and return a sentence about it."""
    from glassbert.learn.glass.export import export

    size = export(glass, file)
    return f"Page written: {file} ({size / 2**20:.1f} MB, {len(glass.views)} text{'s' if len(glass.views) > 1 else ''})"


def as_loaded(model: Any, tokenizer: Any = None, name: str = "model") -> LoadedModel:
    """A model with its tokenizer: a folder or name, a `LoadedModel`, or a model and a tokenizer."""
    if isinstance(model, LoadedModel):
        return in_floats(model)
    if hasattr(model, "parameters"):
        if tokenizer is None:
            raise InputError(
                "a model alone has no words; give its tokenizer as well: glass(model, text, "
                "tokenizer=glassbert.load_tokenizer(folder)), or give the folder: glass(folder, text)"
            )
        return in_floats(LoadedModel(name, model, tokenizer))
    try:
        return in_floats(open_model(model, "numpy"))
    except GlassBertError:
        raise
    except TypeError:
        raise InputError(f"expected a model, a folder or a name, got {type(model).__name__}") from None
