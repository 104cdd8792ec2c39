"""The base class of all optimizers: buffers, gradient norm, clipping, learning rate factors, and the update loop.

An optimizer updates every number of the model with a formula of that number, its gradient and its buffers. A subclass
adds only the formula, written twice: `move_chunk` updates a piece of the flat buffers in place, several threads in
parallel (NumPy); `moved` is a pure function, which MLX compiles into one pass over memory. Both use the same `factors`,
the scalars of a step.

A step whose gradient is not finite changes neither parameters nor buffers nor the step counter. On MLX this is decided
on the device without waiting for it: the step runs with a gradient of zeros and the factors `no_update`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np

from glassbert.arrays import Array, FlatArrays, FlatGradients, Layout
from glassbert.engines.threads import run_together
from glassbert.errors import TrainingError

CHUNK = 131_072  # elements: fits into the cache, and long enough that threads rarely wait for the interpreter lock

Buffers = Mapping[str, Array]
Span = tuple[str, int, int]  # name, start and stop of a piece of a flattened parameter


class Rates:
    """Factors on the learning rate, by parameter; parameters without one have the factor 1.

    A parameter with the factor 0 is frozen: no update, no decay, no change of its buffers. Parameters with the same
    factor form a group, and the scalars of a step are computed once per group. A compiled step contains the groups but
    not their factors, so other factors for the same groups need no new compilation.
    """

    def __init__(self, names: Collection[str], given: Mapping[str, float] | None):
        for name, factor in (given or {}).items():
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise TrainingError(f"rates has a factor for {name!r}, which is not a parameter of this model{hint}")
            if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 <= factor < math.inf:
                raise TrainingError(f"the rate of {name!r} must be a number of at least 0, got {factor!r}")
        factors = {name: float((given or {}).get(name, 1.0)) for name in names}
        self.given = None if given is None else dict(given)
        self.groups = tuple(dict.fromkeys(factor for factor in factors.values() if factor > 0))
        if not self.groups:
            raise TrainingError("every rate is 0, so nothing would be trained; give some parameter a rate above 0")
        self.group_of = {name: self.groups.index(factor) for name, factor in factors.items() if factor > 0}
        self.trainable = None if len(self.group_of) == len(factors) else frozenset(self.group_of)


class Optimizer(ABC):
    """Named buffers for every parameter, and the update: in place on NumPy, a pure function on MLX.

    `learning_rate` and `rates` (factors on it by parameter name) may be changed before every step; the other settings
    are fixed.
    """

    name: ClassVar[str]
    buffers: ClassVar[tuple[str, ...]]  # each has one number for every number of the model
    no_update: ClassVar[tuple[float | None, ...]]  # factors that change nothing; None: the factor has no effect
    cuda: ClassVar[str] = (
        ""  # `moved` in CUDA, from the scalars, p (`kept`: shrunk), g (`seen`: 0 if not finite), buffers
    )
    curvature_every: int = 0  # steps between two calls of `observe` with a gradient of sampled labels; 0: never

    def __init__(self, model: Any, learning_rate: float, weight_decay: float, clip: float | None):
        self.engine = model.engine
        self.layout: Layout = model.layout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.clip = clip
        self.decayed = {name: len(shape) > 1 for name, shape in self.layout.shapes.items()}  # not norms and biases
        self.state: dict[str, Any] = {name: self.engine.parameters(self.layout_of(name)) for name in self.buffers}
        self.rates = None
        self.attempts = 0  # all steps; `steps` counts those that updated the parameters
        self._steps: Any = self.engine.integers(0) if self.engine.compiles else 0
        self._check()

    def layout_of(self, buffer: str) -> Layout:
        return self.layout

    @property
    def steps(self) -> int:
        """Steps that updated the parameters. On MLX reading it waits for the device."""
        return int(self._steps)

    @steps.setter
    def steps(self, value: int) -> None:
        self._steps = self.engine.integers(value) if self.engine.compiles else int(value)

    # ---- learning rates by parameter --------------------------------------------------------------------------------

    @property
    def rates(self) -> Mapping[str, float] | None:
        """Factors on the learning rate by parameter name; default 1; a parameter with 0 is frozen."""
        return self._rates.given

    @rates.setter
    def rates(self, given: Mapping[str, float] | None) -> None:
        self._rates = Rates(self.layout.shapes, given)

    @property
    def trainable(self) -> frozenset[str] | None:
        """The parameters that are not frozen; None if none is."""
        return self._rates.trainable

    @property
    def learning_rates(self) -> float | list[float]:
        """The input of a compiled step: the learning rate, or one for each group of parameters."""
        if self.rates is None:
            return self.learning_rate
        return [self.learning_rate * factor for factor in self._rates.groups]

    @property
    def compiled_with(self) -> tuple[Any, ...]:
        """The constants of a compiled step; it must be compiled again if they change."""
        groups = () if self.rates is None else tuple(self._rates.group_of.items())
        return *self.settings.items(), groups

    # ---- the formula ----------------------------------------------------------------------------------------------

    @abstractmethod
    def factors(self, xp: Any, step: Any, learning_rate: Any, scale: Any) -> Any:
        """The scalars of a step, as a named tuple; `scale` clips the gradient. Numbers on NumPy, arrays on MLX."""

    @abstractmethod
    def move_chunk(self, p: Any, g: Any, buffers: Any, f: Any, decayed: bool, t: np.ndarray) -> None:
        """Update a piece of the parameters and buffers in place; `t` is scratch memory of the same size."""

    @abstractmethod
    def moved(self, p: Any, g: Any, buffers: Any, f: Any, decayed: bool, xp: Any) -> tuple[Any, list[Any]]:
        """The new parameter and its new buffers, in the order of `self.buffers`."""

    def observe(self, gradients: FlatGradients) -> None:
        """Receive the gradient whose square estimates the curvature, every `curvature_every` steps (NumPy).

        Does nothing by default.
        """
        return None

    def observed(self, state: dict[str, Any], gradients: Buffers) -> dict[str, Any]:
        """The state after `observe` (MLX)."""
        return state

    # ---- NumPy: in place ------------------------------------------------------------------------------------------

    def update(self, parameters: FlatArrays, gradients: FlatGradients) -> float:
        """Update the parameters in place if the gradient is finite; returns its norm before clipping."""
        norm = self.gradient_norm(gradients)
        if math.isfinite(norm):
            self.move(parameters, gradients, norm)
        return norm

    def gradient_norm(self, gradients: FlatGradients) -> float:
        """√Σ g² over all parameters that are not frozen. Derivation: docs/derivations/12-adamw.md (12.8)."""
        parts = gradients.nonzero_parts(self.trainable)
        pieces = [part[i : i + CHUNK] for part in parts for i in range(0, len(part), CHUNK)]
        threads = self.engine.threads
        return math.sqrt(sum(run_together(_sum_of_squares, [pieces[i::threads] for i in range(threads)])))

    def move(self, parameters: FlatArrays, gradients: FlatGradients, norm: float) -> None:
        """Update the parameters in place; `norm` is that of the gradient."""
        self.steps += 1
        f = self._factors_by_name(norm, parameters.flat.dtype.type)
        spans, threads = self._spans(self.layout.shapes), self.engine.threads
        work = functools.partial(self._move_spans, parameters, gradients, f)
        run_together(work, [spans[i::threads] for i in range(threads)])

    def _factors_by_name(self, norm: float, kind: Any) -> dict[str, Any]:
        """The scalars of this step for every parameter that is not frozen."""
        scale = 1.0 if self.clip is None or norm <= self.clip else self.clip / norm
        step, rate = float(self.steps), self.learning_rate
        groups = [self.factors(np, step, rate * factor, scale) for factor in self._rates.groups]
        groups = [type(factors)(*(kind(value) for value in factors)) for factors in groups]
        return {name: groups[group] for name, group in self._rates.group_of.items()}

    def _spans(self, names: Any) -> list[Span]:
        """The named parameters that are not frozen, in chunks."""
        sizes = {name: math.prod(self.layout.shapes[name]) for name in names if name in self._rates.group_of}
        return [(name, i, min(i + CHUNK, size)) for name, size in sizes.items() for i in range(0, size, CHUNK)]

    def _move_spans(
        self, parameters: FlatArrays, gradients: FlatGradients, f: Mapping[str, Any], spans: list[Span]
    ) -> None:
        scratch = np.empty(CHUNK, parameters.flat.dtype)
        buffers = [self.state[name] for name in self.buffers]
        for name, start, stop in spans:
            p, g, *rest = (array[name].reshape(-1)[start:stop] for array in (parameters, gradients.buffer, *buffers))
            self.move_chunk(p, g, rest, f[name], self.decayed[name], scratch[: stop - start])

    # ---- MLX: a pure function -------------------------------------------------------------------------------------

    def step_arrays(
        self,
        parameters: Buffers,
        gradients: Buffers,
        state: Mapping[str, Buffers],
        step: Any,
        learning_rate: Any,
        loss: Any = 0.0,
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]], Any, Any]:
        """New parameters, new state, the gradient norm, and whether norm and loss are finite; to be compiled.

        Takes MLX arrays. `step` counts from 1; `learning_rate` is one number, or one for each group of `rates`. If norm
        or loss is not finite, the new values equal the old ones.
        """
        xp = self.engine.xp
        norm = xp.sqrt(self._squares(gradients))
        finite = xp.isfinite(norm + loss)
        scale = xp.minimum(1.0, self.clip / (norm + 1e-12)) if self.clip is not None else xp.array(1.0)
        by_group = learning_rate if learning_rate.ndim else [learning_rate * factor for factor in self._rates.groups]
        groups = [self._finite_factors(step, rate, scale, finite) for rate in by_group]
        f = {name: groups[group] for name, group in self._rates.group_of.items()}
        # Frozen parameters and their buffers are returned unchanged.
        new_p, new_state = dict(parameters), {buffer: dict(state[buffer]) for buffer in self.buffers}
        self._move_arrays(parameters, gradients, state, f, finite, new_p, new_state)
        return new_p, new_state, norm, finite

    def _squares(self, gradients: Buffers) -> Any:
        """Σ g² over all parameters that are not frozen."""
        xp, many = self.engine.xp, self.engine.many
        small = [gradients[name] for name in self._rates.group_of if many is not None and many.small(gradients[name])]
        large = [gradients[name] for name in self._rates.group_of if many is None or not many.small(gradients[name])]
        squares = [xp.square(g.astype(xp.float32)).sum() for g in large]
        return xp.stack([*squares, many.sum_of_squares(small)] if small else squares).sum()

    def _finite_factors(self, step: Any, learning_rate: Any, scale: Any, finite: Any) -> Any:
        """The scalars of a step, or `no_update` if it is not finite.

        Each is a scalar array, so that the update of a parameter compiles to one pass over memory.
        """
        xp, f = self.engine.xp, self.factors(self.engine.xp, step, learning_rate, scale)
        pairs = zip(f, self.no_update, strict=True)
        return type(f)(*(xp.array(value) if stop is None else xp.where(finite, value, stop) for value, stop in pairs))

    def _move_arrays(
        self, parameters: Buffers, gradients: Buffers, state: Any, f: Any, finite: Any, new_p: Any, new_state: Any
    ) -> None:
        together = self._together(parameters, f)
        for names in together:
            self._move_many(names, parameters, gradients, state, f[names[0]], finite, new_p, new_state)
        done = {name for names in together for name in names}
        for name in f:
            if name not in done:
                self._move_array(name, parameters[name], gradients[name], state, f[name], finite, new_p, new_state)

    def _together(self, parameters: Buffers, f: Mapping[str, Any]) -> list[list[str]]:
        """Small parameters with the same scalars, in lists that one launch moves; none where the engine cannot."""
        many = self.engine.many
        if many is None or not self.cuda:
            return []
        groups: dict[Any, list[str]] = {}
        for name in f:
            if many.small(parameters[name]):
                groups.setdefault((self._rates.group_of[name], self.decayed[name]), []).append(name)
        return list(groups.values())

    def _move_many(
        self, names: list[str], parameters: Buffers, gradients: Buffers, state: Any, f: Any, finite: Any, new_p: Any,
        new_state: Any,
    ) -> None:  # fmt: skip
        """`_move_array` for several parameters with the same scalars, by the formula `cuda`."""
        kept = "const float kept = p * shrink;" if self.decayed[names[0]] else "const float kept = p;"
        seen = "const float seen = finite > 0.0f ? g : 0.0f;"  # 0 times infinity is NaN
        arrays = {"p": parameters, "g": gradients, **{buffer: state[buffer] for buffer in self.buffers}}
        found = self.engine.many.each(
            f"{kept} {seen} {self.cuda}",
            {name: [values[one] for one in names] for name, values in arrays.items()},
            {**f._asdict(), "finite": finite},
            {f"new_{name}": self.engine.xp.float32 for name in ("p", *self.buffers)},
        )
        new_p.update(zip(names, found["new_p"], strict=True))
        for buffer in self.buffers:
            new_state[buffer].update(zip(names, found[f"new_{buffer}"], strict=True))

    def _move_array(
        self, name: str, p: Any, g: Any, state: Any, f: Any, finite: Any, new_p: Any, new_state: Any
    ) -> None:
        xp, g = self.engine.xp, self._finite_gradient(g, finite)
        buffers = [state[buffer][name] for buffer in self.buffers]
        new_p[name], values = self.moved(p, g, buffers, f, self.decayed[name], xp)
        for buffer, value in zip(self.buffers, values, strict=True):
            new_state[buffer][name] = value

    def _finite_gradient(self, g: Any, finite: Any) -> Any:
        """The gradient in float32, or zeros: a factor of zero would not work, since 0 times infinity is NaN."""
        xp = self.engine.xp
        g = xp.depends([g], [finite])[0].astype(xp.float32)  # after the norm, so that no float32 copy is kept for it
        return xp.where(finite, g, 0.0)

    # ---- settings and saving --------------------------------------------------------------------------------------

    @classmethod
    @functools.cache  # called in every step, and slow
    def setting_names(cls) -> tuple[str, ...]:
        return tuple(name for name in inspect.signature(cls).parameters if name != "model")

    @property
    def settings(self) -> dict[str, Any]:
        """All settings except the learning rate, which changes from step to step."""
        return {name: getattr(self, name) for name in self.setting_names() if name != "learning_rate"}

    def _check(self) -> None:
        """Raise if a setting is outside the range in which the formula is valid."""
        for name, value in {"learning_rate": self.learning_rate, **self.settings}.items():
            test, wanted = CHECKS.get(name, (lambda value: True, ""))
            if not test(value):
                raise TrainingError(f"{self.name}: {name} must be {wanted}, got {value!r}")

    def state_arrays(self) -> dict[str, np.ndarray]:
        """The buffers as NumPy arrays named "buffer/parameter", the same on every engine."""
        to_numpy = self.engine.to_numpy
        return {f"{b}/{name}": to_numpy(array) for b, arrays in self.state.items() for name, array in arrays.items()}

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load the result of `state_arrays`; nothing changes unless all arrays fit."""
        wanted = {f"{b}/{name}": tuple(array.shape) for b, own in self.state.items() for name, array in own.items()}
        check_fit(f"the state of {self.name}", wanted, arrays)
        for key in wanted:
            buffer, _, name = key.partition("/")
            self.state[buffer][name] = self.engine.array(arrays[key])

    @property
    def state_numbers(self) -> dict[str, int]:
        return {"steps": self.steps, "attempts": self.attempts}

    def load_state_numbers(self, numbers: Mapping[str, Any]) -> None:
        self.steps, self.attempts = int(numbers["steps"]), int(numbers["attempts"])


def bias_correction(xp: Any, beta: float, step: Any) -> Any:
    """1 - βᵗ: the weight of t steps in an exponential mean. By expm1, since 1 - 0.999 loses digits.

    Derivation: docs/derivations/12-adamw.md (12.4)
    """
    return -xp.expm1(step * math.log(beta)) if beta > 0 else 1.0


def _sum_of_squares(parts: list[np.ndarray]) -> float:
    return sum(float(np.dot(part, part)) for part in parts)


# ---- checks of saved states and settings ----------------------------------------------------------------------------


def check_fit(what: str, wanted: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise an error that names the first array that is missing, unknown or of another shape."""
    for name in [*wanted, *arrays]:
        if name not in arrays:
            raise TrainingError(f"{what} has no {name!r}; it was saved by another optimizer or for another model")
        if name not in wanted:
            raise TrainingError(f"{what} has {name!r}, which belongs to another optimizer or another model")
        if tuple(arrays[name].shape) != wanted[name]:
            raise TrainingError(f"{what}: {name!r} has the shape {arrays[name].shape}, but {wanted[name]} is needed")


def _number(low: float, high: float = math.inf) -> Any:
    def fits(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < high

    return fits


def _betas(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(_number(0, 1)(beta) for beta in value)


CHECKS: dict[str, tuple[Any, str]] = {
    "learning_rate": (_number(0), "a number of at least 0"),
    "weight_decay": (_number(0), "a number of at least 0"),
    "clip": (lambda value: value is None or (_number(0)(value) and value > 0), "a number above 0, or None"),
    "betas": (_betas, "a pair of numbers in [0, 1)"),
    "momentum": (_number(0, 1), "in [0, 1)"),
    "epsilon": (_number(0), "a number of at least 0"),
    "gamma": (lambda value: _number(0)(value) and value > 0, "a number above 0"),
    "every": (lambda value: isinstance(value, int) and value >= 1, "a whole number of at least 1"),
    "iterations": (lambda value: isinstance(value, int) and value >= 1, "a whole number of at least 1"),
}
