"""The check in several processes: the same results in the same order, and one process where several do not fit."""

import dataclasses

import numpy as np
import pytest

from glassbert import gradient_check
from glassbert.errors import GlassBertError
from glassbert.proof.cases import all_cases
from glassbert.proof.mutants import all_mutants, judge
from glassbert.proof.parallel import WORTH, Task, count_for, run_in_processes
from glassbert.proof.proof import choose, prove
from glassbert.proof.referee import check_case


def test_results_are_those_of_one_process_in_the_same_order():
    cases, mutants = choose("mean_pool")
    tasks = [Task(mutants[0].name, True, False, False), *(Task(case.name, False, False, False) for case in cases)]
    names = []
    found = run_in_processes(tasks, 2, names.append)
    alone = [judge(mutants[0]), *(check_case(case, use_mlx=False) for case in cases)]
    assert names == [task.name for task in tasks]
    assert found[0] == alone[0]
    for ours, theirs in zip(found[1:], alone[1:], strict=True):
        assert dataclasses.replace(ours, seconds=0.0) == dataclasses.replace(theirs, seconds=0.0)


def test_a_process_that_ends_is_explained(monkeypatch):
    import glassbert.proof.parallel as parallel

    monkeypatch.setattr(parallel, "run_task", exits)
    with pytest.raises(GlassBertError, match="`--workers 1` needs none"):
        parallel.run_in_processes([Task("any", False, False, False)], 1, lambda name: None)


def exits(task):
    import os

    os._exit(1)


def test_how_many_processes():
    cases, mutants = list(all_cases().values()), list(all_mutants().values())
    assert count_for(4, cases, mutants, "cpu") == 4
    assert count_for(4, cases, mutants, "gpu") == 1
    assert count_for(4, cases[:WORTH], mutants[:WORTH], "cpu") == 2
    assert count_for(4, cases[:3], [], "cpu") == 1
    own = (
        cases[0]._replace(name="mine") if hasattr(cases[0], "_replace") else dataclasses.replace(cases[0], name="mine")
    )
    assert count_for(4, [*cases, own], mutants, "cpu") == 1  # other processes do not know it


def test_both_ways_give_one_proof(monkeypatch):
    """`prove` sorts the results of processes into cases and verdicts."""
    import glassbert.proof.proof as whole

    cases, mutants = choose("mean_pool")
    monkeypatch.setattr(whole, "mlx_in_words", lambda: None)
    monkeypatch.setattr(whole, "count_for", lambda *given: 2)
    monkeypatch.setattr(
        whole,
        "run_in_processes",
        lambda tasks, workers, progress: [
            judge(all_mutants()[t.name]) if t.planted else check_case(all_cases()[t.name], t.use_mlx) for t in tasks
        ],
    )
    proof = prove(cases, mutants, workers=2)
    assert [case.name for case in proof.cases] == [case.name for case in cases]
    assert [verdict.name for verdict in proof.verdicts] == [mutant.name for mutant in mutants]
    assert proof.ok


def test_the_first_fault_ends_a_comparison():
    def function(a, b, c):
        return (a * b * c).sum(), {"a": b * c, "b": 2 * a * c, "c": a * b}

    inputs = {name: np.array([1.0, -2.0]) + place for place, name in enumerate("abc")}
    assert [tensor.ok for tensor in gradient_check(function, inputs)] == [True, False, True]
    short = gradient_check(function, inputs, first_fault=True)
    assert [tensor.ok for tensor in short] == [True, False]
    assert not short.ok
