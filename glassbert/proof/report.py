"""The result of `gradient_check`: a verdict for every tensor, problems and notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

APPROXIMATE = 1e-2  # relative error up to which a gradient is called approximate


@dataclass(frozen=True)
class TensorCheck:
    """The comparison of one gradient with the numeric derivative.

    error           |analytic - numeric| / (|analytic| + |numeric|), norms over all compared numbers
    max_difference  the largest difference of a single number
    worst           the index of that number; None for a random direction
    problem         why nothing could be compared: a missing gradient, a wrong shape, NaN; None otherwise
    """

    name: str
    shape: tuple[int, ...]
    tolerance: float
    error: float = 0.0
    max_difference: float = 0.0
    worst: tuple[int, ...] | None = None
    analytic: float = 0.0
    numeric: float = 0.0
    compared: str = ""
    problem: str | None = None

    @property
    def verdict(self) -> str:
        if self.problem is not None:
            return "WRONG"
        if self.error <= self.tolerance:
            return "exact"
        return "approximate" if self.error <= APPROXIMATE else "WRONG"

    @property
    def ok(self) -> bool:
        return self.verdict == "exact"

    def __str__(self) -> str:
        if self.problem is not None:
            return f"{self.verdict}: {self.problem}"
        line = f"{self.verdict}, max difference {self.max_difference:.1e}, error {self.error:.1e} over {self.compared}"
        if self.ok:
            return line
        where = "along a random direction" if self.worst is None else f"at {list(self.worst)}"
        return f"{line}; worst {where}: analytic {self.analytic:.9g}, numeric {self.numeric:.9g}"


@dataclass(frozen=True)
class GradientReport:
    """The verdicts by name (`report["gamma"]`), and whether all are exact (`report.ok`). Prints as a table."""

    tensors: tuple[TensorCheck, ...]
    tolerance: float
    method: str
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    evaluations: int = field(default=0, compare=False)

    @property
    def ok(self) -> bool:
        return not self.problems and all(tensor.ok for tensor in self.tensors)

    @property
    def error(self) -> float:
        """The largest error of all tensors; infinite if something could not be compared."""
        if self.problems or any(tensor.problem is not None for tensor in self.tensors):
            return float("inf")
        return max((tensor.error for tensor in self.tensors), default=0.0)

    @property
    def worst(self) -> TensorCheck | None:
        """The tensor with the largest error."""
        return max(self.tensors, key=lambda t: (t.problem is not None, t.error), default=None)

    def __getitem__(self, name: str | int) -> TensorCheck:
        if isinstance(name, int):
            return self.tensors[name]
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(f"{name!r} was not checked; checked were {', '.join(t.name for t in self.tensors)}")

    def __iter__(self) -> Iterator[TensorCheck]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __str__(self) -> str:
        how = {"central": "central differences", "complex": "a complex step"}[self.method]
        lines = [f"{'ok' if self.ok else 'NOT OK'}: gradients against {how}, tolerance {self.tolerance:.0e}"]
        lines += [f"  problem: {problem}" for problem in self.problems]
        names = [f"{tensor.name} {list(tensor.shape)}" for tensor in self.tensors]
        width = max(map(len, names), default=0)
        lines += [f"  {name:<{width}}  {tensor}" for name, tensor in zip(names, self.tensors, strict=True)]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)
