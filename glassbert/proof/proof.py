"""The whole check: choose cases and mutants, run them, and collect the results."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from glassbert.errors import InputError
from glassbert.proof.cases import Case, all_cases
from glassbert.proof.mutants import Mutant, Verdict, all_mutants, judge, suspected
from glassbert.proof.parallel import Task, count_for, run_in_processes
from glassbert.proof.referee import CaseResult, check_case


@dataclass(frozen=True)
class Proof:
    """The results of all cases and mutants. It is ok if every case passed and every mutant was caught."""

    cases: list[CaseResult]
    verdicts: list[Verdict]
    mlx: str | None
    seconds: float

    @property
    def mutants(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if not verdict.harmless]

    @property
    def controls(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.harmless]

    @property
    def ok(self) -> bool:
        return all(case.ok for case in self.cases) and all(verdict.ok for verdict in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "cases": [case.as_dict() for case in self.cases],
            "mutants": [{"name": v.name, "caught": v.caught, "by": v.by} for v in self.mutants],
            "controls": [{"name": v.name, "flagged": v.caught, "by": v.by} for v in self.controls],
            "mlx": self.mlx,
            "seconds": round(self.seconds, 3),
        }


def mlx_in_words() -> str | None:
    """The version of MLX and its device, or None if MLX is not installed or does not run."""
    try:
        import mlx.core as mx

        return f"{version('mlx')} ({str(mx.default_device().type).rpartition('.')[2]})"
    except Exception:  # not installed, or installed without the libraries it needs
        return None


def choose(
    only: str | Sequence[str] | None, with_mutants: bool = True, own_only: bool = False
) -> tuple[list[Case], list[Mutant]]:
    """The cases whose kind or name contains one of `only` (* and ? stand for anything), and the mutants they face."""
    patterns = [only] if isinstance(only, str) else list(only or ())
    cases = list(all_cases().values())
    if own_only:
        cases, with_mutants = own_cases(), False
    mutants = list(all_mutants().values()) if with_mutants else []
    if not patterns:
        return cases, mutants

    def fits(name: str) -> bool:
        return any(fnmatch.fnmatch(name.lower(), f"*{pattern.lower()}*") for pattern in patterns)

    chosen = [case for case in cases if fits(case.name) or fits(case.kind)]
    chosen_mutants = [m for m in mutants if fits(m.name) or any(case in chosen for case in suspected(m))]
    if not chosen and not chosen_mutants:
        subjects = ", ".join(dict.fromkeys(case.subject for case in cases))
        asked = " or ".join(map(repr, patterns))
        raise InputError(f"no case and no mutant fits {asked}; the cases are about {subjects}")
    return chosen, chosen_mutants


def own_cases() -> list[Case]:
    """The cases of what extensions have registered."""
    from glassbert.proof.extension_cases import extension_cases

    found = extension_cases()
    if not found:
        raise InputError("the file given with --with registers nothing that has a gradient (docs/extending.md)")
    return found


def prove(
    cases: list[Case],
    mutants: list[Mutant],
    every_entry: bool = False,
    progress: Callable[[str], None] = lambda name: None,
    workers: int = 1,
) -> Proof:
    """Run every case and every mutant in at most so many processes; `progress` is called with the name of each."""
    started = time.perf_counter()
    mlx = mlx_in_words()
    results: list[CaseResult] = []
    verdicts: list[Verdict] = []
    workers = count_for(workers, cases, mutants, "gpu" if mlx and "gpu" in mlx else "cpu")
    if workers > 1:
        tasks = [Task(case.name, False, mlx is not None, every_entry) for case in cases]
        tasks += [Task(mutant.name, True, mlx is not None, every_entry) for mutant in mutants]
        for found in run_in_processes(tasks, workers, progress):
            if isinstance(found, Verdict):
                verdicts.append(found)
            else:
                results.append(found)
        return Proof(results, verdicts, mlx, time.perf_counter() - started)
    for case in cases:
        progress(case.name)
        results.append(check_case(case, mlx is not None, every_entry))
    for mutant in mutants:
        progress(mutant.name)
        verdicts.append(judge(mutant))
    return Proof(results, verdicts, mlx, time.perf_counter() - started)
