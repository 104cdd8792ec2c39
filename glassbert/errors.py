"""Errors that a user can cause. Each message says what is wrong and what would be right.

All are subclasses of `GlassBertError` and thereby of `ValueError`.
"""


def needs(what: str, package: str) -> str:
    """The sentence about a package that is not installed: `what` needs it, and how to get it.

    It names the package itself and not an extra of GlassBERT, so it is right for every kind of installation.
    """
    quoted = f'"{package}"' if "[" in package else package
    return f"{what} needs {package.partition('[')[0]}: pip install {quoted}"


class GlassBertError(ValueError):
    """Base class: an input of the user cannot be used."""


class ConfigError(GlassBertError):
    """An invalid configuration or an unknown name."""


class InputError(GlassBertError):
    """Arrays, labels or arguments that do not fit the model or each other."""


class CheckpointError(GlassBertError):
    """A file or folder without a usable model."""


class EngineError(GlassBertError):
    """An engine, precision or device that is not available on this machine."""


class TextError(GlassBertError):
    """A tokenizer, a text file or a corpus that cannot be used."""


class TrainingError(GlassBertError):
    """A run that cannot start or cannot continue."""
