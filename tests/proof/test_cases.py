"""Every operation, layer and model has a case, and every case is right on every engine there is."""

import inspect

import numpy as np
import pytest

from glassbert import get_engine
from glassbert.engines import numpy_kernels
from glassbert.layers.positions import Positions
from glassbert.layers.registry import ATTENTIONS, BLOCKS, EMBEDDINGS, FEED_FORWARDS, POSITIONS
from glassbert.layers.scope import Scope
from glassbert.models.config import CHOICES
from glassbert.models.heads import HEADS, LOSS_OPTIONS
from glassbert.models.series import CENTRES
from glassbert.ops.registry import OPERATIONS, SUFFIX, operation_names
from glassbert.proof import head_cases, series_cases
from glassbert.proof.cases import KINDS, all_cases
from glassbert.proof.proof import mlx_in_words
from glassbert.proof.referee import check_case, non_finite_faults, results_on

CASES = all_cases()
MLX = mlx_in_words() is not None


def subjects(kind):
    return {case.subject for case in CASES.values() if case.kind == kind}


def run_all(kind, engine):
    """Every case of this kind, forward and backward, on one engine."""
    for case in CASES.values():
        if case.kind == kind:
            fixture = case.build()
            with fixture.around():
                results_on(engine, fixture)


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    result = check_case(CASES[name], MLX)
    assert result.ok, result.reason
    assert result.error < 1e-6


def test_every_operation_has_a_case_of_its_own():
    assert subjects("op") == set(operation_names())


def counting(called, name, function):
    def call(*arguments, **options):
        called.add(name)
        return function(*arguments, **options)

    return call


def test_every_operation_and_every_backward_is_run_by_the_cases_of_operations():
    """Counted by calling, not by naming: a case that never reaches its operation covers nothing."""
    called = set()
    replaced = {name: counting(called, name, function) for name, function in OPERATIONS.items()}
    run_all("op", get_engine("numpy", "float64", 1, "plain").with_operations(replaced))
    assert called == set(OPERATIONS)


@pytest.mark.parametrize("name", ["numpy", pytest.param("mlx", marks=pytest.mark.skipif(not MLX, reason="no MLX"))])
def test_every_kernel_is_run_by_the_cases_of_operations(name, monkeypatch):
    engine = get_engine(name, "float32", 1)
    if name == "numpy":
        kernels = numpy_kernels.KERNELS
    else:
        from glassbert.engines.mlx_kernels import KERNELS as kernels
    called = set()
    for kernel, function in list(kernels.items()):
        monkeypatch.setitem(kernels, kernel, counting(called, kernel, function))
    for case in CASES.values():
        fixture = case.build()
        if case.kind == "op" and (name == "numpy" or fixture.on_mlx):
            with fixture.around():
                results_on(engine, fixture)
    assert called == set(kernels)


def ours(part):
    """Whether the package registered it, and not an example of a test beside this one."""
    return part.__module__.startswith("glassbert.")


def test_every_part_of_an_encoder_is_run_by_the_cases_of_layers(monkeypatch):
    """Every registered class, by its backward; a class may inherit it."""
    called = set()

    def count(owner, attribute):
        function = getattr(owner, attribute)

        def call(self, *arguments, **options):
            called.add(type(self))
            return function(self, *arguments, **options)

        monkeypatch.setattr(owner, attribute, call)

    tables = (EMBEDDINGS, ATTENTIONS, FEED_FORWARDS, BLOCKS)
    parts = [part for table in tables for part in table.values() if ours(part)]
    for part in parts:
        count(part, "backward")
    schemes = [one for one in POSITIONS.values() if ours(one) and one is not Positions]  # that one has no gradient
    for part in schemes:
        count(part, "embed_backward")
    run_all("layer", get_engine("numpy", "float64", 1, "plain"))
    missing = [part.__name__ for part in [*parts, *schemes] if part not in called]
    assert not missing


def test_every_head_and_every_step_of_a_scope_has_a_case():
    methods = dict(inspect.getmembers(Scope, inspect.isfunction))
    steps = {name for name in methods if name + SUFFIX in methods} - {"run"}
    assert steps >= {"linear", "norm", "dropout"}
    assert {f"scope.{step}" for step in steps} | set(HEADS) <= subjects("layer")


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


def test_the_adversarial_situations_are_all_there():
    names = " | ".join(CASES)
    for situation in (
        "gamma not 1", "repeated ids", "frozen padding row", "only padding", "ragged", "all-padding",
        "one token", "odd", "dropout", "packed", "pieces", "local", "causal", "tiled", "checkpointing", "tied",
        "untied", "token types given", "token types omitted", "padding skipped", "all labels ignored", "threads",
        "bias by head", "bias by row", "another scale", "mask by pair", "more keys than queries", "no mask",
    ):  # fmt: skip
        assert situation in names, situation


def test_a_case_that_raises_an_error_has_failed_with_its_reason(monkeypatch):
    def broken(x, gamma, beta, eps):
        raise RuntimeError("out of memory")

    monkeypatch.setitem(OPERATIONS, "layer_norm", broken)
    result = check_case(CASES["layer_norm: no beta"], False)
    assert not result.ok and "out of memory" in result.reason
    assert result.as_dict()["error"] is None


def test_a_slightly_wrong_float32_kernel_is_noticed(monkeypatch):
    def slope(dy, y):
        return dy * (y > 0) * (1.001 if y.dtype == "float32" else 1.0)

    monkeypatch.setitem(numpy_kernels.KERNELS, "relu_backward", slope)
    result = check_case(CASES["relu: away from zero"], False)
    assert not result.ok and "float32 differs from float64" in result.reason
    assert "kernels and plain operations differ in float32" in result.reason


def test_a_wrong_kernel_is_told_from_a_wrong_operation(monkeypatch):
    def tanh_backward(dy, y):
        return dy * (1.0 - y)

    with monkeypatch.context() as planted:
        planted.setitem(numpy_kernels.KERNELS, "tanh", OPERATIONS["tanh"])
        planted.setitem(numpy_kernels.KERNELS, "tanh_backward", tanh_backward)
        result = check_case(CASES["tanh: complex step"], False)
        assert not result.ok and "kernels and plain operations differ" in result.reason and result.error < 1e-6
    monkeypatch.setitem(OPERATIONS, "tanh_backward", tanh_backward)
    result = check_case(CASES["tanh: complex step"], False)
    assert not result.ok and result.error > 1e-3 and "kernels" not in result.reason


def test_a_kernel_that_hides_nan_is_noticed():
    def relu(x):
        y = np.where(x > 0, x, x.dtype.type(0.0))
        return y, y

    fixture = CASES["relu: away from zero"].build()
    engine = get_engine("numpy", "float32", 1)
    assert non_finite_faults(engine, fixture) == []
    faults = non_finite_faults(engine.with_operations({"relu": relu}), fixture)
    assert "nan in x gives another output than the plain operation" in faults


def test_random_numbers_of_a_case_depend_on_its_name_alone():
    case = CASES["linear: square weight"]
    assert (case.build().inputs["weight"] == case.build().inputs["weight"]).all()
    assert {case.kind for case in CASES.values()} == set(KINDS)
