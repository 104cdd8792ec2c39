"""A model with more pieces: the rows of new pieces begin as the mean of the rows that they replace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.errors import TrainingError
from glassbert.families.bert import BertWithHead
from glassbert.models.model import Model

MASKED = ("mlm", "pretraining")


def load_masked(path: str | Path, **options: Any) -> Model:
    """A model with its head for masked words; a model without one is refused."""
    model = load(path, **options)
    if model.head is None or model.head.kind not in MASKED:
        kind = "no head" if model.head is None else f"a head {model.head.kind!r}"
        raise TrainingError(
            f"{path} has {kind}, and a model that predicts masked words is needed; give a pretrained model with its "
            f"head for masked words"
        )
    return model if model.head.kind == "mlm" else load(path, head="mlm", **options)


def rows_of_tokens(model: Model) -> list[str]:
    """The parameters with a row for every token of the vocabulary."""
    config = model.config.replace(vocab_size=model.config.vocab_size + 1)
    larger = BertWithHead(config, "mlm", engine="numpy", initialize=False).layout.shapes
    return [name for name, shape in model.layout.shapes.items() if larger[name] != shape]


def extend(model: Model, vocabulary: int, replaced: Sequence[Sequence[int]]) -> Model:
    """A masked language model with `vocabulary` rows, and one more for every entry of `replaced`.

        row of a new piece = mean of the rows of the old pieces it replaces     (embeddings, decoder and its bias)

    Old rows beyond `vocabulary` belong to no token and are left out.
    """
    config = model.config.replace(vocab_size=vocabulary + len(replaced))
    new = BertWithHead(config, "mlm", engine="numpy", initialize=False)
    for name, shape in new.layout.shapes.items():
        old = np.asarray(model.engine.to_numpy(model.parameters[name]), np.float32)
        if old.shape != shape:  # [V, ...] to [V', ...]
            means = [old[list(ids)].mean(0) for ids in replaced]
            old = np.concatenate([old[:vocabulary], np.array(means, old.dtype).reshape(-1, *old.shape[1:])])
        new.parameters[name] = new.engine.array(old)
    return new
