"""The Huber loss against its definition, branch by branch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glassbert.ops import huber_loss, huber_loss_backward

numbers = st.floats(-1e3, 1e3)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), st.floats(0.01, 10))
def test_it_is_the_parabola_near_and_the_line_beyond(pairs, delta):
    outputs, targets = (np.array(column)[None] for column in zip(*pairs, strict=True))
    d = np.abs(outputs - targets)
    expected = np.where(d <= delta, d**2 / 2, delta * (d - delta / 2))
    known = targets != -100
    loss, state = huber_loss(outputs, targets, delta=delta)
    assert np.isclose(loss, expected[known].sum() / max(known.sum(), 1), rtol=1e-9, atol=1e-9)
    slope = huber_loss_backward(np.float64(1.0), state)
    assert np.abs(slope).max() <= delta / max(known.sum(), 1) + 1e-12
    assert (slope[~known] == 0).all()


def test_a_large_delta_is_half_the_squared_error():
    outputs, targets = np.array([[1.0, -2.0]]), np.array([[0.5, 3.0]])
    assert np.isclose(huber_loss(outputs, targets, delta=1e6)[0], np.mean((outputs - targets) ** 2) / 2)
