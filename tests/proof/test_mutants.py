"""The checker is checked: every wrong gradient is caught, and no right one is flagged."""

import pytest

from glassbert.ops.registry import KERNELS
from glassbert.proof.cases import all_cases
from glassbert.proof.mutants import Mutant, all_mutants, judge, suspected
from glassbert.proof.referee import differences

MUTANTS = all_mutants()
HARMFUL = [name for name, mutant in MUTANTS.items() if not mutant.harmless]
HARMLESS = [name for name, mutant in MUTANTS.items() if mutant.harmless]


def test_the_zoo_is_large_enough():
    assert len(HARMFUL) >= 30 and len(HARMLESS) >= 2


@pytest.mark.parametrize("name", HARMFUL)
def test_a_wrong_gradient_is_caught(name):
    verdict = judge(MUTANTS[name])
    assert verdict.caught and verdict.ok, f"{name!r} survived"
    assert verdict.by in all_cases()


@pytest.mark.parametrize("name", HARMLESS)
def test_a_right_gradient_in_disguise_is_not_flagged(name):
    verdict = judge(MUTANTS[name])
    assert not verdict.caught and verdict.ok, f"flagged by {verdict.by}"


def test_every_mutant_has_suspects():
    for mutant in MUTANTS.values():
        assert suspected(mutant), mutant.name


def test_a_mutant_leaves_nothing_behind():
    case = all_cases()["softmax: square, three axes"]
    kernels = {engine: dict(table) for engine, table in KERNELS.items()}
    for mutant in MUTANTS.values():
        with mutant.planted():
            pass
    assert {engine: dict(table) for engine, table in KERNELS.items()} == kernels
    assert differences(case.build()).ok


def test_a_survivor_is_reported_as_such():
    import contextlib

    innocent = Mutant("does nothing", contextlib.nullcontext, ("softmax",))
    assert judge(innocent) == ("does nothing", False, None, False)
    assert not judge(innocent).ok
