"""The function that `gradient_check` checks: its calls, its gradients, and its change when an input changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from glassbert.errors import InputError


class CheckedFunction:
    """A user's function with its inputs in float64. `problems` and `notes` are texts for the report."""

    def __init__(
        self,
        function: Callable[..., Any] | Sequence[Callable[..., Any]],
        inputs: Any,
        wrt: str | int | Iterable[str | int] | None = None,
    ):
        self.forward, self.separate_backward = _callables(function)
        self.notes: list[str] = []
        self.problems: list[str] = []
        self.evaluations = 0
        self.scale = 1.0  # magnitude of the output, for estimates of rounding errors
        self.arguments, self.call = _arguments(self.forward, inputs)
        self.values: dict[str, np.ndarray] = {}
        for name, value in self.arguments.items():
            array = self._as_float64(name, value)
            if array is not None:
                self.values[name] = array
        self.wrt = self._chosen(wrt)
        self.cotangent: np.ndarray = np.ones(())

    def _as_float64(self, name: str, value: Any) -> np.ndarray | None:
        """A float64 copy, or None if the value is not an array of floats."""
        if type(value).__module__.partition(".")[0] == "mlx":
            raise InputError(f"input {name!r} is an MLX array; differences need float64, so give NumPy arrays")
        if isinstance(value, (float, list, tuple)):
            try:
                value = np.asarray(value)
            except ValueError:
                return None
        if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind not in "fc":
            return None
        if value.dtype.kind == "c":
            raise InputError(f"input {name!r} is complex; gradients are checked for real inputs")
        if value.dtype != np.float64:
            self.note(f"input {name!r} is {value.dtype} and was checked in float64, which differences need")
        array = np.array(value, dtype=np.float64, order="C")
        if not np.isfinite(array).all():
            index = np.argwhere(~np.isfinite(array))[0].tolist()
            raise InputError(f"input {name!r} is not finite at {index}: no derivative can be measured there")
        return array

    def _chosen(self, wrt: str | int | Iterable[str | int] | None) -> list[str]:
        if wrt is None:
            if not self.values:
                raise InputError("none of the inputs is an array of floats, so there is no gradient to check")
            return list(self.values)
        names, chosen = list(self.arguments), []
        for item in [wrt] if isinstance(wrt, (str, int)) else wrt:
            if isinstance(item, int) and -len(names) <= item < len(names):
                item = names[item]
            if item not in self.arguments:
                raise InputError(f"wrt names {item!r}, but the inputs are {', '.join(names)}")
            if item not in self.values:
                raise InputError(f"wrt names {item!r}, which is no array of floats and has no gradient")
            chosen.append(str(item))
        return chosen

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    # ---- calling the function --------------------------------------------------------------------------------------

    def run(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, Any]:
        """The output, and the gradients or a function that computes them."""
        self.evaluations += 1
        result = self.call(self.forward, {**self.arguments, **values})
        if self.separate_backward is not None:
            backward = self.separate_backward
            if isinstance(result, tuple):
                output, *cache = result
                rest = cache[0] if len(cache) == 1 else tuple(cache)
                return _as_array(output), lambda dy: backward(dy, rest)
            arguments = {**self.arguments, **values}
            return _as_array(result), lambda dy: self.call(backward, arguments, dy)
        if not isinstance(result, tuple) or len(result) != 2:
            raise InputError(
                "the function must return (loss, gradients) or (output, backward); "
                f"it returned {_what(result)}. Pass a separate backward as a pair: (forward, backward)"
            )
        return _as_array(result[0]), result[1]

    def analytic(self, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """The function's gradients by name, and the problem of every gradient that cannot be used."""
        before = {name: values.copy() for name, values in self.values.items()}
        output, gradients = self.run(self.values)
        if output.dtype.kind not in "fiu":
            raise InputError(f"the output must be real numbers, got {output.dtype}")
        if output.dtype in (np.float32, np.float16):
            self.note(f"the output is {output.dtype} for float64 inputs: a computation in {output.dtype} is too coarse")
        output = np.array(output, dtype=np.float64)
        if not np.isfinite(output).all():
            self.problems.append(f"the value is not finite at {np.argwhere(~np.isfinite(output))[0].tolist()}")
            return {}, {}
        self.scale = max(float(np.abs(output).max(initial=0.0)), 1e-3) * max(output.size, 1) ** 0.5
        if callable(gradients):
            self.cotangent = rng.standard_normal(output.shape)
            gradients = gradients(self.cotangent.copy())
        elif output.size != 1:
            self.problems.append(
                f"the output has the shape {list(output.shape)}, so its gradients depend on d_output; "
                "return (output, backward) with a function backward(d_output), or reduce the output to a scalar loss"
            )
            return {}, {}
        else:
            self.cotangent = np.ones(output.shape)
        for name, values in before.items():
            if not np.array_equal(values, self.values[name]):
                self.problems.append(f"the function changed its own input {name!r}; it must copy it first")
                self.values[name][...] = values
        again, _ = self.run(self.values)
        if again.shape != output.shape or not np.allclose(again, output, rtol=1e-12, atol=1e-12 * self.scale):
            self.problems.append(
                "two calls with the same inputs gave different values; fix what is random (a dropout mask, a seed)"
            )
        return self._by_name(gradients)

    def _by_name(self, gradients: Any) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        if not isinstance(gradients, Mapping):
            if not isinstance(gradients, (tuple, list)):
                gradients = [gradients]
            names = list(self.arguments) if len(gradients) == len(self.arguments) else self.wrt
            if len(gradients) != len(names):
                raise InputError(
                    f"{len(gradients)} gradients came back for {len(names)} inputs ({', '.join(names)}); "
                    "return a mapping from name to gradient"
                )
            gradients = dict(zip(names, gradients, strict=True))
        found: dict[str, np.ndarray] = {}
        problems: dict[str, str] = {}
        for name in self.wrt:
            wanted = self.values[name].shape
            if name not in gradients or gradients[name] is None:
                came = ", ".join(str(key) for key in gradients if gradients[key] is not None)
                problems[name] = f"no gradient came back for it; gradients came for {came or 'nothing'}"
                continue
            array = np.asarray(gradients[name])
            if array.shape != wanted:
                turned = "; is it transposed?" if array.shape == wanted[::-1] else ""
                problems[name] = f"its gradient has the shape {list(array.shape)}, not its own {list(wanted)}{turned}"
            elif array.dtype.kind not in "fiu":
                problems[name] = f"its gradient is {array.dtype}, not real numbers"
            elif not np.isfinite(array).all():
                problems[name] = f"its gradient is not finite at {np.argwhere(~np.isfinite(array))[0].tolist()}"
            else:
                found[name] = np.array(array, dtype=np.float64)
        return found, problems

    # ---- changing an input -----------------------------------------------------------------------------------------

    def change(self, name: str, indices: np.ndarray, weights: np.ndarray, h: float) -> float:
        """f(x + h·w) - f(x - h·w), reduced to a scalar. The difference is reduced, which loses the fewest digits."""
        values = self.values[name]
        flat = values.reshape(-1)
        saved = flat[indices]
        try:
            flat[indices] = saved + h * weights
            above = np.array(self.run(self.values)[0], dtype=np.float64)
            flat[indices] = saved - h * weights
            below = np.array(self.run(self.values)[0], dtype=np.float64)
        finally:
            flat[indices] = saved
        return float(np.vdot(above - below, self.cotangent))

    def imaginary(self, name: str, indices: np.ndarray, weights: np.ndarray, h: float) -> float:
        """The imaginary part of f(x + ih·w), reduced to a scalar."""
        moved = {key: values.astype(np.complex128) for key, values in self.values.items()}
        moved[name].reshape(-1)[indices] += 1j * h * weights
        output, _ = self.run(moved)
        if output.dtype.kind != "c":
            raise InputError(
                "the function lost the imaginary part of its input, so a complex step cannot measure it; "
                "use method='central'"
            )
        return float(np.vdot(output.imag, self.cotangent))


def _callables(function: Any) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    if isinstance(function, (tuple, list)):
        if len(function) != 2 or not all(callable(f) for f in function):
            raise InputError("a pair (forward, backward) of two functions is needed")
        return function[0], function[1]
    if not callable(function):
        raise InputError(f"the first argument must be a function, got {_what(function)}")
    return function, None


def _arguments(function: Callable[..., Any], inputs: Any) -> tuple[dict[str, Any], Callable[..., Any]]:
    """The inputs by name, and a function that calls another with them (after leading arguments)."""
    if isinstance(inputs, Mapping):
        if not all(isinstance(name, str) for name in inputs):
            raise InputError("the names of the inputs must be strings")
        if _fits(function, (), inputs):
            return dict(inputs), lambda f, arguments, *first: f(*first, **arguments)
        return dict(inputs), lambda f, arguments, *first: f(*first, arguments)
    if isinstance(inputs, (list, tuple)):
        names = _parameter_names(function, len(inputs))
        return dict(zip(names, inputs, strict=True)), lambda f, arguments, *first: f(*first, *arguments.values())
    (name,) = _parameter_names(function, 1)
    return {name: inputs}, lambda f, arguments, *first: f(*first, *arguments.values())


def _fits(function: Callable[..., Any], positional: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*positional, **keywords)
    except (TypeError, ValueError):
        return False
    return True


def _parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """The names of the first parameters of a function, or input0, input1, ... if it has no signature."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        names = [name for name, p in inspect.signature(function).parameters.items() if p.kind in kinds]
    except (TypeError, ValueError):
        names = []
    return names[:count] if len(names) >= count else [f"input{i}" for i in range(count)]


def _as_array(output: Any) -> np.ndarray:
    try:
        array = np.asarray(output)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fciu":
        raise InputError(f"the output must be one array of numbers, got {_what(output)}")
    return array


def _what(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
