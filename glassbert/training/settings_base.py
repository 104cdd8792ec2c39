"""The base class of settings (frozen dataclasses), and checks of their values."""

from __future__ import annotations

import dataclasses
import difflib
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any, Self

from glassbert.errors import TrainingError

Check = tuple[Callable[[Any], bool], object]  # a test of a value, and a description of valid values
LARGEST, FLOAT_MAX = 2**63 - 1, sys.float_info.max  # of whole numbers, of all numbers
SHORT = "whose names have at most 255 bytes"  # of paths


def about(default: Any, text: str, panel: str) -> Any:
    """A field with its `--help` text and the heading under which it is listed."""
    return field(default=default, metadata={"help": text, "panel": panel})


def is_integer(low: int, high: int = LARGEST) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= FLOAT_MAX


def is_between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: is_number(value) and low < value < high


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_path(value: Any) -> bool:
    """Text that a file system can take as a path."""
    try:
        path = os.fsencode(value) if isinstance(value, str) else b"\0"
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return b"\0" not in path and len(path) < 4096 and all(len(name) < 256 for name in path.split(os.fsencode(os.sep)))


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def one_of(*choices: str) -> Check:
    return lambda value: value in choices, Names(choices)


def one_in(table: Mapping[str, Any]) -> Check:
    """A name of a table that extensions may add to."""
    return lambda value: value in table, Names(table)


class Names:
    """Valid values that have names: a description of them at the time they are shown."""

    def __init__(self, names: Collection[str]):
        self.names = names

    def __str__(self) -> str:
        return f"one of {', '.join(self.names)}"


def check_fields(settings: Any, checks: Mapping[str, Check], optional: set[str]) -> None:
    """Raise for the first field with an invalid value; None is valid for optional fields."""
    for name, (is_valid, description) in checks.items():
        value = getattr(settings, name)
        if isinstance(value, int) and abs(value) > LARGEST:
            raise TrainingError(f"{name} must be below 2**63, got {value!r}")
        if not (value is None and name in optional) and not is_valid(value):
            raise TrainingError(f"{name} must be {description}, got {value!r}")


def check_known(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    """Raise for the first name that is not in `known`, with the most similar known name."""
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f". There are {', '.join(sorted(known))}."
            raise TrainingError(f"there is no field {name!r} in {where}{hint}")


def unknown_name(problem: str, name: Any, known: Collection[str]) -> str:
    """An error text for a name that is not in `known`: the problem, the most similar name, and all names."""
    close = difflib.get_close_matches(str(name), known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"{problem}{hint} There are {', '.join(known)}."


def document(target: Any, settings: Any) -> None:
    """Append the fields of a settings class, with their help texts and defaults, to a docstring."""
    lines = [target.__doc__.rstrip() if target.__doc__ else "", ""]
    panel = None
    for one in dataclasses.fields(settings):
        if "help" not in one.metadata:
            continue
        if one.metadata["panel"] != panel:
            panel = one.metadata["panel"]
            lines += ["", f"    {panel}"]
        default = "" if one.default in (None, "", ()) else f" (default: {one.default})"
        lines.append(f"        {one.name}: {one.metadata['help']}{default}")
    target.__doc__ = "\n".join(lines) + "\n"


class Settings:
    """The base class of settings dataclasses."""

    @classmethod
    def fields(cls) -> dict[str, dataclasses.Field[Any]]:
        return {one.name: one for one in dataclasses.fields(cls)}  # type: ignore[arg-type]

    def replace(self, **changes: Any) -> Self:
        check_known(changes, self.fields(), "the settings")
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        values = dataclasses.asdict(self)  # type: ignore[call-overload]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Settings from fields; hyphens in names are allowed, as in flags."""
        values = {name.replace("-", "_"): value for name, value in values.items()}
        check_known(values, cls.fields(), "the settings")
        return cls(**values)
