"""The checker is checked: every planted fault is caught, and no right gradient is flagged."""

import pytest

from glassbert import get_engine
from glassbert.engines import bfloat16_kernels, numpy_kernels, onednn
from glassbert.ops.registry import OPERATIONS, operation_names
from glassbert.proof.cases import all_cases
from glassbert.proof.mutants import Mutant, all_mutants, judge, suspected
from glassbert.proof.proof import mlx_in_words
from glassbert.proof.referee import differences, kernel_fault

MUTANTS = all_mutants()
HARMFUL = [name for name, mutant in MUTANTS.items() if not mutant.harmless]
HARMLESS = [name for name, mutant in MUTANTS.items() if mutant.harmless]


def test_there_are_enough_planted_faults():
    assert len(HARMFUL) >= 150 and len(HARMLESS) >= 3


@pytest.mark.parametrize("name", HARMFUL)
def test_a_planted_fault_is_caught(name):
    verdict = judge(MUTANTS[name])
    assert verdict.caught and verdict.ok, f"{name!r} survived"
    assert verdict.by in all_cases()


@pytest.mark.parametrize("name", HARMLESS)
def test_a_right_gradient_in_another_form_is_not_flagged(name):
    verdict = judge(MUTANTS[name])
    assert not verdict.caught and verdict.ok, f"flagged by {verdict.by}"


def test_every_mutant_has_suspects():
    for mutant in MUTANTS.values():
        assert suspected(mutant), mutant.name


def test_every_operation_has_a_planted_fault():
    planted = {name for mutant in MUTANTS.values() if not mutant.harmless for name in mutant.replaced}
    assert {f"{name}_backward" for name in operation_names()} <= planted


def test_every_kernel_of_every_engine_has_a_planted_fault():
    tables = {"numpy": numpy_kernels.KERNELS}
    if not onednn.why_not():
        own = {k: v for k, v in bfloat16_kernels.KERNELS.items() if numpy_kernels.KERNELS.get(k) is not v}
        tables["bfloat16"] = own
    if mlx_in_words() is not None:
        from glassbert.engines import mlx_kernels

        tables["mlx"] = mlx_kernels.KERNELS
    for engine, kernels in tables.items():
        planted = {name for mutant in MUTANTS.values() if mutant.kernels_of == engine for name in mutant.replaced}
        assert kernels and set(kernels) <= planted, engine


def test_a_fault_of_a_kernel_is_judged_beside_the_plain_operation():
    """The plain operations stay right: only the comparison with them can catch it."""
    mutant = next(m for m in MUTANTS.values() if m.kernels_of == "numpy" and "gelu_backward" in m.replaced)
    fixture = all_cases()[judge(mutant).by].build()
    engine = get_engine("numpy", "float32", 1)
    with fixture.around():
        assert differences(fixture).ok
        assert kernel_fault(fixture, engine) == ""
        assert "kernels and plain operations differ" in kernel_fault(fixture, engine.with_operations(mutant.replaced))


def test_a_mutant_leaves_nothing_behind():
    case = all_cases()["softmax: square, three axes"]
    before = dict(OPERATIONS), dict(numpy_kernels.KERNELS)
    for mutant in MUTANTS.values():
        with mutant.plant():
            get_engine("numpy", "float64", 1, "plain").with_operations(mutant.replaced)
    assert (dict(OPERATIONS), dict(numpy_kernels.KERNELS)) == before
    assert differences(case.build()).ok


def test_a_survivor_is_reported_as_such():
    innocent = Mutant("does nothing", ("softmax",))
    assert judge(innocent) == ("does nothing", False, None, False)
    assert not judge(innocent).ok
    of_kernels = Mutant("does nothing to kernels", ("gelu",), kernels_of="numpy")
    assert not judge(of_kernels).caught
