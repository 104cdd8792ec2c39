"""Runs the cases: each gradient against finite differences, kernels against plain operations, MLX against NumPy."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from glassbert.engines import Engine, bfloat16_kernels, get_engine, onednn
from glassbert.proof.cases import Case, Fixture, settings
from glassbert.proof.gradient_check import gradient_check
from glassbert.proof.report import GradientReport

PLAIN, FAST = "plain", "fast"
TOLERANCE = 1e-6  # float64 against finite differences
KERNEL_TOLERANCE = {"float64": 1e-10, "float32": 2e-5}  # a kernel against the plain operations, same precision
# The kernels with bfloat16 products against the plain operations in float32: a number has 8 bits, and the softmax of
# large scores multiplies their rounding.
BFLOAT16_TOLERANCE = {"linear": 5e-3, "attention": 4e-2}
FLOAT32_TOLERANCE = 1e-4  # float32, on either engine, against float64
EVERY_ENTRY = 4_096  # larger tensors are sampled even with --every-entry
NEGLIGIBLE = 1e-2  # gradients so much smaller than the largest of their case are compared on its scale


@dataclass(frozen=True)
class CaseResult:
    """The result of one case. Every number is the largest relative error over its tensors; None: not applicable.

    error         float64 gradient of the plain operations against finite differences or a complex step
    plain         output and gradients by NumPy's kernels against the plain operations, both float64
    float32       gradients by NumPy's kernels in float32 against the float64 ones
    kernels       output and gradients by the kernels in float32 against the plain operations in float32
    mlx           our backward on MLX against the float64 one on NumPy
    mlx_autograd  our backward on MLX against MLX's own differentiation of our plain forward
    bfloat16      output and gradients by NumPy's kernels with bfloat16 products against the plain operations in float32
    """

    name: str
    kind: str
    subject: str
    error: float
    plain: float
    float32: float
    kernels: float
    mlx: float | None
    mlx_autograd: float | None
    bfloat16: float | None
    ok: bool
    reason: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """As JSON values; infinities become None."""
        values = asdict(self)
        return {k: (None if isinstance(v, float) and not np.isfinite(v) else v) for k, v in values.items()}


def check_case(case: Case, use_mlx: bool = True, every_entry: bool = False) -> CaseResult:
    """Run one case with every comparison there is. A case that raises an error has failed; the others go on."""
    started = time.perf_counter()
    try:
        return _check(case, use_mlx, every_entry, started)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - started
        return CaseResult(
            case.name, case.kind, case.subject, np.inf, np.inf, np.inf, np.inf, None, None, None, False, reason, seconds
        )


def _check(case: Case, use_mlx: bool, every_entry: bool, started: float) -> CaseResult:
    fixture = case.build()
    reasons = []
    with fixture.around():
        report = differences(fixture, every_entry)
        if not report.ok:
            reasons.append(_reason(report))
        exact = results_on(get_engine("numpy", "float64", fixture.threads, PLAIN), fixture)
        fast = results_on(get_engine("numpy", "float64", fixture.threads), fixture)
        plain = _largest(fast, exact)
        float32 = _largest(results_on(get_engine("numpy", "float32", fixture.threads), fixture), exact)
        kernels = _kernel_difference(get_engine("numpy", "float32", fixture.threads), fixture)
        if case.kind == "op":
            reasons += non_finite_faults(get_engine("numpy", "float32", fixture.threads), fixture)
        bfloat16, fault = bfloat16_fault(case.subject, fixture)
        reasons += [fault] if fault else []
        mlx = autograd = None
        if use_mlx and fixture.on_mlx:
            ours, theirs = gradients_on_mlx(fixture)
            mlx = _largest(ours, exact) if fixture.engines_agree else None
            autograd = _largest(ours, theirs)
            if case.kind == "op":
                kernels = max(kernels, _kernel_difference(get_engine("mlx"), fixture))
    for what, value, limit in (
        ("kernels and plain operations differ in float64", plain, KERNEL_TOLERANCE["float64"]),
        ("float32 differs from float64", float32, FLOAT32_TOLERANCE),
        ("kernels and plain operations differ in float32", kernels, KERNEL_TOLERANCE["float32"]),
        ("MLX differs from NumPy", mlx, FLOAT32_TOLERANCE),
        ("MLX differs from its autograd", autograd, FLOAT32_TOLERANCE),
    ):
        if value is not None and not value <= limit:
            reasons.append(f"{what} by {value:.1e}")
    return CaseResult(
        case.name, case.kind, case.subject, report.error, plain, float32, kernels, mlx, autograd, bfloat16, not reasons,
        "; ".join(reasons), time.perf_counter() - started,
    )  # fmt: skip


def kernel_fault(fixture: Fixture, engine: Engine) -> str:
    """The difference between the kernels of an engine and the plain operations in this case; "" if they agree."""
    difference = _kernel_difference(engine, fixture)
    if not difference <= KERNEL_TOLERANCE["float32"]:
        return f"kernels and plain operations differ by {difference:.1e}"
    return "; ".join(non_finite_faults(engine, fixture)) if engine.name == "numpy" else ""


def bfloat16_fault(
    subject: str, fixture: Fixture, replaced: Mapping[str, Any] | None = None
) -> tuple[float | None, str]:
    """How far the kernels with bfloat16 products are from the plain operations, and what is wrong about it.

    Kernels may be replaced, by the names of their operations. None: `subject` has none, or this machine has none.
    """
    if subject not in BFLOAT16_TOLERANCE or onednn.why_not():
        return None, ""
    engine = get_engine("numpy", "bfloat16", fixture.threads).with_operations(replaced or {})
    with settings(bfloat16_kernels, FEW_ROWS=0, FEW_QUERIES=0):  # the smallest cases too
        difference = _kernel_difference(engine, fixture)
        faults = non_finite_faults(engine, fixture)
    if not difference <= BFLOAT16_TOLERANCE[subject]:
        faults.append(f"bfloat16 kernels and plain operations differ by {difference:.1e}")
    return difference, "; ".join(faults)


def _kernel_difference(engine: Engine, fixture: Fixture) -> float:
    return _largest(results_on(engine, fixture), results_on(engine.with_kernels(PLAIN), fixture))


def non_finite_faults(engine: Engine, fixture: Fixture) -> list[str]:
    """NaN and infinities in an input must come out of the kernels as they come out of the plain operations."""
    faults = []
    for value in (np.nan, np.inf, -np.inf):
        for name, array in fixture.inputs.items():
            planted = array.copy()
            planted.reshape(-1)[planted.size // 2] = value
            spoiled = replace(fixture, inputs={**fixture.inputs, name: planted})
            with np.errstate(all="ignore"):
                found = results_on(engine, spoiled)
                right = results_on(engine.with_kernels(PLAIN), spoiled)
            for what, plain in right.items():
                if not _same_kinds(found[what], plain):
                    faults.append(f"{value} in {name} gives another {what} than the plain operation")
    return faults


def _same_kinds(found: np.ndarray, right: np.ndarray) -> bool:
    """Whether NaN and infinities are in the same places."""
    return all(np.array_equal(kind(found), kind(right)) for kind in (np.isnan, np.isposinf, np.isneginf))


def differences(
    fixture: Fixture, every_entry: bool = False, engine: Engine | None = None, first_fault: bool = False
) -> GradientReport:
    """The case's float64 gradients against finite differences; the caller enters `fixture.around()`.

    With `first_fault` the tensors after the first wrong one are left out.
    """
    engine = engine or get_engine("numpy", "float64", fixture.threads, PLAIN)
    return gradient_check(
        lambda inputs: fixture.function(engine, inputs),
        fixture.inputs,
        method=fixture.method,
        entries=EVERY_ENTRY if every_entry else fixture.entries,
        directions=1,
        tolerance=TOLERANCE,
        first_fault=first_fault,
    )


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape)


OUTPUT = "output"


def results_on(engine: Engine, fixture: Fixture) -> dict[str, np.ndarray]:
    """The case's output and gradients on one engine, as NumPy arrays."""
    inputs = {name: engine.array(values) for name, values in fixture.inputs.items()}
    output, backward = fixture.function(engine, inputs)
    value = np.array(engine.to_numpy(output))
    found = backward(engine.array(cotangent(tuple(output.shape))))
    return {OUTPUT: value, **{name: np.array(engine.to_numpy(found[name])) for name in inputs}}


def gradients_on_mlx(fixture: Fixture) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The case's gradients on MLX: by our backward, and by MLX's own differentiation of our forward."""
    os.environ.setdefault("MLX_ENABLE_TF32", "0")  # on NVIDIA: float32 products in full precision
    import mlx.core as mx

    engine = get_engine("mlx")
    inputs = {name: engine.array(values) for name, values in fixture.inputs.items()}
    ours = results_on(engine, fixture)
    plain = engine.with_kernels(PLAIN)  # without our kernels, so that the comparison is independent of them

    def forward(*values: Any) -> list[Any]:
        return [fixture.function(plain, dict(zip(inputs, values, strict=True)))[0]]

    output, derived = mx.vjp(forward, list(inputs.values()), [engine.array(cotangent(ours[OUTPUT].shape))])
    theirs = {name: engine.to_numpy(d) for name, d in zip(inputs, derived, strict=True)}
    return ours, {OUTPUT: engine.to_numpy(output[0]), **theirs}


def _largest(found: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> float:
    """The largest relative difference of any tensor; infinite if one has the wrong shape or is not finite."""
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
