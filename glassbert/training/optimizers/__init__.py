"""Optimizers by name, each in a file of its own with the formula first."""

from __future__ import annotations

import difflib
from typing import Any

from glassbert.errors import TrainingError
from glassbert.training.optimizers.adamw import AdamW
from glassbert.training.optimizers.base import Optimizer
from glassbert.training.optimizers.lion import Lion
from glassbert.training.optimizers.muon import Muon
from glassbert.training.optimizers.sgd import SGD
from glassbert.training.optimizers.sophia import Sophia

__all__ = ["OPTIMIZERS", "SGD", "AdamW", "Lion", "Muon", "Optimizer", "Sophia", "make_optimizer"]

OPTIMIZERS: dict[str, Any] = {kind.name: kind for kind in (AdamW, Lion, Sophia, Muon, SGD)}


def make_optimizer(name: str, model: Any, **settings: Any) -> Optimizer:
    """An optimizer by its name, with its own defaults for what is not given; pairs may be lists, as JSON has them."""
    if name not in OPTIMIZERS:
        raise TrainingError(_unknown(f"there is no optimizer {name!r}", name, list(OPTIMIZERS)))
    kind = OPTIMIZERS[name]
    known = kind.setting_names()
    for setting in settings:
        if setting not in known:
            raise TrainingError(_unknown(f"{name} has no setting {setting!r}", setting, known))
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return kind(model, **given)


def _unknown(problem: str, name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(str(name), known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"{problem}{hint} There are {', '.join(known)}."
