"""Errors that a user can cause. Each message says what is wrong and what would be right.

All are subclasses of `GlassBertError` and thereby of `ValueError`. A message shows at most 200 characters of a value,
and control characters in it are shown, not obeyed by a terminal.
"""

from __future__ import annotations

import re

LONGEST_VALUE = 200  # characters
LONGEST_MESSAGE = 4_000
QUOTED = re.compile(r"(?<!\w)(['\"])(.*?)\1(?!\w)", re.DOTALL)
UNBROKEN = re.compile(r"\S{400,}")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def needs(what: str, package: str) -> str:
    """The sentence about a package that is not installed: `what` needs it, and how to get it.

    It names the package itself and not an extra of GlassBERT, so it is right for every kind of installation.
    """
    quoted = f'"{package}"' if "[" in package else package
    return f"{what} needs {package.partition('[')[0]}: pip install {quoted}"


class GlassBertError(ValueError):
    """Base class: an input of the user cannot be used."""

    def __init__(self, message: object = "", *more: object):
        super().__init__(presentable(str(message)), *more)


class ConfigError(GlassBertError):
    """An invalid configuration or an unknown name."""


class InputError(GlassBertError):
    """Arrays, labels or arguments that do not fit the model or each other."""


class NotFinite(InputError):
    """Scores that are NaN or infinite, from which no answer can be given."""


class CheckpointError(GlassBertError):
    """A file or folder without a usable model."""


class EngineError(GlassBertError):
    """An engine, precision or device that is not available on this machine."""


class TextError(GlassBertError):
    """A tokenizer, a text file or a corpus that cannot be used."""


class DifferentCorpusError(TextError):
    """A folder with a corpus of other texts or settings than those of a build."""

    def __init__(self, message: object = "", difference: str = ""):
        super().__init__(message)
        self.difference = difference


class TrainingError(GlassBertError):
    """A run that cannot start or cannot continue."""


class RunInterrupted(TrainingError):
    """A signal stopped a run, which can be resumed."""


def presentable(message: str) -> str:
    """A message without long values and control characters."""
    if len(message) > LONGEST_VALUE:
        message = QUOTED.sub(lambda found: found[1] + shortened(found[2]) + found[1], message)
        message = UNBROKEN.sub(lambda found: shortened(found[0]), message)
        message = shortened(message, LONGEST_MESSAGE)
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), message)


def shortened(value: str, longest: int = LONGEST_VALUE) -> str:
    """The beginning and the end of a long value, and how many characters it has."""
    if len(value) <= longest:
        return value
    end = longest // 4
    return f"{value[: longest - end - 30]} ... {value[-end:]} ({len(value):,} characters)"
