"""Every operation, layer and model has a case, and every case is right on every engine there is."""

import contextlib
import importlib
import inspect
import pkgutil

import pytest

import glassbert.layers
from glassbert.models.config import CHOICES
from glassbert.models.heads import HEADS, LOSS_OPTIONS
from glassbert.models.series import CENTRES
from glassbert.ops.registry import KERNELS, OPERATIONS, operation_names, plain, replaced
from glassbert.proof import head_cases, series_cases
from glassbert.proof.cases import KINDS, all_cases
from glassbert.proof.proof import mlx_in_words
from glassbert.proof.referee import check_case, gradients_on

CASES = all_cases()
MLX = mlx_in_words() is not None


def subjects(kind):
    return {case.subject for case in CASES.values() if case.kind == kind}


def layers_with_a_backward():
    """Every `name` for which a module of layers defines `name_backward`."""
    found = set()
    for module in pkgutil.iter_modules(glassbert.layers.__path__):
        functions = inspect.getmembers(importlib.import_module(f"glassbert.layers.{module.name}"), inspect.isfunction)
        for name, function in functions:
            if name.endswith("_backward") and function.__module__ == f"glassbert.layers.{module.name}":
                found.add(name.removesuffix("_backward"))
    return found


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    result = check_case(CASES[name], MLX)
    assert result.ok, result.reason
    assert result.error < 1e-6


def test_every_operation_has_a_case_of_its_own():
    assert subjects("op") == set(operation_names())


def test_every_operation_has_a_backward():
    assert {f"{name}_backward" for name in operation_names()} <= set(OPERATIONS)


def test_every_operation_and_every_backward_is_run_by_the_cases_of_operations():
    """Counted by calling, not by naming: a case that never reaches its operation covers nothing."""
    called = set()

    def counting(name):
        def call(first, *args, **kwargs):
            called.add(name)
            return KERNELS["numpy"].get(name, plain(name))(first, *args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for name in OPERATIONS:
            stack.enter_context(replaced(name, counting(name)))
        for case in CASES.values():
            if case.kind == "op":
                fixture = case.build()
                with fixture.around():
                    gradients_on("numpy", "float64", fixture)
    assert called == set(OPERATIONS)


def test_every_layer_and_every_head_has_a_case():
    assert layers_with_a_backward() >= {"dense", "embeddings", "self_attention", "feed_forward", "block"}
    assert layers_with_a_backward() | set(HEADS) <= subjects("layer")


def test_every_pooling_and_every_loss_of_a_head_is_crossed_with_the_others():
    """The tables of head_cases are entered as a product; here it is that they are complete."""
    poolings = {config.classifier_pooling for config in head_cases.POOLED.values()}
    assert poolings | {"flatten"} == set(CHOICES["classifier_pooling"])  # only forecasts may be flattened
    assert {config.pooler for config in head_cases.POOLED.values()} == {True, False}
    assert {loss for loss, *_ in head_cases.SEQUENCE_LOSSES.values()} == set(HEADS["sequence"].losses)
    assert {loss for loss, *_ in head_cases.PAIR_LOSSES.values()} == set(HEADS["embedding"].losses)
    tables = (head_cases.SEQUENCE_LOSSES, head_cases.PAIR_LOSSES, series_cases.LOSSES)
    assert {option for table in tables for _, options, *_ in table.values() for option in options} == set(LOSS_OPTIONS)
    for pooling in head_cases.POOLED:
        assert all(f"sequence: {name}, {pooling}" in CASES for name in head_cases.SEQUENCE_LOSSES)
    assert {loss for loss, _ in series_cases.LOSSES.values()} == set(HEADS["forecast"].losses)
    for pooling in CHOICES["classifier_pooling"]:
        assert all(f"forecast: {name}, {pooling}" in CASES for name in series_cases.LOSSES)
    frames = {(f.get("centre", "mean"), f.get("divide", True)) for f in series_cases.FRAMES.values()}
    assert frames == {(centre, divide) for centre in CENTRES for divide in (True, False)}


def test_both_families_and_their_presets_have_cases():
    assert {"bert", "modernbert", "mini", "larger", "causal"} <= subjects("model")


def test_every_kernel_of_an_engine_belongs_to_an_operation():
    for kernels in KERNELS.values():
        assert set(kernels) <= set(OPERATIONS)


def test_the_adversarial_situations_are_all_there():
    names = " | ".join(CASES)
    for situation in (
        "gamma not 1", "repeated ids", "frozen padding row", "nothing but padding", "ragged", "all-padding",
        "one token", "odd", "dropout", "packed", "pieces", "local", "causal", "tiled", "checkpointing", "tied",
        "untied", "token types given", "token types omitted", "padding skipped", "all labels ignored", "threads",
    ):  # fmt: skip
        assert situation in names, situation


def test_a_case_that_breaks_down_has_failed_with_its_reason():
    def broken(x, gamma, beta, eps):
        raise RuntimeError("no such luck")

    with replaced("layer_norm", broken):
        result = check_case(CASES["layer_norm: no beta"], False)
    assert not result.ok and "no such luck" in result.reason
    assert result.as_dict()["error"] is None


def test_a_slightly_wrong_float32_kernel_is_noticed(monkeypatch):
    def slope(dy, x, cache=None):
        return dy * (x > 0) * (1.001 if x.dtype == "float32" else 1.0)

    monkeypatch.setitem(KERNELS["numpy"], "relu_backward", slope)
    result = check_case(CASES["relu: away from the kink"], False)
    assert not result.ok and "float32 differs from float64" in result.reason


def test_a_wrong_kernel_is_told_from_the_lesson_it_replaces(monkeypatch):
    monkeypatch.setitem(KERNELS["numpy"], "tanh_backward", lambda dy, x, y: dy * (1.0 - y))
    result = check_case(CASES["tanh: complex step"], False)
    assert not result.ok and "kernels and plain operations differ" in result.reason


def test_random_numbers_of_a_case_depend_on_its_name_alone():
    case = CASES["linear: square weight"]
    assert (case.build().inputs["weight"] == case.build().inputs["weight"]).all()
    assert {case.kind for case in CASES.values()} == set(KINDS)
