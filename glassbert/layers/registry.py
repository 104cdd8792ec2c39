"""The tables of parts from which a config puts an encoder together.

A part is a class that takes the config and has `parameters()`, `forward` and `backward`. It is entered by a decorator
and chosen by name, by a field of the config:

    EMBEDDINGS     config.embeddings      what the first block is given
    POSITIONS      config.positions       how the order of the tokens enters
    ATTENTIONS     config.attention
    FEED_FORWARDS  config.feed_forward
    BLOCKS         config.norm_position   how the parts are joined

A part of one's own: `@ATTENTIONS.register("mine") class Mine(SelfAttention): ...` in any file that is imported first.
A part of the package may stand in a module that is imported when the part is first used (`later`).
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar

from glassbert.errors import ConfigError

Entry = TypeVar("Entry")


class Later(NamedTuple):
    """The place of an entry that its module fills when it is imported."""

    module: str


class Registry(Mapping[str, Entry], Generic[Entry]):
    """A table with a decorator that adds to it. An unknown name is an error that lists what there is."""

    def __init__(self, what: str, holds_objects: bool = False):
        self.what = what
        self.holds_objects = holds_objects  # a class that is decorated is entered as an object of it
        self._entries: dict[str, Entry | Later] = {}

    def register(self, name: str) -> Callable[[Any], Any]:
        """A decorator that enters what it decorates under `name`."""

        def enter(entry: Any) -> Any:
            place = self._entries.get(name)
            own = isinstance(place, Later) and place.module in sys.modules  # it is the module that fills the place
            known = None if own else self.get(name)
            if known is not None and _origin(known) != _origin(entry):
                raise ConfigError(f"the {self.what} {name!r} exists already; choose another name")
            self._entries[name] = entry() if self.holds_objects and isinstance(entry, type) else entry
            return entry

        return enter

    def later(self, name: str, module: str) -> None:
        """Keep a place for `name`, which `module` registers. The module is imported when the entry is first used."""
        self._entries.setdefault(name, Later(module))

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            raise ConfigError(unknown(self.what, name, self._entries))
        entry = self._entries[name]
        if isinstance(entry, Later):
            import_module(entry.module)
            filled = self._entries[name]
            if isinstance(filled, Later):
                raise ConfigError(f"{entry.module} does not register the {self.what} {name!r}")
            return filled
        return entry

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._entries else default

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def unknown(what: str, name: Any, known: Iterable[str]) -> str:
    """The sentence for a name that is not in a table."""
    close = difflib.get_close_matches(str(name), list(known), 1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"unknown {what} {name!r}{hint} There are {', '.join(known)}."


def _origin(entry: Any) -> tuple[str, str]:
    """Module and name: a file that is imported twice may enter its parts again."""
    entry = entry if isinstance(entry, type) or hasattr(entry, "__qualname__") else type(entry)
    return getattr(entry, "__module__", ""), getattr(entry, "__qualname__", repr(entry))


EMBEDDINGS: Registry[Any] = Registry("kind of embeddings")
POSITIONS: Registry[Any] = Registry("position scheme")
ATTENTIONS: Registry[Any] = Registry("attention")
FEED_FORWARDS: Registry[Any] = Registry("feed-forward layer")
BLOCKS: Registry[Any] = Registry("norm position")
