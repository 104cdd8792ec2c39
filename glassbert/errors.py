"""What goes wrong on the user's side, told in sentences.

Every error that a user can cause is a `GlassBertError`; it names what is wrong and what would be right.
They are `ValueError`s, so code that knows nothing of this package can still catch them.
"""


class GlassBertError(ValueError):
    """Something the user gave us cannot be used as it is."""


class ConfigError(GlassBertError):
    """A configuration that describes no possible model."""


class InputError(GlassBertError):
    """Token ids, masks or labels that do not fit the model or each other."""


class CheckpointError(GlassBertError):
    """A file or folder that holds no usable model."""


class EngineError(GlassBertError):
    """An engine, precision or device that this machine does not have."""


class TextError(GlassBertError):
    """A tokenizer, a text file or a corpus that cannot be used."""


class TrainingError(GlassBertError):
    """A run that cannot start or cannot go on."""
