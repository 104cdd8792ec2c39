"""Muon: for matrices, steps whose singular values are all about one.

    m = μ m + (1 - μ) g
    u = (1 - μ) g + μ m                   Nesterov momentum
    p = p - lr · (0.2 √max(rows, columns) · orthogonal(u) + λ p)

With u = U S Vᵀ, orthogonal(u) is about U Vᵀ: every direction of the matrix has the same step size, also those with a
small gradient. Five iterations of a polynomial move all singular values towards one without computing them:

    x ← a x + (b x xᵀ + c (x xᵀ)²) x       (a, b, c) = (3.4445, -4.7750, 2.0315)

An orthogonal matrix has entries of size 1/√max(rows, columns). The factor 0.2 √max gives steps of about the size of
AdamW's, so both use one learning rate and one decay. Muon updates the matrices inside the layers, with queries, keys
and values as separate matrices; AdamW updates embeddings, heads, norms and biases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from glassbert.arrays import Array, FlatArrays, FlatGradients, Layout, is_numpy, namespace
from glassbert.engines.threads import run_together
from glassbert.training.optimizers.adamw import AdamW
from glassbert.training.optimizers.base import Buffers, Span

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
TINY = 1e-7
CUDA_STEP = """
    const float seen = finite > 0.0f ? g : 0.0f;
    new_mean = momentum * mean + gain * seen;
    step = gain * seen + momentum * new_mean;
"""


def orthogonal(x: Array, iterations: int) -> Array:
    """About U Vᵀ for x = U S Vᵀ; x [..., rows, columns].

    Derivation: docs/derivations/13-muon.md (13.1), (13.2), (13.3), (13.5)
    """
    xp = namespace(x)
    a, b, c = COEFFICIENTS
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = xp.swapaxes(x, -1, -2)
    x = x / xp.maximum(xp.sqrt((x * x).sum((-2, -1), keepdims=True)), TINY)  # now all singular values are at most one
    if is_numpy(x) and x.shape[-1] >= 2 * x.shape[-2]:  # 16 bits would not do, and MLX may compute in them
        x = orthogonal_of_wide(x, iterations)
        return xp.swapaxes(x, -1, -2) if tall else x
    for _ in range(iterations):
        gram = x @ xp.swapaxes(x, -1, -2)  # the small square: [rows, rows]
        square = gram @ xp.swapaxes(gram, -1, -2)  # = gram²; BLAS halves a product with the transpose
        square *= c
        gram *= b
        gram += square
        x = a * x + gram @ x
    return xp.swapaxes(x, -1, -2) if tall else x


def orthogonal_of_wide(x: np.ndarray, iterations: int) -> np.ndarray:
    """The same iterations on the small square alone, for x [rows, columns] with far more columns than rows.

    Every iterate is x_k = q_k x, and q_k and g_k = x_k x_kᵀ are polynomials of x xᵀ: symmetric, and in any order:

        p = a + b g + c g²        q ← p q        g ← g p²        and at the end  q x

    Derivation: docs/derivations/13-muon.md (13.7)
    """
    a, b, c = COEFFICIENTS
    gram, q = x @ x.swapaxes(-1, -2), None  # [rows, rows]
    for i in range(iterations):
        p = gram @ gram.swapaxes(-1, -2)  # BLAS halves a product with the transpose
        p *= c
        p += b * gram
        p += a * np.eye(p.shape[-1], dtype=x.dtype)
        q = p if q is None else p @ q
        if i + 1 < iterations:
            gram = gram @ (p @ p.swapaxes(-1, -2))
    return x if q is None else q @ x


class Factors(NamedTuple):
    """The factors of AdamW, and three for the matrices."""

    beta1: Any
    gain1: Any
    beta2: Any
    gain2: Any
    rate: Any
    epsilon: Any
    shrink: Any
    momentum: Any
    gain: Any
    matrix_rate: Any


class Muon(AdamW):
    """Two buffers: the mean gradient for all parameters; the mean square only for those that AdamW updates.

    Derivation: docs/derivations/13-muon.md (13.4), (13.6)
    """

    name = "muon"
    no_update = Factors(1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, momentum=1.0, gain=0.0, matrix_rate=0.0)

    def __init__(
        self,
        model: Any,
        learning_rate: float = 2e-3,
        momentum: float = 0.95,
        iterations: int = 5,
        betas: tuple[float, float] = (0.9, 0.98),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        clip: float | None = 1.0,
    ):
        self.momentum = momentum
        self.iterations = iterations
        shapes = model.layout.shapes
        self.matrices = {name: _stacked(name, model.config) for name in shapes if _is_matrix(name, shapes[name])}
        super().__init__(model, learning_rate, betas, epsilon, weight_decay, clip)

    def layout_of(self, buffer: str) -> Layout:
        return (
            self.layout
            if buffer == "mean"
            else Layout({name: self.layout.shapes[name] for name in self._not_matrices()})
        )

    def _not_matrices(self) -> list[str]:
        return [name for name in self.layout.shapes if name not in self.matrices]

    def factors(self, xp: Any, step: Any, learning_rate: Any, scale: Any) -> Factors:  # type: ignore[override]
        adamw = super().factors(xp, step, learning_rate, scale)
        return Factors(*adamw, self.momentum, (1.0 - self.momentum) * scale, learning_rate)

    # ---- NumPy ----------------------------------------------------------------------------------------------------

    def move(self, parameters: FlatArrays, gradients: FlatGradients, norm: float) -> None:
        self.steps += 1
        f = self._factors_by_name(norm, parameters.flat.dtype.type)
        spans, threads = self._spans(self._not_matrices()), self.engine.threads
        pieces = [(name, i) for name, count in self.matrices.items() if name in f for i in range(count)]
        shares: list[tuple[list[Span], list[tuple[str, int]]]] = [(spans[i::threads], []) for i in range(threads)]
        loads = [0.0] * threads
        arrays = (parameters, gradients.buffer, self.state["mean"])
        for piece in sorted(pieces, key=self._work, reverse=True):  # largest first, to the least busy thread
            least = loads.index(min(loads))
            shares[least][1].append(piece)
            loads[least] += self._work(piece)

        def work(share: tuple[list[Span], list[tuple[str, int]]]) -> None:
            self._move_spans(parameters, gradients, f, share[0])
            for name, i in share[1]:
                p, g, mean = (array[name].reshape(self._shape(name))[i] for array in arrays)
                self._move_matrix(p, g, mean, f[name], self.decayed[name])

        run_together(work, shares)

    def _shape(self, name: str) -> tuple[int, int, int]:
        rows, columns = self.layout.shapes[name]
        return self.matrices[name], rows // self.matrices[name], columns

    def _work(self, piece: tuple[str, int]) -> float:
        _, rows, columns = self._shape(piece[0])
        return float(min(rows, columns) ** 2 * max(rows, columns))

    def _move_matrix(self, p: np.ndarray, g: np.ndarray, mean: np.ndarray, f: Factors, decayed: bool) -> None:
        step = f.gain * g
        mean *= f.momentum
        mean += step
        step += f.momentum * mean
        step = orthogonal(step, self.iterations)
        step *= f.matrix_rate * p.dtype.type(_scale(p.shape))
        if decayed:
            p *= f.shrink
        p -= step

    # ---- MLX ------------------------------------------------------------------------------------------------------

    def _move_arrays(
        self, parameters: Buffers, gradients: Buffers, state: Any, f: Any, finite: Any, new_p: Any, new_state: Any
    ) -> None:
        """Matrices of the same shape are stacked for the polynomial, as one batched product."""
        others = {name: own for name, own in f.items() if name not in self.matrices}
        super()._move_arrays(parameters, gradients, state, others, finite, new_p, new_state)
        matrices = {name: own for name, own in f.items() if name in self.matrices}
        stacks = [
            (names, self._steps_of(names, gradients, state["mean"], f[names[0]], finite, new_state["mean"]))
            for names in self._stacks(parameters, matrices)
        ]
        for names, step in self._orthogonal(stacks):
            self._move_stack(names, step, parameters, f[names[0]], new_p)

    def _stacks(self, parameters: Buffers, matrices: Mapping[str, Any]) -> list[list[str]]:
        """The names in lists that are stacked from the start: small ones of one shape, where one launch can do that."""
        groups: dict[Any, list[str]] = {}
        for names in self._together(parameters, matrices):
            for name in names:
                groups.setdefault((names[0], self._shape(name)[1:]), []).append(name)
        done = {name for names in groups.values() for name in names}
        return [*groups.values(), *([name] for name in matrices if name not in done)]

    def _steps_of(self, names: list[str], gradients: Buffers, means: Any, f: Any, finite: Any, new_means: Any) -> Any:
        """[n, rows, columns]: the steps of all matrices in these parameters, before the polynomial."""
        _, rows, columns = self._shape(names[0])
        if len(names) > 1:
            arrays = {"g": [gradients[name] for name in names], "mean": [means[name] for name in names]}
            scalars = {"momentum": f.momentum, "gain": f.gain, "finite": finite}
            dtypes = {"new_mean": self.engine.xp.float32}, {"step": self.engine.compute_dtype}
            found = self.engine.many.each(CUDA_STEP, arrays, scalars, *dtypes)
            new_means.update(zip(names, found["new_mean"], strict=True))
            return found["step"].reshape(-1, rows, columns)
        g = self._finite_gradient(gradients[names[0]], finite)
        mean = new_means[names[0]] = f.momentum * means[names[0]] + f.gain * g
        step = f.gain * g + f.momentum * mean
        return step.reshape(-1, rows, columns).astype(self.engine.compute_dtype)

    def _orthogonal(self, stacks: list[tuple[list[str], Any]]) -> Iterator[tuple[list[str], Any]]:
        """The stacks with `orthogonal` steps; tall matrices are transposed, to be computed with the wide ones."""
        xp = self.engine.xp
        groups: dict[tuple[int, ...], list[tuple[list[str], Any]]] = {}
        for names, step in stacks:
            wide = step if step.shape[-2] <= step.shape[-1] else xp.swapaxes(step, -1, -2)
            groups.setdefault(tuple(wide.shape[-2:]), []).append((names, wide))
        for group in groups.values():
            together = orthogonal(xp.concatenate([wide for _, wide in group]), self.iterations)
            start = 0
            for names, wide in group:
                step = together[start : start + wide.shape[0]]
                start += wide.shape[0]
                _, rows, columns = self._shape(names[0])
                yield names, step if rows <= columns else xp.swapaxes(step, -1, -2)

    def _move_stack(self, names: list[str], step: Any, parameters: Buffers, f: Any, new_p: Any) -> None:
        xp, (_, rows, columns) = self.engine.xp, self._shape(names[0])
        rate = f.matrix_rate * _scale((rows, columns))
        if len(names) > 1:
            flat = step.reshape(-1)
            ends = list(accumulate(parameters[name].size for name in names))
            steps = [flat[end - parameters[name].size : end] for name, end in zip(names, ends, strict=True)]
            kept = "p * shrink" if self.decayed[names[0]] else "p"
            arrays, scalars = {"p": [parameters[name] for name in names], "step": steps}, {"shrink": f.shrink}
            found = self.engine.many.each(
                f"new_p = {kept} - matrix_rate * step;", arrays, {**scalars, "matrix_rate": rate}, {"new_p": xp.float32}
            )
            new_p.update(zip(names, found["new_p"], strict=True))
            return
        p = parameters[names[0]]
        shrunk = p * f.shrink if self.decayed[names[0]] else p
        new_p[names[0]] = shrunk - rate * step.astype(xp.float32).reshape(p.shape)


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    return (name.startswith("layers.") or ".layers." in name) and len(shape) == 2


def _stacked(name: str, config: Any) -> int:
    """The number of matrices in one parameter: 3 for query, key and value; 2 in a gated feed-forward layer."""
    if name.endswith("attention.qkv.weight"):
        return 3
    return 2 if config.gated and name.endswith("ffn.up.weight") else 1


def _scale(shape: tuple[int, ...]) -> float:
    return 0.2 * max(shape) ** 0.5
