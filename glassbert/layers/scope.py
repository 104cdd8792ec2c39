"""Names inside a model: one dotted name for every parameter, activation and gradient.

A layer knows only its own short names (`hidden`, `up.weight`); a scope puts the place in front
(`layers.0.ffn.hidden`). The same scope serves parameters, gradients and the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from glassbert.engines.namespace import Array
from glassbert.engines.parameters import Gradients


class Cache(Mapping[str, Any]):
    """What a forward pass leaves behind: every value by its dotted name.

    `keep` stores what backward needs; `note` stores what only a curious reader needs, and only while tracing.
    """

    forgets = False

    def __init__(self, trace: bool = False):
        self.trace = trace
        self.values_by_name: dict[str, Any] = {}
        self.promises: dict[str, Callable[[], Any]] = {}
        self.regions: dict[str, Callable[[Cache], Cache]] = {}
        self._last_region: tuple[str, Cache] | None = None

    def like(self) -> Cache:
        """Another cache of the same habits, empty."""
        return Cache(self.trace)

    def keep(self, name: str, value: Any) -> Any:
        self.values_by_name[name] = value
        return value

    def note(self, name: str, value: Any) -> Any:
        if self.trace:
            self.values_by_name[name] = value
        return value

    def promise(self, name: str, compute: Callable[[], Any]) -> None:
        """A value that is computed when somebody asks for it, and then kept."""
        self.promises[name] = compute

    def promise_region(self, prefix: str, compute: Callable[[Cache], Cache]) -> None:
        """Everything under `prefix` can be computed again when somebody asks; only the last such region is kept.

        `compute` is handed this cache: holding on to it would keep both alive for good.
        """
        self.regions[prefix] = compute

    def _in_region(self, name: str) -> Any:
        for prefix, compute in self.regions.items():
            if name.startswith(prefix):
                if self._last_region is None or self._last_region[0] != prefix:
                    self._last_region = prefix, compute(self)
                return self._last_region[1][name]
        raise KeyError(name)

    def __getitem__(self, name: str) -> Any:
        if name in self.promises:
            self.values_by_name[name] = self.promises.pop(name)()
        try:
            return self.values_by_name[name] if name in self.values_by_name else self._in_region(name)
        except KeyError:
            raise KeyError(f"{name!r} is not in this cache; forward(..., trace=True) keeps every value") from None

    def __iter__(self) -> Iterator[str]:
        return iter([*self.values_by_name, *self.promises])

    def __len__(self) -> int:
        return len(self.values_by_name) + len(self.promises)


class Forgetful(Cache):
    """A cache that keeps nothing, for when no backward will follow."""

    forgets = True

    def like(self) -> Forgetful:
        return Forgetful()

    def keep(self, name: str, value: Any) -> Any:
        return value

    def promise(self, name: str, compute: Callable[[], Any]) -> None:
        pass

    def promise_region(self, prefix: str, compute: Callable[[Cache], Cache]) -> None:
        pass


class Scope:
    """Parameters, cache and gradients as one layer sees them."""

    def __init__(
        self, parameters: Mapping[str, Array], cache: Cache, gradients: Gradients | None = None, prefix: str = ""
    ):
        self.parameters = parameters
        self.cache = cache
        self.gradients = gradients
        self.prefix = prefix

    def inside(self, name: str) -> Scope:
        return Scope(self.parameters, self.cache, self.gradients, f"{self.prefix}{name}.")

    def outermost(self) -> Scope:
        return Scope(self.parameters, self.cache, self.gradients)

    def apart(self) -> Scope:
        """The same place, with a cache of its own."""
        return Scope(self.parameters, Cache(), None, self.prefix)

    def name(self, name: str) -> str:
        return self.prefix + name

    def parameter(self, name: str) -> Array:
        return self.parameters[self.prefix + name]

    def optional(self, name: str) -> Array | None:
        return self.parameters.get(self.prefix + name)

    def keep(self, name: str, value: Any) -> Any:
        return self.cache.keep(self.prefix + name, value)

    def note(self, name: str, value: Any) -> Any:
        return self.cache.note(self.prefix + name, value)

    def promise(self, name: str, compute: Callable[[], Any]) -> None:
        self.cache.promise(self.prefix + name, compute)

    def __getitem__(self, name: str) -> Any:
        return self.cache[self.prefix + name]

    def wants(self, name: str) -> bool:
        """Whether the gradient of this parameter is wanted; where it stands still, nobody computes one."""
        assert self.gradients is not None
        return self.gradients.wants(self.prefix + name)

    def place(self, name: str) -> Array | None:
        assert self.gradients is not None
        return self.gradients.place(self.prefix + name)

    def add(self, name: str, value: Array | None) -> None:
        assert self.gradients is not None
        if value is not None:
            self.gradients.add(self.prefix + name, value)
