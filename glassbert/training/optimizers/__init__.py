"""Optimizers by name. Each has its own module, which starts with the formula."""

from __future__ import annotations

from typing import Any

from glassbert.errors import TrainingError
from glassbert.layers.registry import Registry
from glassbert.training.optimizers.adamw import AdamW
from glassbert.training.optimizers.base import Optimizer
from glassbert.training.optimizers.lion import Lion
from glassbert.training.optimizers.muon import Muon
from glassbert.training.optimizers.sgd import SGD
from glassbert.training.optimizers.sophia import Sophia
from glassbert.training.settings_base import unknown_name

__all__ = ["OPTIMIZERS", "SGD", "AdamW", "Lion", "Muon", "Optimizer", "Sophia", "make_optimizer"]

OPTIMIZERS: Registry[Any] = Registry("optimizer")
for _kind in (AdamW, Lion, Sophia, Muon, SGD):
    OPTIMIZERS.register(_kind.name)(_kind)


def make_optimizer(name: str, model: Any, **settings: Any) -> Optimizer:
    """Make an optimizer by name; settings that are not given have its defaults. Pairs may be lists, as in JSON."""
    if name not in OPTIMIZERS:
        raise TrainingError(unknown_name(f"there is no optimizer {name!r}", name, OPTIMIZERS))
    kind = OPTIMIZERS[name]
    known = kind.setting_names()
    for setting in settings:
        if setting not in known:
            raise TrainingError(unknown_name(f"{name} has no setting {setting!r}", setting, known))
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return kind(model, **given)
