"""The referee itself: what it accepts, what it rejects, and what it says."""

import numpy as np
import pytest

from glassbert import get_engine, gradient_check, ops
from glassbert.engines.kernels import backward
from glassbert.errors import GlassBertError

RNG = np.random.default_rng(3)
W = RNG.standard_normal((4, 3))
X = RNG.standard_normal((5, 3))


def squares(x):
    return (x**2).sum(), {"x": 2 * x}


def off_by(factor):
    return lambda x: ((x**2).sum(), {"x": factor * 2 * x})


def test_a_right_gradient_is_exact():
    report = gradient_check(squares, {"x": X})
    assert report.ok and report.error < 1e-10
    assert report["x"].verdict == "exact"
    assert "exact, max difference" in str(report) and str(report).startswith("ok")


def test_a_gradient_wrong_by_1e_4_is_approximate_and_not_ok():
    report = gradient_check(off_by(1.0001), {"x": X})
    assert not report.ok
    assert report["x"].verdict == "approximate"
    assert report.error == pytest.approx(5e-5, rel=1e-3)


def test_a_gradient_twice_too_large_is_wrong_and_the_worst_entry_is_shown():
    report = gradient_check(off_by(2), {"x": X})
    worst = np.unravel_index(np.argmax(np.abs(X)), X.shape)
    assert report["x"].verdict == "WRONG"
    assert report["x"].worst == worst
    assert report["x"].analytic == pytest.approx(4 * X[worst])
    assert report["x"].numeric == pytest.approx(2 * X[worst])
    assert f"worst at {[int(i) for i in worst]}" in str(report) and "NOT OK" in str(report)


@pytest.mark.parametrize("shape", [(5, 3), (300, 40)], ids=["entry by entry", "by directions"])
def test_a_single_wrong_entry_is_found(shape):
    place = (shape[0] // 2, 1)

    def function(x):
        gradient = 2 * x
        gradient[place] += 1.0
        return (x**2).sum(), {"x": gradient}

    report = gradient_check(function, {"x": np.random.default_rng(0).standard_normal(shape)})
    assert not report.ok
    assert report["x"].worst == place
    assert report["x"].max_difference == pytest.approx(1.0, rel=1e-5)


def test_a_large_tensor_is_sampled_and_costs_little():
    report = gradient_check(squares, {"x": np.ones((400, 400))}, entries=10)
    assert report.ok and report.evaluations < 100
    assert "10 of 160,000 entries and 2 random directions" in str(report)


@pytest.mark.parametrize("method", ["central", "complex"])
def test_every_way_to_give_a_function(method):
    def product(x, w):
        return x @ w.T, lambda dy: {"x": dy @ w, "w": dy.T @ x}

    def forward(x, w):
        return x @ w.T

    def forward_with_state(x, w):
        return x @ w.T, (x, w)

    def of_mapping(p):
        return product(p["x"], p["w"])

    functions = [
        (product, {"x": X, "w": W}),
        (product, [X, W]),
        (of_mapping, {"x": X, "w": W}),
        ((forward, lambda dy, x, w: (dy @ w, dy.T @ x)), (X, W)),
        ((forward, lambda dy, x, w: {"w": dy.T @ x, "x": dy @ w}), {"x": X, "w": W}),
        ((forward_with_state, lambda dy, state: (dy @ state[1], dy.T @ state[0])), [X, W]),
    ]
    for function, inputs in functions:
        report = gradient_check(function, inputs, method=method)
        assert report.ok, report
        assert [tensor.name for tensor in report] == ["x", "w"]


def test_a_single_array_and_a_single_gradient():
    assert gradient_check(lambda x: (np.sin(x).sum(), np.cos(x)), X).ok


def test_a_complex_step_is_exact_to_the_last_digits():
    report = gradient_check(lambda x: (np.exp(x).sum(), [np.exp(x)]), X, method="complex")
    assert report.error < 1e-15


def test_a_complex_step_of_a_function_that_is_not_analytic_is_noticed():
    report = gradient_check(lambda x: ((x * np.abs(x)).sum(), [2 * np.abs(x)]), X, method="complex")
    assert report.ok
    assert "not analytic" in str(report)
    with pytest.raises(GlassBertError, match="imaginary part"):
        gradient_check(lambda x: (np.abs(x).sum(), [np.sign(x)]), X, method="complex")


def test_plain_operations_take_a_complex_step():
    def function(x, gamma):
        y, state = ops.layer_norm(x, gamma, None, 1e-5)
        return y, lambda dy: ops.layer_norm_backward(dy, state)[:2]

    assert gradient_check(function, [X, X[0]], method="complex").error < 1e-14


def test_an_operation_is_checked_as_a_pair_of_forward_and_backward():
    """The contract y, state = name(x) and name_backward(dy, state) is one of those that the checker takes."""
    assert gradient_check((ops.tanh, ops.tanh_backward), X, method="complex").ok
    assert gradient_check((ops.gelu, ops.gelu_backward), X).ok
    assert gradient_check((ops.linear, ops.linear_backward), {"x": X, "weight": W, "bias": W[:, 0].copy()}).ok
    assert not gradient_check((ops.gelu, lambda dy, state: dy * state[1]), X).ok


@pytest.mark.parametrize("kernels", ["fast", "plain"])
def test_an_operation_of_an_engine_is_checked_as_a_pair(kernels):
    engine = get_engine("numpy", "float64", kernels=kernels)
    assert gradient_check((engine.ops.gelu, backward), X).ok


def test_integers_and_other_things_are_handed_on_untouched():
    def lookup(table, ids, scale):
        def backward(dy):
            d = np.zeros_like(table)
            np.add.at(d, ids, scale * dy)
            return {"table": d}

        return scale * table[ids], backward

    report = gradient_check(lookup, {"table": W, "ids": np.array([1, 1, 3]), "scale": 2})
    assert report.ok and [tensor.name for tensor in report] == ["table"]


def test_wrt_chooses_by_name_and_by_place():
    def function(a, b):
        return (a * b).sum(), {"a": b, "b": -a}  # b's gradient is wrong

    assert gradient_check(function, [X, X + 1], wrt="a").ok
    assert gradient_check(function, [X, X + 1], wrt=[0]).ok
    assert not gradient_check(function, [X, X + 1], wrt="b").ok
    with pytest.raises(GlassBertError, match=r"wrt names 'c', but the inputs are a, b"):
        gradient_check(function, [X, X], wrt="c")
    with pytest.raises(GlassBertError, match=r"'b', which is no array of floats"):
        gradient_check(function, {"a": X, "b": 2}, wrt="b")


def test_a_gradient_that_is_truly_zero_passes_although_differences_are_noise():
    def shifted_softmax(x, shift):  # softmax does not see a shift, so its gradient is zero
        y, state = ops.softmax(x + shift)
        return y, lambda dy: {"x": ops.softmax_backward(dy, state), "shift": np.zeros_like(shift)}

    inputs = {"x": X, "shift": np.array(0.3)}
    assert gradient_check(shifted_softmax, inputs).ok

    def with_noise(x, shift):
        y, backward = shifted_softmax(x, shift)
        return y, lambda dy: {**backward(dy), "shift": np.array(1e-4)}

    assert not gradient_check(with_noise, inputs)["shift"].ok


def test_a_tiny_gradient_is_still_judged():
    def tiny(x, factor=1.0):
        return 1e-9 * np.sin(x).sum(), [factor * 1e-9 * np.cos(x)]

    assert gradient_check(tiny, X).ok
    assert not gradient_check(lambda x: tiny(x, 1.01), X).ok


def test_a_kink_close_by_is_walked_around_and_a_kink_under_the_point_is_named():
    near = gradient_check(lambda x: (np.abs(x).sum(), [np.sign(x)]), np.array([1e-5, 1.0]))
    assert near.ok
    on_top = gradient_check(lambda x: (np.maximum(x, 0).sum(), [(x > 0) * 1.0]), np.array([0.0, 1.0]))
    assert not on_top.ok and "worst at [0]" in str(on_top)


def test_noise_is_told_from_a_wrong_gradient():
    report = gradient_check(lambda x: (np.sin(x.astype(np.float32)).sum(), [np.cos(x)]), X)
    assert not report.ok
    assert "float32 for float64 inputs" in str(report) and "unsure" in str(report)


def test_what_is_random_must_be_frozen():
    rng = np.random.default_rng(0)
    report = gradient_check(lambda x: ((x * rng.random(x.shape)).sum(), [x]), X)
    assert not report.ok
    assert "two calls with the same inputs gave different values" in report.problems[0]


def test_a_function_that_changes_its_inputs_is_told_so():
    def careless(x):
        loss = (x**2).sum()
        x *= 2
        return loss, [x.copy()]

    values = X.copy()
    report = gradient_check(careless, values)
    assert not report.ok and "changed its own input 'x'" in str(report)
    np.testing.assert_array_equal(values, X)


def test_the_inputs_are_left_as_they_were():
    values = {"x": X.copy()}
    gradient_check(squares, values)
    np.testing.assert_array_equal(values["x"], X)


@pytest.mark.parametrize(
    ("gradient", "sentence"),
    [
        ({"x": X.T}, r"shape \[3, 5\], not its own \[5, 3\]; is it transposed\?"),
        ({"x": X[0]}, r"shape \[3\], not its own \[5, 3\]"),
        ({"x": np.where(X > 0, np.nan, X)}, "not finite at"),
        ({"x": None, "y": X}, "no gradient came back for it; gradients came for y"),
        ({}, "gradients came for nothing"),
        ({"x": X > 0}, "bool, not real numbers"),
    ],
)
def test_an_unusable_gradient_is_a_sentence(gradient, sentence):
    report = gradient_check(lambda x: ((x**2).sum(), gradient), {"x": X})
    assert not report.ok and report.error == np.inf
    with pytest.raises(AssertionError, match=sentence):
        assert report.ok, report


def test_a_value_that_is_not_finite_is_a_problem():
    with np.errstate(invalid="ignore"):
        assert "not finite" in str(gradient_check(lambda x: (np.log(x).sum(), [1 / x]), X))

    def cliff(x):
        return np.where(x > X.max(), np.inf, x).sum(), [np.ones_like(x)]

    assert "not finite near" in str(gradient_check(cliff, X))


def test_an_output_with_a_shape_needs_a_backward():
    report = gradient_check(lambda x: (x**2, {"x": 2 * x}), {"x": X})
    assert not report.ok and "return (output, backward)" in report.problems[0]


def test_float32_inputs_are_checked_in_float64_and_mentioned():
    report = gradient_check(squares, {"x": X.astype(np.float32)})
    assert report.ok and report.error < 1e-9
    assert "input 'x' is float32 and was checked in float64" in str(report)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((None, X), "must be a function, got a NoneType"),
        (((squares,), X), "two functions"),
        ((lambda x: x.sum(), X), r"must return \(loss, gradients\)"),
        ((lambda x: (x.sum(), x, x), X), "a tuple of 3"),
        ((squares, {"x": X + 1j}), "'x' is complex"),
        ((squares, {"x": np.full(3, np.nan)}), r"'x' is not finite at \[0\]"),
        ((squares, {"x": np.arange(3)}), "none of the inputs is an array of floats"),
        ((lambda x: ("loss", x), X), "one array of numbers, got a str"),
        ((lambda x: (x.sum(), [x, x]), X), "2 gradients came back for 1 inputs"),
        ((squares, {1: X}), "names of the inputs must be strings"),
    ],
)
def test_misuse_is_an_error_that_names_the_culprit(arguments, sentence):
    with pytest.raises(GlassBertError, match=sentence):
        gradient_check(*arguments)


def test_impossible_options_are_named():
    for options, sentence in (
        ({"method": "exact"}, "unknown method 'exact'"),
        ({"step": -1.0}, "step must be above 0"),
        ({"entries": 0}, "entries must be at least 1"),
    ):
        with pytest.raises(GlassBertError, match=sentence):
            gradient_check(squares, X, **options)


def test_mlx_arrays_are_refused():
    mx = pytest.importorskip("mlx.core")
    with pytest.raises(GlassBertError, match="MLX array"):
        gradient_check(squares, {"x": mx.ones(3)})


def test_an_empty_tensor_has_an_exact_gradient():
    assert gradient_check(squares, {"x": np.zeros((0, 3))}).ok


def test_the_same_seed_gives_the_same_report():
    inputs = {"x": np.random.default_rng(1).standard_normal((50, 50))}
    assert gradient_check(squares, inputs, seed=4) == gradient_check(squares, inputs, seed=4)


def test_the_report_is_a_table_of_verdicts_by_name():
    report = gradient_check(lambda a, b: ((a * b).sum(), [b, 2 * a]), [X, X + 1])
    assert len(report) == 2 and report[0].ok and not report[1].ok
    assert report.worst is report["b"]
    assert repr(report) == str(report)
    with pytest.raises(KeyError, match="checked were a, b"):
        report["c"]
