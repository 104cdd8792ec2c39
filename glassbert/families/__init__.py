"""Model families: one module each, with its config, its models and its tables of Hugging Face names.

`glassbert.checkpoints.family.MODULES` names the module of every family; it is imported when the family is first used.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    from glassbert.checkpoints.family import MODULES

    if name in MODULES.values():
        return import_module(f"glassbert.families.{name}")
    raise AttributeError(f"glassbert.families has no {name!r}")
