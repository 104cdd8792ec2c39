"""Runs the cases: each gradient against finite differences, in float32, on MLX, and against MLX's autograd."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glassbert.engines import get_engine
from glassbert.ops.registry import plain_operations
from glassbert.proof.cases import Case, Fixture
from glassbert.proof.gradient_check import gradient_check
from glassbert.proof.report import GradientReport

TOLERANCE = 1e-6  # float64 against finite differences
PLAIN_TOLERANCE = 1e-10  # a kernel against the lesson's own code, both float64
FLOAT32_TOLERANCE = 1e-4  # float32, on either engine, against float64
EVERY_ENTRY = 4_096  # larger tensors than this are sampled even where every entry is asked for
NEGLIGIBLE = 1e-2  # gradients so much smaller than the largest of their case are compared on its scale


@dataclass(frozen=True)
class CaseResult:
    """What became of one case. Every number is the largest relative error over its tensors; None: not applicable.

    error         float64 gradient against finite differences or a complex step
    plain         float64 gradient by the engine's kernels against the operations as the lesson has them
    float32       float32 gradient against the float64 one
    mlx           our backward on MLX against the float64 one on NumPy
    mlx_autograd  our backward on MLX against MLX's own differentiation of our plain forward
    """

    name: str
    kind: str
    subject: str
    error: float
    plain: float
    float32: float
    mlx: float | None
    mlx_autograd: float | None
    ok: bool
    reason: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no infinity."""
        values = asdict(self)
        return {k: (None if isinstance(v, float) and not np.isfinite(v) else v) for k, v in values.items()}


def check_case(case: Case, use_mlx: bool = True, every_entry: bool = False) -> CaseResult:
    """Run one case with every witness there is. A case that breaks down has failed; the others go on."""
    started = time.perf_counter()
    try:
        return _check(case, use_mlx, every_entry, started)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - started
        return CaseResult(
            case.name, case.kind, case.subject, np.inf, np.inf, np.inf, None, None, False, reason, seconds
        )


def _check(case: Case, use_mlx: bool, every_entry: bool, started: float) -> CaseResult:
    fixture = case.build()
    reasons = []
    with fixture.around():
        report = differences(fixture, every_entry)
        if not report.ok:
            reasons.append(_reason(report))
        exact = gradients_on("numpy", "float64", fixture)
        with plain_operations():
            plain = _largest(gradients_on("numpy", "float64", fixture), exact)
        float32 = _largest(gradients_on("numpy", "float32", fixture), exact)
        mlx = autograd = None
        if use_mlx and fixture.on_mlx:
            ours, theirs = gradients_on_mlx(fixture)
            mlx = _largest(ours, exact) if fixture.engines_agree else None
            autograd = _largest(ours, theirs)
    for what, value, limit in (
        ("kernels and plain operations differ", plain, PLAIN_TOLERANCE),
        ("float32 differs from float64", float32, FLOAT32_TOLERANCE),
        ("MLX differs from NumPy", mlx, FLOAT32_TOLERANCE),
        ("MLX differs from its autograd", autograd, FLOAT32_TOLERANCE),
    ):
        if value is not None and not value <= limit:
            reasons.append(f"{what} by {value:.1e}")
    return CaseResult(
        case.name, case.kind, case.subject, report.error, plain, float32, mlx, autograd, not reasons,
        "; ".join(reasons), time.perf_counter() - started,
    )  # fmt: skip


def differences(fixture: Fixture, every_entry: bool = False) -> GradientReport:
    """The case's float64 gradients against finite differences; the caller enters `fixture.around()`."""
    engine = get_engine("numpy", "float64", fixture.threads)
    return gradient_check(
        lambda inputs: fixture.function(engine, inputs),
        fixture.inputs,
        method=fixture.method,
        entries=EVERY_ENTRY if every_entry else fixture.entries,
        directions=1,
        tolerance=TOLERANCE,
    )


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape)


def gradients_on(engine_name: str, dtype: str, fixture: Fixture) -> dict[str, np.ndarray]:
    """The case's gradients on one engine, as NumPy arrays."""
    engine = get_engine(engine_name, dtype, fixture.threads)
    inputs = {name: engine.array(values) for name, values in fixture.inputs.items()}
    output, backward = fixture.function(engine, inputs)
    found = backward(engine.array(cotangent(tuple(output.shape))))
    return {name: engine.to_numpy(found[name]) for name in inputs}


def gradients_on_mlx(fixture: Fixture) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The case's gradients on MLX: by our backward, and by MLX's own differentiation of our forward."""
    os.environ.setdefault("MLX_ENABLE_TF32", "0")  # on NVIDIA: products of float32 with all their digits
    import mlx.core as mx

    engine = get_engine("mlx")
    inputs = {name: engine.array(values) for name, values in fixture.inputs.items()}
    output, backward = fixture.function(engine, inputs)
    dy = engine.array(cotangent(tuple(output.shape)))
    found = backward(dy)
    ours = {name: engine.to_numpy(found[name]) for name in inputs}

    def forward(*values: Any) -> list[Any]:
        return [fixture.function(engine, dict(zip(inputs, values, strict=True)))[0]]

    with plain_operations():  # without our kernels, so that the witness is independent of them
        _, derived = mx.vjp(forward, list(inputs.values()), [dy])
    return ours, {name: engine.to_numpy(d) for name, d in zip(inputs, derived, strict=True)}


def _largest(found: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> float:
    """The largest relative difference of any tensor; infinite where one has the wrong shape or is not finite."""
    norms = {name: float(np.linalg.norm(values)) for name, values in right.items()}
    floor = max(NEGLIGIBLE * max(norms.values()), 1e-30)
    largest = 0.0
    for name, values in right.items():
        if found[name].shape != values.shape or not np.isfinite(found[name]).all():
            return float("inf")
        other = found[name].astype(np.float64)
        size = max(float(np.linalg.norm(other)) + norms[name], floor)
        largest = max(largest, float(np.linalg.norm(other - values)) / size)
    return largest


def _reason(report: GradientReport) -> str:
    if report.problems:
        return "; ".join(report.problems)
    worst = report.worst
    return "" if worst is None else f"{worst.name}: {worst}"
