"""Scopes: parameters, named values, states and gradients as one layer uses them.

Every parameter, activation and gradient of a model has one dotted name (`layers.0.ffn.hidden`). A layer uses its own
short names (`hidden`, `up.weight`); a `Scope` adds the prefix. Two prefixes differ only where layers share parameters:
`layers.5` may compute with the parameters of `layers.0`, while its activations keep their own names.

A `Cache` holds what one pass leaves behind:

    values   activations by name, for the reader: those that are kept anyway, and with `trace=True` all of them
    states   what each operation's forward keeps for its backward (`glassbert.engines.kernels.State`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from glassbert.arrays import Array, Gradients
from glassbert.engines import DropoutSource, Operations
from glassbert.ops import QuantizedArray


class Parameter(NamedTuple):
    """The name, shape and initialisation of a parameter, declared before it exists.

    `initial` is "weight" (random), "output" (random, the last map of a residual branch, which depth-scaled
    initialisation makes smaller), "embedding" (random), "zeros" or "ones".
    """

    name: str
    shape: tuple[int, ...]
    initial: str


def linear_parameters(name: str, inputs: int, outputs: int, bias: bool, initial: str = "weight") -> list[Parameter]:
    weight = Parameter(f"{name}.weight", (outputs, inputs), initial)
    return [weight, Parameter(f"{name}.bias", (outputs,), "zeros")] if bias else [weight]


def norm_parameters(name: str, size: int, bias: bool) -> list[Parameter]:
    weight = Parameter(f"{name}.weight", (size,), "ones")
    return [weight, Parameter(f"{name}.bias", (size,), "zeros")] if bias else [weight]


def with_prefix(prefix: str, parameters: list[Parameter]) -> list[Parameter]:
    return [parameter._replace(name=f"{prefix}.{parameter.name}") for parameter in parameters]


class Cache(Mapping[str, Any]):
    """What a forward pass leaves behind: values by their dotted names, and the states for the backward.

    `token_axes` names the axes of a value that run over tokens, where that is not axis 1: a batch whose padding was
    left out is put back along these axes.
    """

    inference = False

    def __init__(self, trace: bool = False):
        self.trace = trace
        self.stored: dict[str, Any] = {}
        self.states: dict[str, Any] = {}
        self.token_axes: dict[str, tuple[int, ...]] = {}
        self._computed_later: dict[str, Callable[[], Any]] = {}
        self._regions: dict[str, Callable[[Cache], Cache]] = {}
        self._last_region: tuple[str, Cache] | None = None

    def like(self) -> Cache:
        """An empty cache with the same settings."""
        return Cache(self.trace)

    def store(self, name: str, value: Any, token_axes: tuple[int, ...] = (1,)) -> Any:
        """Keep a value under its name."""
        self.stored[name] = value
        if token_axes != (1,):
            self.token_axes[name] = token_axes
        return value

    def record(self, name: str, value: Any, token_axes: tuple[int, ...] = (1,)) -> Any:
        """Keep a value under its name, only while tracing."""
        return self.store(name, value, token_axes) if self.trace else value

    def save_state(self, name: str, state: Any) -> None:
        self.states[name] = state

    def accumulate(self, name: str, value: Array, token_axes: tuple[int, ...] = (1,)) -> None:
        """Add to a value, such as the gradient of an activation that several layers use."""
        self.stored[name] = self.stored[name] + value if name in self.stored else value
        if token_axes != (1,):
            self.token_axes[name] = token_axes

    def compute_later(self, name: str, compute: Callable[[], Any], token_axes: tuple[int, ...] = (1,)) -> None:
        """A value that is computed when it is first read."""
        self._computed_later[name] = compute
        if token_axes != (1,):
            self.token_axes[name] = token_axes

    def recompute_region(self, prefix: str, compute: Callable[[Cache], Cache]) -> None:
        """All values under `prefix` are computed again when one is read; only the last such region is kept.

        `compute` is given this cache: a reference to it would keep both alive.
        """
        self._regions[prefix] = compute

    def _from_region(self, name: str) -> Any:
        for prefix, compute in self._regions.items():
            if name.startswith(prefix):
                if self._last_region is None or self._last_region[0] != prefix:
                    self._last_region = prefix, compute(self)
                self.token_axes.update(self._last_region[1].token_axes)
                return self._last_region[1][name]
        raise KeyError(name)

    def __getitem__(self, name: str) -> Any:
        if name in self._computed_later:
            self.stored[name] = self._computed_later.pop(name)()
        try:
            return self.stored[name] if name in self.stored else self._from_region(name)
        except KeyError:
            raise KeyError(f"{name!r} is not in this cache; forward(..., trace=True) keeps every value") from None

    def __iter__(self) -> Iterator[str]:
        return iter([*self.stored, *self._computed_later])

    def __len__(self) -> int:
        return len(self.stored) + len(self._computed_later)


class NullCache(Cache):
    """A cache for inference: it keeps the values of the given names, and nothing else."""

    inference = True

    def __init__(self, keep: frozenset[str] = frozenset()):
        super().__init__()
        self.keep = keep

    def like(self) -> NullCache:
        return NullCache(self.keep)

    def store(self, name: str, value: Any, token_axes: tuple[int, ...] = (1,)) -> Any:
        return super().store(name, value, token_axes) if name in self.keep else value

    def record(self, name: str, value: Any, token_axes: tuple[int, ...] = (1,)) -> Any:
        return self.store(name, value, token_axes)

    def save_state(self, name: str, state: Any) -> None:
        pass

    def compute_later(self, name: str, compute: Callable[[], Any], token_axes: tuple[int, ...] = (1,)) -> None:
        pass

    def recompute_region(self, prefix: str, compute: Callable[[Cache], Cache]) -> None:
        pass


def operation_for(operation: str, arguments: tuple[Any, ...]) -> str:
    """The operation itself, or the one that reads a quantised weight among its first two arguments."""
    for argument in arguments[:2]:
        if isinstance(argument, QuantizedArray):
            return argument.operations[operation]
    return operation


class Scope:
    """Operations, parameters, cache, dropout masks and gradients under one prefix.

    ops        the operations as the engine of this pass runs them
    dropout    where dropout masks come from; None: nothing is dropped
    gradients  where gradients of parameters go; None in a forward
    root       the prefix of the model inside another one, such as a generator
    aliases    full names of parameters -> those of other parameters that take their place
    """

    def __init__(
        self,
        ops: Operations,
        parameters: Mapping[str, Array],
        cache: Cache,
        gradients: Gradients | None = None,
        dropout: DropoutSource | None = None,
        prefix: str = "",
        parameter_prefix: str | None = None,
        root: str = "",
        aliases: Mapping[str, str] | None = None,
    ):
        self.ops = ops
        self.parameters = parameters
        self.cache = cache
        self._gradients = gradients
        self.dropout_source = dropout
        self.prefix = prefix
        self.parameter_prefix = prefix if parameter_prefix is None else parameter_prefix
        self.root = root
        self.aliases = aliases or {}

    def inside(self, name: str, parameters: str | None = None) -> Scope:
        """The scope of a part; "" is the scope itself.

        `parameters` names the part whose parameters it uses, where that is another one.
        """
        if not name:
            return self
        return Scope(
            self.ops, self.parameters, self.cache, self._gradients, self.dropout_source, f"{self.prefix}{name}.",
            f"{self.parameter_prefix}{name if parameters is None else parameters}.", self.root, self.aliases,
        )  # fmt: skip

    def without_prefix(self) -> Scope:
        """The scope of the whole model."""
        return Scope(
            self.ops, self.parameters, self.cache, self._gradients, self.dropout_source, self.root, None, self.root,
            self.aliases,
        )  # fmt: skip

    def with_cache(self, cache: Cache) -> Scope:
        """The same scope over another cache."""
        return Scope(
            self.ops, self.parameters, cache, self._gradients, self.dropout_source, self.prefix, self.parameter_prefix,
            self.root, self.aliases,
        )  # fmt: skip

    # ---- parameters and gradients ----------------------------------------------------------------------------------

    @property
    def gradients(self) -> Gradients:
        if self._gradients is None:
            raise ValueError("this scope belongs to a forward pass and collects no gradients")
        return self._gradients

    def full_name(self, name: str) -> str:
        """The name of a parameter in the whole model."""
        full = self.parameter_prefix + name
        return self.aliases.get(full, full)

    def parameter(self, name: str) -> Array:
        return self.parameters[self.full_name(name)]

    def optional(self, name: str) -> Array | None:
        return self.parameters.get(self.full_name(name))

    def needs(self, name: str) -> bool:
        """Whether the gradient of this parameter is collected; that of a frozen one is not computed."""
        return self.gradients.needs(self.full_name(name))

    def add(self, name: str, value: Array | None) -> None:
        """Add to the gradient of a parameter."""
        if value is not None:
            self.gradients.add(self.full_name(name), value)

    def add_rows(self, name: str, index: Array, rows: Array) -> None:
        """Add to rows of the gradient of a table."""
        self.gradients.add_rows(self.full_name(name), index, rows)

    # ---- values ----------------------------------------------------------------------------------------------------

    def name(self, name: str) -> str:
        return self.prefix + name

    def store(self, name: str, value: Any, token_axes: tuple[int, ...] = (1,)) -> Any:
        return self.cache.store(self.prefix + name, value, token_axes)

    def record(self, name: str, value: Any, token_axes: tuple[int, ...] = (1,)) -> Any:
        return self.cache.record(self.prefix + name, value, token_axes)

    def compute_later(self, name: str, compute: Callable[[], Any], token_axes: tuple[int, ...] = (1,)) -> None:
        self.cache.compute_later(self.prefix + name, compute, token_axes)

    def __getitem__(self, name: str) -> Any:
        return self.cache[self.prefix + name]

    def save(self, name: str, value: Any) -> None:
        """Keep something for the backward, under a name of its own."""
        self.cache.save_state(self.prefix + name, value)

    def saved(self, name: str) -> Any:
        """What `save` kept, or None."""
        return self.cache.states.get(self.prefix + name)

    # ---- operations with a name ------------------------------------------------------------------------------------

    def run(self, operation: str, name: str, *arguments: Any, **options: Any) -> Array:
        """Run an operation and keep its state under `name` for `run_backward`.

        A parameter that is stored in another way than as an array names the operation that reads it.
        """
        operation = operation_for(operation, arguments)
        if "donate" in options:
            options["donate"] = options["donate"] and not self.cache.trace  # a traced value must not be overwritten
        y, state = getattr(self.ops, operation)(*arguments, inference=self.cache.inference, **options)
        self.cache.save_state(self.prefix + name, state)
        return y

    def run_backward(self, name: str, dy: Any, **hints: Any) -> Any:
        """The gradients of the inputs of the operation that ran under `name`."""
        state = self.cache.states[self.prefix + name]
        if self.cache.trace:
            hints.pop("donate", None)
        return state.backward(dy, state.values, **{k: v for k, v in hints.items() if k in state.hints})

    def linear(self, x: Array, name: str, parameters: str | None = None) -> Array:
        """x Wᵀ + b with the parameters `name.weight` and `name.bias`, or those of `parameters` used once more."""
        of = name if parameters is None else parameters
        self.save(f"{name}.x", x)
        return self.run("linear", name, x, self.parameter(f"{of}.weight"), self.optional(f"{of}.bias"))

    def linear_backward(self, dy: Array, name: str, parameters: str | None = None) -> Array:
        of = name if parameters is None else parameters
        weight, bias = f"{of}.weight", f"{of}.bias"
        has_bias = self.optional(bias) is not None and self.needs(bias)
        x = self.saved(f"{name}.x")
        taken = self.gradients.add_factors(self.full_name(weight), dy, x, self.parameters)
        if isinstance(self.parameter(weight), QuantizedArray):
            dx, _, dbias = self.run_backward(name, dy)
            self.add(bias, dbias if has_bias else None)
            return dx
        if taken or not (has_bias or self.needs(weight)):
            return self.ops.linear(dy, self.parameter(weight).T)[0]  # only dx = dy W remains
        buffers = (
            self.gradients.buffer_for(self.full_name(weight)),
            self.gradients.buffer_for(self.full_name(bias)) if has_bias else None,
        )
        dx, dweight, dbias = self.run_backward(name, dy, out=buffers)
        self.add(weight, dweight)
        if has_bias:
            self.add(bias, dbias)
        return dx

    def norm(self, x: Array, name: str, eps: float, donate: bool = False) -> Array:
        """Layer norm with the parameters `name.weight` and `name.bias`."""
        gamma, beta = self.parameter(f"{name}.weight"), self.optional(f"{name}.bias")
        return self.run("layer_norm", name, x, gamma, beta, eps, donate=donate)

    def norm_backward(self, dy: Array, name: str, residual: Array | None = None) -> Array:
        """The gradient of the input, plus `residual`: the gradient of a branch around the norm."""
        takes = residual is not None and "residual" in self.cache.states[self.prefix + name].hints
        dx, dgamma, dbeta = self.run_backward(name, dy, **{"residual": residual} if takes else {})
        if residual is not None and not takes:
            dx = residual + dx
        self.add(f"{name}.weight", dgamma)
        self.add(f"{name}.bias", dbeta)
        return dx

    def dropout(self, x: Array, name: str, rate: float, for_all_rows: bool = False) -> Array:
        """Dropout in training; without a source of masks or a rate, x itself. `for_all_rows`: x has no axis of rows."""
        if self.dropout_source is None or rate == 0.0:
            return x
        source = self.dropout_source.for_all_rows() if for_all_rows else self.dropout_source
        return self.run("dropout", name, x, source.mask(self.prefix + name, x.shape, rate), rate)

    def dropout_backward(self, dy: Array, name: str) -> Array:
        return dy if self.saved(name) is None else self.run_backward(name, dy)
