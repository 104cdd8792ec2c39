"""Which code runs an operation: engines with kernels of their own, states with their own backward, hints, `which`."""

import copy
import threading

import numpy as np
import pytest

from glassbert import get_engine, ops, which
from glassbert.engines import numpy_kernels
from glassbert.engines.kernels import State, backward, register_in
from glassbert.errors import EngineError, InputError
from glassbert.ops.registry import OPERATIONS, SUFFIX, operation_names
from glassbert.proof.proof import mlx_in_words

MLX = mlx_in_words() is not None
needs_mlx = pytest.mark.skipif(not MLX, reason="MLX is not installed")
NAMES = ["numpy", pytest.param("mlx", marks=needs_mlx)]
LOGITS = np.random.default_rng(0).standard_normal((6, 5))
TARGETS = np.array([4, -100, 0, 4, -100, 1])


def kernels_of(name):
    if name == "numpy":
        return numpy_kernels.KERNELS
    from glassbert.engines import mlx_kernels

    return mlx_kernels.KERNELS


# ---- the tables of kernels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_has_both_halves_and_belongs_to_an_operation(name):
    kernels = kernels_of(name)
    assert kernels and set(kernels) <= set(OPERATIONS)
    forwards = {kernel for kernel in kernels if not kernel.endswith(SUFFIX)}
    assert {kernel + SUFFIX for kernel in forwards} == set(kernels) - forwards


def test_a_kernel_without_an_operation_is_an_error():
    with pytest.raises(EngineError, match="no operation 'swish' for this kernel"):

        @register_in({})
        def swish(x):
            return x, None


@pytest.mark.parametrize("name", NAMES)
def test_plain_engines_run_the_functions_of_the_operations(name):
    plain, fast = (get_engine(name, kernels=kernels) for kernels in ("plain", "fast"))
    for operation in operation_names():
        assert plain.ops.forward_and_backward(operation) == (OPERATIONS[operation], OPERATIONS[operation + SUFFIX])
        kernel = kernels_of(name).get(operation, OPERATIONS[operation])
        assert fast.ops.forward_and_backward(operation)[0] is kernel


@pytest.mark.parametrize("name", NAMES)
def test_unknown_kernels_are_an_error_that_lists_what_there_is(name):
    with pytest.raises(EngineError, match="unknown kernels 'quick'; choose one of fast, plain"):
        get_engine(name, kernels="quick")
    with pytest.raises(EngineError, match="choose one of fast, plain"):
        get_engine(name).with_kernels("quick")


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_can_be_had_with_other_kernels(name):
    fast = get_engine(name)
    plain = fast.with_kernels("plain")
    assert (fast.kernels, plain.kernels) == ("fast", "plain") and plain.dtype_name == fast.dtype_name
    assert fast.with_kernels("fast") is fast and copy.deepcopy(fast) is fast


# ---- several engines in one process --------------------------------------------------------------------------------


def tripled(dy, y):
    return 3.0 * dy


def test_two_engines_in_one_process_give_their_own_results():
    plain = get_engine("numpy", "float64", kernels="plain")
    other = plain.with_operations({"tanh_backward": tripled})
    x, dy = np.linspace(-1, 1, 5), np.ones(5)
    for engine, expected in ((plain, 1 - np.tanh(x) ** 2), (other, np.full(5, 3.0)), (plain, 1 - np.tanh(x) ** 2)):
        y, state = engine.ops.tanh(x)
        np.testing.assert_allclose(y, np.tanh(x))
        np.testing.assert_allclose(backward(dy, state), expected)
    np.testing.assert_allclose(ops.tanh_backward(dy, ops.tanh(x)[1]), 1 - np.tanh(x) ** 2)


def test_two_engines_in_two_threads_at_once_give_their_own_results():
    """The forwards of both threads come before the backwards of either."""
    plain = get_engine("numpy", "float64", kernels="plain")
    engines = {
        "plain": plain,
        "fast": get_engine("numpy", "float64", threads=1),
        "replaced": plain.with_operations({"cross_entropy_backward": lambda dloss, state: "replaced"}),
    }
    meeting = threading.Barrier(len(engines), timeout=30)
    found = {}

    def work(name):
        for _ in range(50):
            meeting.wait()
            _, state = engines[name].ops.cross_entropy(LOGITS, TARGETS)
            meeting.wait()
            found.setdefault(name, []).append((len(state.values), backward(np.float64(1.0), state)))

    threads = [threading.Thread(target=work, args=(name,)) for name in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = ops.cross_entropy_backward(np.float64(1.0), ops.cross_entropy(LOGITS, TARGETS)[1])
    assert {name: len(results) for name, results in found.items()} == dict.fromkeys(engines, 50)
    assert {size for size, _ in found["plain"]} == {4} and {size for size, _ in found["fast"]} == {5}
    for name in ("plain", "fast"):
        for _, dlogits in found[name]:
            np.testing.assert_allclose(dlogits, expected, atol=1e-14)
    assert all(dlogits == "replaced" for _, dlogits in found["replaced"])


def test_a_state_goes_through_its_own_backward_whatever_engine_is_in_use():
    fast, plain = get_engine("numpy", "float64"), get_engine("numpy", "float64", kernels="plain")
    other = fast.with_operations({"cross_entropy_backward": lambda dloss, state: "replaced"})
    _, of_fast = fast.ops.cross_entropy(LOGITS, TARGETS)
    _, of_plain = plain.ops.cross_entropy(LOGITS, TARGETS)
    _, of_other = other.ops.cross_entropy(LOGITS, TARGETS)
    assert isinstance(of_fast, State) and len(of_fast.values) == 5 and len(of_plain.values) == 4
    assert of_fast.backward is numpy_kernels.KERNELS["cross_entropy_backward"]
    assert of_plain.backward is ops.cross_entropy_backward
    expected = ops.cross_entropy_backward(np.float64(1.0), of_plain.values)
    assert backward(np.float64(1.0), of_other) == "replaced"
    for state in (of_plain, of_fast, of_plain):
        np.testing.assert_allclose(backward(np.float64(1.0), state), expected, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_that_a_kernel_leaves_to_the_plain_operation_have_its_state(name):
    engine = get_engine(name)
    logits, targets = engine.array(LOGITS), engine.integers(TARGETS)
    loss, state = engine.ops.cross_entropy(logits, targets, smoothing=0.1)
    assert state.backward is ops.cross_entropy_backward and not state.hints
    expected, values = ops.cross_entropy(LOGITS, TARGETS, smoothing=0.1)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    gradient = engine.to_numpy(backward(engine.array(1.0), state))
    np.testing.assert_allclose(gradient, ops.cross_entropy_backward(1.0, values), atol=1e-6)


@needs_mlx
def test_arrays_of_two_engines_side_by_side():
    x = np.linspace(-2, 2, 7)
    numpy, mlx = get_engine("numpy"), get_engine("mlx")
    found = []
    states = [engine.ops.gelu(engine.array(x))[1] for engine in (numpy, mlx)]
    for engine, state in zip((numpy, mlx), states, strict=True):
        found.append(engine.to_numpy(backward(engine.array(np.ones(7)), state)))
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


# ---- replaced functions --------------------------------------------------------------------------------------------


def test_replaced_functions_answer_on_that_engine_alone():
    engine = get_engine("numpy", "float64")
    changed = engine.with_operations({"tanh": lambda x: (x, x), "tanh_backward": tripled})
    assert changed is not engine and changed.threads == engine.threads and changed.kernels == engine.kernels
    y, state = changed.ops.tanh(np.ones(2))
    assert y.tolist() == [1, 1] and backward(np.ones(2), state).tolist() == [3, 3]
    assert engine.ops.tanh(np.zeros(2))[0].tolist() == [0, 0]


def test_an_unknown_operation_is_an_error_that_lists_what_there_is():
    engine = get_engine("numpy")
    for attempt in (lambda: engine.with_operations({"tanhh": tripled}), lambda: engine.ops.tanhh):
        with pytest.raises(
            EngineError, match=r"no operation 'tanhh'; there are attention, attention_pool, .*unit_length"
        ):
            attempt()
    with pytest.raises(EngineError, match="no operation 'tanh_backward'"):
        _ = engine.ops.tanh_backward  # a backward is reached through a state


# ---- which ---------------------------------------------------------------------------------------------------------


def line_of(function):
    return function.__code__.co_firstlineno


def test_which_names_file_and_line():
    forward, back = which("attention", "numpy")
    assert forward == (
        "attention", "numpy", "fast", "glassbert/engines/numpy_kernels.py", line_of(numpy_kernels.attention), "",
    )  # fmt: skip
    assert (back.operation, back.line) == ("attention_backward", line_of(numpy_kernels.attention_backward))
    assert str(forward) == f"attention: fast on numpy, glassbert/engines/numpy_kernels.py:{forward.line}"
    plain, _ = which("attention", "numpy", kernels="plain")
    assert (plain.kernels, plain.file, plain.line) == ("plain", "glassbert/ops/attention.py", line_of(ops.attention))
    assert which("attention_backward", "numpy") == [forward, back]


def test_which_says_where_no_kernel_answers():
    assert [source.kernels for source in which("tanh", "numpy")] == ["plain", "plain"]
    assert which("tanh", get_engine("numpy"))[0].file == "glassbert/ops/activations.py"


@needs_mlx
def test_which_says_where_mlx_differentiates():
    forward, back = which("layer_norm", "mlx")
    assert forward.note == "" and "mx.vjp" in back.note and "mx.vjp" in str(back)
    assert back.file == "glassbert/engines/mlx_kernels.py"
    assert all(not source.note for name in operation_names() for source in which(name, "mlx", kernels="plain"))


def test_which_of_an_unknown_operation_lists_what_there_is():
    with pytest.raises(
        InputError, match=r"no operation 'attenion'; there are attention, .*, tiled_attention, unit_length"
    ):
        which("attenion", "numpy")
    with pytest.raises(EngineError, match="choose one of fast, plain"):
        which("attention", "numpy", kernels="quick")


# ---- hints ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", ["fast", "plain"])
def test_linear_writes_its_gradients_into_the_arrays_it_is_given(kernels):
    engine = get_engine("numpy", "float64", kernels=kernels)
    _, state = engine.ops.linear(np.ones((4, 3)), np.ones((2, 3)), np.ones(2))
    dweight, dbias = np.full((2, 3), np.nan), np.full(2, np.nan)
    dx, first, second = backward(np.ones((4, 2)), state, out=(dweight, dbias))
    assert (first is dweight, second is dbias) == ((True, True) if kernels == "fast" else (False, False))
    np.testing.assert_array_equal(dx, np.full((4, 3), 2.0))
    np.testing.assert_array_equal(first, np.full((2, 3), 4.0))
    np.testing.assert_array_equal(second, [4.0, 4.0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kernels", ["fast", "plain"])
def test_hints_that_a_function_does_not_take_are_left_out(name, kernels):
    engine = get_engine(name, kernels=kernels)
    x = engine.array(np.linspace(-1, 1, 6).reshape(2, 3))
    y, state = engine.ops.tanh(x, donate=True, inference=True)
    dx = backward(y, state, donate=True, out=(None,))
    np.testing.assert_allclose(engine.to_numpy(x), np.linspace(-1, 1, 6).reshape(2, 3), atol=1e-7)
    np.testing.assert_allclose(
        engine.to_numpy(dx), np.tanh(engine.to_numpy(x)) / np.cosh(engine.to_numpy(x)) ** 2, atol=1e-6
    )


def test_an_option_that_is_no_hint_is_an_error():
    with pytest.raises(TypeError, match="inplace"):
        get_engine("numpy").ops.gelu(np.ones(2), inplace=True)
