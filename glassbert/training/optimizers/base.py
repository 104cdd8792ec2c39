"""What all optimizers share: named buffers, the norm of the gradient, clipping, and the walk over the parameters.

An optimizer moves every number of the model by a formula of that number, its gradient and what it remembers of earlier
gradients. The formula is all that a file of this folder adds. It is written twice: `move_chunk` works in place on a
piece of the flat buffers that fits into the cache, with threads side by side (NumPy); `moved` is a pure function, which
MLX compiles into one pass over memory. Both take the same `factors`, the scalars of a step.

A step whose gradient is not finite changes nothing: neither parameters nor buffers nor the counter of steps. On MLX
nobody waits to see whether it is: such a step is made with a gradient of zeros and the factors of `standing_still`,
which costs no further pass over memory.
"""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from glassbert.engines.namespace import Array
from glassbert.engines.parameters import FlatArrays, FlatGradients, Layout
from glassbert.engines.threads import run_together
from glassbert.errors import TrainingError

CHUNK = 131_072  # elements: small enough for the cache, long enough that threads rarely meet at the interpreter's lock

Buffers = Mapping[str, Array]
Span = tuple[str, int, int]  # a piece of the flattened parameter of that name


class Optimizer(ABC):
    """Named buffers beside the parameters, and the step. On NumPy it works in place; on MLX it is a pure function.

    `learning_rate` may be set before every step; the other settings stay as they were given.
    """

    name: ClassVar[str]
    buffers: ClassVar[tuple[str, ...]]  # what is remembered for every number of the model
    standing_still: ClassVar[tuple[float | None, ...]]  # factors with which nothing moves; None: it does not matter
    curvature_every: int = 0  # how often `observe` wants a gradient of sampled labels; 0: never

    def __init__(self, model: Any, learning_rate: float, weight_decay: float, clip: float | None):
        self.engine = model.engine
        self.layout: Layout = model.layout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.clip = clip
        self.decayed = {name: len(shape) > 1 for name, shape in self.layout.shapes.items()}  # no norm, no bias
        self.state: dict[str, Any] = {name: self.engine.parameters(self.layout_of(name)) for name in self.buffers}
        self.attempts = 0  # steps begun; `steps` counts those that moved the parameters
        self._steps: Any = self.engine.integers(0) if self.engine.compiles else 0
        self._check()

    def layout_of(self, buffer: str) -> Layout:
        return self.layout

    @property
    def steps(self) -> int:
        """Steps that moved the parameters. On MLX asking for it waits for the device."""
        return int(self._steps)

    @steps.setter
    def steps(self, value: int) -> None:
        self._steps = self.engine.integers(value) if self.engine.compiles else int(value)

    # ---- the formula ----------------------------------------------------------------------------------------------

    @abstractmethod
    def factors(self, xp: Any, step: Any, learning_rate: Any, scale: Any) -> Any:
        """The scalars of a step, as a named tuple; `scale` clips the gradient. Numbers on NumPy, arrays on MLX."""

    @abstractmethod
    def move_chunk(self, p: Any, g: Any, buffers: Any, f: Any, decayed: bool, t: np.ndarray) -> None:
        """Move a piece of the parameters and buffers in place; `t` is scratch memory of the same size."""

    @abstractmethod
    def moved(self, p: Any, g: Any, buffers: Any, f: Any, decayed: bool, xp: Any) -> tuple[Any, list[Any]]:
        """The new parameter and its new buffers, in the order of `self.buffers`."""

    def observe(self, gradients: FlatGradients) -> None:
        """Hear the gradient whose square estimates the curvature, every `curvature_every` steps (NumPy).

        Most optimizers do not ask for it and have nothing to remember of it.
        """
        return None

    def observed(self, state: dict[str, Any], gradients: Buffers) -> dict[str, Any]:
        """The state after hearing it (MLX)."""
        return state

    # ---- NumPy: in place ------------------------------------------------------------------------------------------

    def update(self, parameters: FlatArrays, gradients: FlatGradients) -> float:
        """Move the parameters in place if the gradient is finite; returns its norm before clipping."""
        norm = self.gradient_norm(gradients)
        if math.isfinite(norm):
            self.move(parameters, gradients, norm)
        return norm

    def gradient_norm(self, gradients: FlatGradients) -> float:
        """√Σ g² over all parameters together."""
        pieces = [part[i : i + CHUNK] for part in gradients.parts_that_count() for i in range(0, len(part), CHUNK)]
        threads = self.engine.threads
        return math.sqrt(sum(run_together(_sum_of_squares, [pieces[i::threads] for i in range(threads)])))

    def move(self, parameters: FlatArrays, gradients: FlatGradients, norm: float) -> None:
        self.steps += 1
        f = self._factors_for(norm, parameters.flat.dtype.type)
        spans, threads = self._spans(self.layout.shapes), self.engine.threads
        work = functools.partial(self._walk, parameters, gradients, f)
        run_together(work, [spans[i::threads] for i in range(threads)])

    def _factors_for(self, norm: float, kind: Any) -> Any:
        scale = 1.0 if self.clip is None or norm <= self.clip else self.clip / norm
        factors = self.factors(np, float(self.steps), self.learning_rate, scale)
        return type(factors)(*(kind(value) for value in factors))

    def _spans(self, names: Any) -> list[Span]:
        """The named parameters in chunks."""
        sizes = {name: math.prod(self.layout.shapes[name]) for name in names}
        return [(name, i, min(i + CHUNK, size)) for name, size in sizes.items() for i in range(0, size, CHUNK)]

    def _walk(self, parameters: FlatArrays, gradients: FlatGradients, f: Any, spans: list[Span]) -> None:
        scratch = np.empty(CHUNK, parameters.flat.dtype)
        buffers = [self.state[name] for name in self.buffers]
        for name, start, stop in spans:
            p, g, *rest = (array[name].reshape(-1)[start:stop] for array in (parameters, gradients.buffer, *buffers))
            self.move_chunk(p, g, rest, f, self.decayed[name], scratch[: stop - start])

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
        """New parameters, new state, the norm of the gradient, and whether norm and loss are finite; to be compiled.

        All from MLX arrays. `step` counts from 1. Where norm or loss is not finite, the new values are the old ones.
        """
        xp = self.engine.xp
        norm = xp.sqrt(xp.stack([xp.square(g.astype(xp.float32)).sum() for g in gradients.values()]).sum())
        fine = xp.isfinite(norm + loss)
        scale = xp.minimum(1.0, self.clip / (norm + 1e-12)) if self.clip is not None else xp.array(1.0)
        f = self.factors(xp, step, learning_rate, scale)
        # Every factor is a scalar array, so that the whole update of a parameter compiles to one pass over memory.
        still = zip(f, self.standing_still, strict=True)
        f = type(f)(*(xp.array(value) if stop is None else xp.where(fine, value, stop) for value, stop in still))
        new_p, new_state = self._move_arrays(parameters, gradients, state, f, fine)
        return new_p, new_state, norm, fine

    def _move_arrays(self, parameters: Buffers, gradients: Buffers, state: Any, f: Any, fine: Any) -> tuple[Any, Any]:
        new_p: dict[str, Any] = {}
        new_state: dict[str, dict[str, Any]] = {buffer: {} for buffer in self.buffers}
        for name, p in parameters.items():
            self._move_array(name, p, gradients[name], state, f, fine, new_p, new_state)
        return new_p, new_state

    def _move_array(self, name: str, p: Any, g: Any, state: Any, f: Any, fine: Any, new_p: Any, new_state: Any) -> None:
        xp, g = self.engine.xp, self._taken(g, fine)
        buffers = [state[buffer][name] for buffer in self.buffers]
        new_p[name], values = self.moved(p, g, buffers, f, self.decayed[name], xp)
        for buffer, value in zip(self.buffers, values, strict=True):
            new_state[buffer][name] = value

    def _taken(self, g: Any, fine: Any) -> Any:
        """The gradient in float32, or zeros: a factor of zero would not do, for 0 times infinity is not a number."""
        xp = self.engine.xp
        g = xp.depends([g], [fine])[0].astype(xp.float32)  # after the norm, so that no float32 copy is kept for it
        return xp.where(fine, g, 0.0)

    # ---- settings and saving --------------------------------------------------------------------------------------

    @classmethod
    def setting_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters if name != "model"]

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the learning rate, which changes from step to step."""
        return {name: getattr(self, name) for name in self.setting_names() if name != "learning_rate"}

    def _check(self) -> None:
        """Settings outside these ranges only ever give NaN, or walk uphill."""
        for name, value in {"learning_rate": self.learning_rate, **self.settings}.items():
            test, wanted = CHECKS.get(name, (lambda value: True, ""))
            if not test(value):
                raise TrainingError(f"{self.name}: {name} must be {wanted}, got {value!r}")

    def state_arrays(self) -> dict[str, np.ndarray]:
        """The buffers as NumPy arrays called "buffer/parameter", the same on every engine."""
        to_numpy = self.engine.to_numpy
        return {f"{b}/{name}": to_numpy(array) for b, arrays in self.state.items() for name, array in arrays.items()}

    def load_state_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what `state_arrays` gave; nothing changes unless all of it fits."""
        wanted = {f"{b}/{name}": tuple(array.shape) for b, kept in self.state.items() for name, array in kept.items()}
        check_fit(f"the state of {self.name}", wanted, arrays)
        for place in wanted:
            buffer, _, name = place.partition("/")
            self.state[buffer][name] = self.engine.array(arrays[place])

    @property
    def state_numbers(self) -> dict[str, int]:
        return {"steps": self.steps, "attempts": self.attempts}

    def load_state_numbers(self, numbers: Mapping[str, Any]) -> None:
        self.steps, self.attempts = int(numbers["steps"]), int(numbers["attempts"])


def check_fit(what: str, wanted: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray]) -> None:
    """An error that names the first array that is missing, unknown or of another shape."""
    for name in [*wanted, *arrays]:
        if name not in arrays:
            raise TrainingError(f"{what} has no {name!r}; it was saved by another optimizer or for another model")
        if name not in wanted:
            raise TrainingError(f"{what} has {name!r}, which belongs to another optimizer or another model")
        if tuple(arrays[name].shape) != wanted[name]:
            raise TrainingError(f"{what}: {name!r} has the shape {arrays[name].shape}, and {wanted[name]} is needed")


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


def early(xp: Any, beta: float, step: Any) -> Any:
    """1 - βᵗ: how much of its final weight a mean over t steps has. By expm1, since 1 - 0.999 loses digits."""
    return -xp.expm1(step * math.log(beta)) if beta > 0 else 1.0


def _sum_of_squares(parts: list[np.ndarray]) -> float:
    return sum(float(np.dot(part, part)) for part in parts)
