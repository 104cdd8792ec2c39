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

from glassbert.arrays import Array, FlatArrays, FlatGradients, Layout
from glassbert.engines.threads import run_together
from glassbert.errors import TrainingError
from glassbert.training.optimizers.checks import CHECKS, check_fit
from glassbert.training.optimizers.rates import Rates

CHUNK = 131_072  # elements: small enough for the cache, long enough that threads rarely meet at the interpreter's lock

Buffers = Mapping[str, Array]
Span = tuple[str, int, int]  # a piece of the flattened parameter of that name


class Optimizer(ABC):
    """Named buffers beside the parameters, and the step. On NumPy it works in place; on MLX it is a pure function.

    `learning_rate` may be set before every step, and so may `rates`, a factor on it by the name of a parameter; the
    other settings stay as they were given.
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
        self.rates = None
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

    # ---- who learns, and how fast -----------------------------------------------------------------------------------

    @property
    def rates(self) -> Mapping[str, float] | None:
        """A factor on the learning rate by parameter; one that is not named has 1, and one with 0 stands still."""
        return self._rates.given

    @rates.setter
    def rates(self, given: Mapping[str, float] | None) -> None:
        self._rates = Rates(self.layout.shapes, given)

    @property
    def learning(self) -> frozenset[str] | None:
        """The parameters that do not stand still; None where all of them learn."""
        return self._rates.learning

    @property
    def learning_rates(self) -> float | list[float]:
        """What a compiled step is given: the learning rate, or that of every group of parameters."""
        if self.rates is None:
            return self.learning_rate
        return [self.learning_rate * factor for factor in self._rates.groups]

    @property
    def compiled_with(self) -> tuple[Any, ...]:
        """What a compiled step has inside; with anything else here it must be compiled anew."""
        groups = () if self.rates is None else tuple(self._rates.group_of.items())
        return *self.settings.items(), groups

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
        """√Σ g² over all parameters that learn, together."""
        parts = gradients.nonzero_parts(self.learning)
        pieces = [part[i : i + CHUNK] for part in parts for i in range(0, len(part), CHUNK)]
        threads = self.engine.threads
        return math.sqrt(sum(run_together(_sum_of_squares, [pieces[i::threads] for i in range(threads)])))

    def move(self, parameters: FlatArrays, gradients: FlatGradients, norm: float) -> None:
        self.steps += 1
        f = self._factors_for(norm, parameters.flat.dtype.type)
        spans, threads = self._spans(self.layout.shapes), self.engine.threads
        work = functools.partial(self._walk, parameters, gradients, f)
        run_together(work, [spans[i::threads] for i in range(threads)])

    def _factors_for(self, norm: float, kind: Any) -> dict[str, Any]:
        """The scalars of this step for every parameter that learns."""
        scale = 1.0 if self.clip is None or norm <= self.clip else self.clip / norm
        step, rate = float(self.steps), self.learning_rate
        groups = [self.factors(np, step, rate * factor, scale) for factor in self._rates.groups]
        groups = [type(factors)(*(kind(value) for value in factors)) for factors in groups]
        return {name: groups[group] for name, group in self._rates.group_of.items()}

    def _spans(self, names: Any) -> list[Span]:
        """Those of the named parameters that learn, in chunks."""
        sizes = {name: math.prod(self.layout.shapes[name]) for name in names if name in self._rates.group_of}
        return [(name, i, min(i + CHUNK, size)) for name, size in sizes.items() for i in range(0, size, CHUNK)]

    def _walk(self, parameters: FlatArrays, gradients: FlatGradients, f: Mapping[str, Any], spans: list[Span]) -> None:
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
        """New parameters, new state, the norm of the gradient, and whether norm and loss are finite; to be compiled.

        All from MLX arrays. `step` counts from 1; `learning_rate` is one number, or one for each group of `rates`.
        Where norm or loss is not finite, the new values are the old ones.
        """
        xp = self.engine.xp
        norm = xp.sqrt(self._squares(gradients))
        fine = xp.isfinite(norm + loss)
        scale = xp.minimum(1.0, self.clip / (norm + 1e-12)) if self.clip is not None else xp.array(1.0)
        by_group = learning_rate if learning_rate.ndim else [learning_rate * factor for factor in self._rates.groups]
        groups = [self._fine_factors(step, rate, scale, fine) for rate in by_group]
        f = {name: groups[group] for name, group in self._rates.group_of.items()}
        # What stands still is handed on as it is.
        new_p, new_state = dict(parameters), {buffer: dict(state[buffer]) for buffer in self.buffers}
        self._move_arrays(parameters, gradients, state, f, fine, new_p, new_state)
        return new_p, new_state, norm, fine

    def _squares(self, gradients: Buffers) -> Any:
        """Σ g² over all parameters that learn."""
        xp = self.engine.xp
        return xp.stack([xp.square(gradients[name].astype(xp.float32)).sum() for name in self._rates.group_of]).sum()

    def _fine_factors(self, step: Any, learning_rate: Any, scale: Any, fine: Any) -> Any:
        """The scalars of a step, or those with which nothing moves.

        Every one is a scalar array, so that the whole update of a parameter compiles to one pass over memory.
        """
        xp, f = self.engine.xp, self.factors(self.engine.xp, step, learning_rate, scale)
        still = zip(f, self.standing_still, strict=True)
        return type(f)(*(xp.array(value) if stop is None else xp.where(fine, value, stop) for value, stop in still))

    def _move_arrays(
        self, parameters: Buffers, gradients: Buffers, state: Any, f: Any, fine: Any, new_p: Any, new_state: Any
    ) -> None:
        for name in f:
            self._move_array(name, parameters[name], gradients[name], state, f[name], fine, new_p, new_state)

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
    @functools.cache  # asked for in every step, and slow to find
    def setting_names(cls) -> tuple[str, ...]:
        return tuple(name for name in inspect.signature(cls).parameters if name != "model")

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


def early(xp: Any, beta: float, step: Any) -> Any:
    """1 - βᵗ: how much of its final weight a mean over t steps has. By expm1, since 1 - 0.999 loses digits."""
    return -xp.expm1(step * math.log(beta)) if beta > 0 else 1.0


def _sum_of_squares(parts: list[np.ndarray]) -> float:
    return sum(float(np.dot(part, part)) for part in parts)
