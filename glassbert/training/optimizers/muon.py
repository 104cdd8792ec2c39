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

from typing import Any, NamedTuple

import numpy as np

from glassbert.arrays import Array, FlatArrays, FlatGradients, Layout, namespace
from glassbert.engines.threads import run_together
from glassbert.training.optimizers.adamw import AdamW
from glassbert.training.optimizers.base import Buffers, Span

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
TINY = 1e-7


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
    for _ in range(iterations):
        gram = x @ xp.swapaxes(x, -1, -2)  # the small square: [rows, rows]
        square = gram @ xp.swapaxes(gram, -1, -2)  # = gram²; BLAS halves a product with the transpose
        square *= c
        gram *= b
        gram += square
        x = a * x + gram @ x
    return xp.swapaxes(x, -1, -2) if tall else x


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
        xp = self.engine.xp
        groups: dict[tuple[int, int], list[tuple[str, Any]]] = {}
        for name, own in f.items():
            if name not in self.matrices:
                self._move_array(name, parameters[name], gradients[name], state, own, finite, new_p, new_state)
                continue
            g = self._finite_gradient(gradients[name], finite)
            mean = new_state["mean"][name] = own.momentum * state["mean"][name] + own.gain * g
            step = (own.gain * g + own.momentum * mean).reshape(self._shape(name)).astype(self.engine.compute_dtype)
            wide = step if step.shape[-2] <= step.shape[-1] else xp.swapaxes(step, -1, -2)
            groups.setdefault(tuple(wide.shape[-2:]), []).append((name, wide))
        for group in groups.values():
            together = orthogonal(xp.concatenate([step for _, step in group]), self.iterations)
            start = 0
            for name, step in group:
                count, rows, columns = self._shape(name)
                step = together[start : start + count].astype(xp.float32)
                start += count
                step = (step if rows <= columns else xp.swapaxes(step, -1, -2)).reshape(rows * count, columns)
                p = parameters[name]
                shrunk = p * f[name].shrink if self.decayed[name] else p
                new_p[name] = shrunk - f[name].matrix_rate * _scale((rows, columns)) * step


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    return (name.startswith("layers.") or ".layers." in name) and len(shape) == 2


def _stacked(name: str, config: Any) -> int:
    """The number of matrices in one parameter: 3 for query, key and value; 2 in a gated feed-forward layer."""
    if name.endswith("attention.qkv.weight"):
        return 3
    return 2 if config.gated and name.endswith("ffn.up.weight") else 1


def _scale(shape: tuple[int, ...]) -> float:
    return 0.2 * max(shape) ** 0.5
