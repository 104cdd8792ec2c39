"""The table of operations and the door for kernels."""

import numpy as np
import pytest

from glassbert import ops
from glassbert.ops.registry import KERNELS, OPERATIONS, operation_names, plain, replaced


def test_every_operation_is_a_forward_with_a_backward_beside_it():
    names = operation_names()
    assert names == sorted(names) and len(names) >= 20
    for name in names:
        assert OPERATIONS[name].__module__ == OPERATIONS[f"{name}_backward"].__module__
        assert getattr(ops, name) is OPERATIONS[name]


def test_a_replaced_operation_answers_only_inside_the_block():
    x = np.ones(3)
    with replaced("tanh", lambda x: ("planted", None)):
        assert ops.tanh(x)[0] == "planted"
    np.testing.assert_allclose(ops.tanh(x)[0], np.tanh(1.0))
    with pytest.raises(RuntimeError), replaced("tanh", lambda x: None):
        raise RuntimeError
    np.testing.assert_allclose(ops.tanh(x)[0], np.tanh(1.0))


def test_an_unknown_operation_cannot_be_replaced():
    with pytest.raises(KeyError, match="no operation is called 'tanhh'"), replaced("tanhh", lambda x: x):
        pass


def test_a_kernel_stands_in_for_the_plain_operation(monkeypatch):
    monkeypatch.setitem(KERNELS["numpy"], "tanh", lambda x: ("kernel", None))
    assert ops.tanh(np.ones(2))[0] == "kernel"
    assert plain("tanh")(np.zeros(2))[0].tolist() == [0.0, 0.0]


def test_an_operation_on_something_that_is_no_array_is_a_type_error():
    with pytest.raises(TypeError, match="expected a NumPy or MLX array, got list"):
        ops.softmax([1.0, 2.0])
