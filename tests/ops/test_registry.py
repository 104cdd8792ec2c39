"""The table of operations: plain functions with one contract."""

import inspect

import numpy as np
import pytest

from glassbert import get_engine, ops
from glassbert.engines.kernels import HINTS, backward
from glassbert.errors import ConfigError
from glassbert.ops.registry import OPERATIONS, SUFFIX, backward_of, operation, operation_names


def test_every_operation_is_a_forward_with_a_backward_in_the_same_file():
    names = operation_names()
    assert names == sorted(names) and len(names) >= 20
    for name in names:
        assert OPERATIONS[name].__module__ == OPERATIONS[name + SUFFIX].__module__
        assert getattr(ops, name) is OPERATIONS[name]
        assert getattr(ops, name + SUFFIX) is OPERATIONS[name + SUFFIX]


def test_every_backward_takes_a_gradient_and_a_state():
    for name in operation_names():
        assert len(inspect.signature(OPERATIONS[name + SUFFIX]).parameters) == 2, name


def test_plain_operations_take_no_hints():
    for name, function in OPERATIONS.items():
        assert not set(inspect.signature(function).parameters) & set(HINTS), name
    with pytest.raises(TypeError, match="donate"):
        ops.gelu(np.ones(2), donate=True)


def test_operations_are_the_functions_themselves():
    """No dispatch: what is written in the file runs, whatever engines exist."""
    assert inspect.unwrap(ops.layer_norm) is ops.layer_norm
    assert ops.layer_norm.__code__.co_filename.endswith("layer_norm.py")


@pytest.fixture
def doubled():
    """An operation of a user, removed again after the test."""

    @operation
    def doubled(x):
        return 2 * x, None

    @operation
    def doubled_backward(dy, state):
        return 2 * dy

    yield doubled
    del OPERATIONS["doubled"], OPERATIONS["doubled_backward"]


@pytest.mark.parametrize("kernels", ["fast", "plain"])
def test_a_new_operation_is_available_on_every_engine(doubled, kernels):
    assert OPERATIONS["doubled"] is doubled
    y, state = get_engine("numpy", kernels=kernels).ops.doubled(np.ones(3))
    assert y.tolist() == [2, 2, 2] and backward(np.ones(3), state).tolist() == [2, 2, 2]


def test_a_name_that_is_taken_by_another_file_is_an_error():
    def tanh(x):
        return x, None

    with pytest.raises(
        ConfigError, match=r"already an operation 'tanh' in glassbert\.ops\.activations; choose another name"
    ):
        operation(tanh)
    assert OPERATIONS["tanh"] is ops.tanh


def test_a_missing_backward_is_an_error_that_says_what_to_write():
    with pytest.raises(ConfigError, match=r"'halved' has no backward; write halved_backward\(dy, state\)"):
        backward_of("halved")


def test_an_operation_on_something_that_is_no_array_is_a_type_error():
    with pytest.raises(TypeError, match="expected a NumPy or MLX array, got list"):
        ops.relu([1.0, 2.0])
