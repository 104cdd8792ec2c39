"""Optimizers compared with reference implementations, on both engines."""

import json

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from glassbert.errors import TrainingError
from glassbert.training.optimizers import OPTIMIZERS, SGD, AdamW, Muon, make_optimizer
from glassbert.training.optimizers.muon import COEFFICIENTS, orthogonal
from tests.models.small import BERT, MODERN, make
from tests.training.references import reference_for

STEPS = 100
CASES = {
    "adamw": ("adamw", {}),
    "adamw, clipped": ("adamw", {"clip": 0.5}),
    "adamw, never clipped": ("adamw", {"clip": None, "weight_decay": 0.1}),
    "adamw, other betas": ("adamw", {"betas": (0.8, 0.95), "epsilon": 1e-3, "learning_rate": 0.02}),
    "adamw, no memory": ("adamw", {"betas": (0.0, 0.0), "epsilon": 1e-3}),
    "lion": ("lion", {}),
    "lion, clipped": ("lion", {"clip": 0.5, "betas": (0.8, 0.9)}),
    "sophia": ("sophia", {}),
    "sophia, rarely clipped": ("sophia", {"gamma": 10.0, "every": 3, "epsilon": 1e-6}),
    "muon": ("muon", {}),
    "muon, other": ("muon", {"momentum": 0.8, "iterations": 3, "clip": None, "weight_decay": 0.1}),
    "sgd": ("sgd", {"learning_rate": 0.01}),
    "sgd, decay": ("sgd", {"learning_rate": 0.01, "momentum": 0.0, "weight_decay": 0.1, "clip": None}),
}
EVERY = pytest.mark.parametrize(("name", "settings"), CASES.values(), ids=CASES)
EACH = pytest.mark.parametrize("name", OPTIMIZERS)


def gradients_of(model, t, size=0.1):
    rng = np.random.default_rng(t)
    return {n: size * rng.standard_normal(shape) * rng.random(shape) for n, shape in model.layout.shapes.items()}


def fill(gradients, values):
    gradients.clear()
    for name, value in values.items():
        gradients.add(name, value.astype(gradients.flat.dtype))
    gradients.fill_missing()


def drive(optimizer, model, steps, first=1):
    """Run `steps` steps with the gradients of `gradients_of`; yields the norms."""
    gradients = model.engine.gradients(model.layout)
    for t in range(first, first + steps):
        if optimizer.curvature_every and (t - 1) % optimizer.curvature_every == 0:
            fill(gradients, gradients_of(model, -t % 10_000))
            optimizer.observe(gradients)
        fill(gradients, gradients_of(model, t))
        yield optimizer.update(model.parameters, gradients)


def witness(optimizer, model, steps):
    reference = reference_for(optimizer, model.parameters)
    norms = []
    for t in range(1, steps + 1):
        if optimizer.curvature_every and (t - 1) % optimizer.curvature_every == 0:
            reference.observe(gradients_of(model, -t % 10_000))
        norms.append(reference.update(gradients_of(model, t)))
    return reference.p, norms


@EVERY
@pytest.mark.parametrize("threads", [1, 3])
def test_a_hundred_steps_follow_the_formula(name, settings, threads, monkeypatch):
    monkeypatch.setattr("glassbert.training.optimizers.base.CHUNK", 500)  # many chunks
    model = make(MODERN, threads=threads)
    optimizer = make_optimizer(name, model, **settings)
    expected, norms = witness(optimizer, model, STEPS)
    np.testing.assert_allclose(list(drive(optimizer, model, STEPS)), norms, rtol=1e-12)
    for parameter, values in expected.items():
        np.testing.assert_allclose(model.parameters[parameter], values, rtol=0, atol=1e-10, err_msg=parameter)


@EVERY
def test_float32_differs_by_its_rounding(name, settings):
    """A weight of size 1 is rounded by up to 6e-8 a step."""
    model = make(MODERN, dtype="float32", threads=2)
    optimizer = make_optimizer(name, model, **settings)
    expected, norms = witness(optimizer, model, STEPS)
    np.testing.assert_allclose(list(drive(optimizer, model, STEPS)), norms, rtol=1e-5)
    for parameter, values in expected.items():
        np.testing.assert_allclose(model.parameters[parameter], values, rtol=0, atol=1e-5, err_msg=parameter)


@EVERY
def test_mlx_takes_the_same_steps(name, settings):
    mx = pytest.importorskip("mlx.core")
    model = make(MODERN, dtype="float32", engine="mlx")
    optimizer = make_optimizer(name, model, **settings)
    expected, norms = witness(optimizer, model, 20)
    parameters, state = model.parameters, optimizer.state
    for t in range(1, 21):
        if optimizer.curvature_every and (t - 1) % optimizer.curvature_every == 0:
            drawn = {n: mx.array(g.astype(np.float32)) for n, g in gradients_of(model, -t % 10_000).items()}
            state = optimizer.observed(state, drawn)
        gradients = {n: mx.array(g.astype(np.float32)) for n, g in gradients_of(model, t).items()}
        rate = mx.array(optimizer.learning_rate)
        parameters, state, norm, finite = optimizer.step_arrays(parameters, gradients, state, mx.array(float(t)), rate)
        assert bool(finite) and float(norm) == pytest.approx(norms[t - 1], rel=1e-5)
    for parameter, values in expected.items():
        found = np.array(parameters[parameter])
        np.testing.assert_allclose(found, values, rtol=0, atol=5e-6, err_msg=parameter)


@EACH
@pytest.mark.parametrize("bad", [np.nan, np.inf, "loss"])
def test_mlx_skips_a_step_that_is_not_finite(name, bad):
    mx = pytest.importorskip("mlx.core")
    model = make(MODERN, dtype="float32", engine="mlx")
    optimizer = make_optimizer(name, model, learning_rate=0.1, weight_decay=0.5)
    parameters, state = model.parameters, optimizer.state
    rate, loss = mx.array(0.1), mx.array(0.0)
    for t in (1, 2):
        gradients = {n: mx.array(g.astype(np.float32)) for n, g in gradients_of(model, t).items()}
        if optimizer.curvature_every:
            state = optimizer.observed(state, gradients)
        before = {n: np.array(p) for n, p in parameters.items()}
        memory = {(b, n): np.array(a) for b, kept in state.items() for n, a in kept.items()}
        if t == 2 and bad == "loss":
            loss = mx.array(np.nan)
        elif t == 2:
            gradients = {n: mx.where(mx.arange(g.size).reshape(g.shape) == 0, bad, g) for n, g in gradients.items()}
        parameters, state, _, finite = optimizer.step_arrays(
            parameters, gradients, state, mx.array(float(t)), rate, loss
        )
    assert not bool(finite)
    for n, p in parameters.items():
        np.testing.assert_array_equal(np.array(p), before[n], err_msg=n)
    for b, kept in state.items():
        for n, a in kept.items():
            np.testing.assert_array_equal(np.array(a), memory[b, n], err_msg=f"{b}/{n}")


@EACH
def test_norms_and_biases_do_not_decay(name):
    model = make()
    before = {n: values.copy() for n, values in model.parameters.items()}
    gradients = model.engine.gradients(model.layout)
    gradients.fill_missing()
    make_optimizer(name, model, learning_rate=0.1, weight_decay=0.5).update(model.parameters, gradients)
    for parameter, values in model.parameters.items():
        factor = 1.0 if values.ndim == 1 else 0.95
        np.testing.assert_allclose(values, factor * before[parameter], atol=1e-14, err_msg=parameter)


@EACH
def test_a_gradient_that_is_not_finite_changes_nothing(name):
    model = make()
    optimizer = make_optimizer(name, model)
    list(drive(optimizer, model, 3))
    before = model.parameters.flat.copy()
    kept = {place: array.copy() for place, array in optimizer.state_arrays().items()}
    gradients = model.engine.gradients(model.layout)
    fill(gradients, gradients_of(model, 9))
    gradients.flat[17] = np.nan
    assert np.isnan(optimizer.update(model.parameters, gradients))
    if optimizer.curvature_every:
        optimizer.observe(gradients)
    assert optimizer.steps == 3
    np.testing.assert_array_equal(model.parameters.flat, before)
    for place, array in optimizer.state_arrays().items():
        np.testing.assert_array_equal(array, kept[place])


@EACH
@pytest.mark.parametrize("there", ["numpy", "mlx"])
def test_a_saved_state_continues_identically(name, there):
    if there == "mlx":
        pytest.importorskip("mlx.core")
    model = make(dtype="float32")
    optimizer = make_optimizer(name, model)
    list(drive(optimizer, model, 5))
    arrays = {place: array.copy() for place, array in optimizer.state_arrays().items()}
    numbers = json.loads(json.dumps(optimizer.state_numbers))
    other_model = make(dtype="float32", engine=there)
    other = make_optimizer(name, other_model, **json.loads(json.dumps(optimizer.settings)))
    other.load_state_arrays(arrays)
    other.load_state_numbers(numbers)
    assert other.steps == 5 and other.settings == optimizer.settings
    for place, array in other.state_arrays().items():
        np.testing.assert_array_equal(array, arrays[place])
    if there == "numpy":
        for parameter, values in model.parameters.items():
            other_model.parameters[parameter] = values
        list(drive(optimizer, model, 3, first=6))
        list(drive(other, other_model, 3, first=6))
        np.testing.assert_array_equal(other_model.parameters.flat, model.parameters.flat)


def test_a_state_of_another_optimizer_is_refused():
    model = make()
    optimizer, other = AdamW(model), SGD(model)
    with pytest.raises(TrainingError, match=r"the state of adamw has no 'mean/embeddings.token'.*another optimizer"):
        optimizer.load_state_arrays(other.state_arrays())
    arrays = {name: array + 1 for name, array in optimizer.state_arrays().items()}
    arrays["square/head.norm.bias"] = np.zeros(5)
    with pytest.raises(TrainingError, match=r"'square/head.norm.bias' has the shape \(5,\), but \(12,\) is needed"):
        optimizer.load_state_arrays(arrays)
    assert not any(array.any() for array in optimizer.state_arrays().values())
    with pytest.raises(TrainingError, match="'extra', which belongs to another"):
        optimizer.load_state_arrays({**optimizer.state_arrays(), "extra": np.zeros(3)})


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("adam", {}, r"no optimizer 'adam'; did you mean 'adamw'\? There are adamw, lion, sophia, muon, sgd"),
        ("lion", {"momentum": 0.9}, r"lion has no setting 'momentum'. There are learning_rate, betas"),
        ("muon", {"momentun": 0.9}, r"did you mean 'momentum'"),
        ("adamw", {"betas": (0.9, 1.0)}, r"betas must be a pair of numbers in \[0, 1\)"),
        ("adamw", {"learning_rate": -1.0}, "learning_rate must be a number of at least 0, got -1.0"),
        ("adamw", {"learning_rate": float("nan")}, "learning_rate must be"),
        ("sgd", {"clip": 0}, "clip must be a number above 0, or None"),
        ("sophia", {"every": 0}, "every must be a whole number of at least 1"),
    ],
)
def test_unknown_names_and_impossible_settings(name, settings, message):
    with pytest.raises(TrainingError, match=message):
        make_optimizer(name, make(), **settings)


# ---- muon ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6), (3, 6, 20)])
def test_orthogonal_keeps_directions_and_equalises_singular_values(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    y = orthogonal(x, 5)
    assert y.shape == shape
    s = np.linalg.svd(y, compute_uv=False)
    assert s.min() > 0.4 and s.max() < 1.3
    product = np.swapaxes(x, -1, -2) @ y  # V S Uᵀ U S' Vᵀ: symmetric where the directions are kept
    np.testing.assert_allclose(product, np.swapaxes(product, -1, -2), atol=1e-12)
    assert np.isfinite(orthogonal(np.zeros(shape), 5)).all()


@pytest.mark.parametrize("shape", [(24, 96), (96, 24), (24, 48)])
@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-6])
def test_orthogonal_of_wide_matrices_in_single_precision(shape, smallest):
    """Singular values of many sizes: close to the polynomial of each of them."""
    u, s, v = np.linalg.svd(np.random.default_rng(1).standard_normal(shape), full_matrices=False)
    s = np.geomspace(1.0, smallest, len(s))
    x, s = (u * s) @ v, s / np.linalg.norm(s)
    for _ in range(5):
        s = COEFFICIENTS[0] * s + COEFFICIENTS[1] * s**3 + COEFFICIENTS[2] * s**5
    found = orthogonal(x.astype(np.float32), 5)
    assert found.dtype == np.float32 and found.shape == shape
    np.testing.assert_allclose(found, (u * s) @ v, atol=3e-4)


def test_muon_updates_layer_matrices_and_splits_stacked_ones():
    for config, halves in ((BERT, 1), (MODERN, 2)):
        optimizer = Muon(make(config))
        assert all(name.startswith("layers.") for name in optimizer.matrices)
        assert optimizer.matrices["layers.1.attention.qkv.weight"] == 3
        assert optimizer.matrices["layers.1.ffn.up.weight"] == halves
        assert not set(optimizer.state["square"]) & set(optimizer.matrices)
        assert set(optimizer.state["square"]) | set(optimizer.matrices) == set(optimizer.state["mean"])


@pytest.mark.parametrize("threads", [1, 2])
def test_products_of_a_step_use_a_blas_of_one_thread(threads, monkeypatch):
    """Also with one engine thread: the threads of BLAS would use the cores of other workers."""
    seen = set()

    def noting(x, iterations):
        for library in threadpool_info():
            if library["user_api"] == "blas" and "scipy.libs" not in library["filepath"]:  # Numba brings one that idles
                seen.add(library["num_threads"])
        return orthogonal(x, iterations)

    monkeypatch.setattr("glassbert.training.optimizers.muon.orthogonal", noting)
    model = make(BERT, dtype="float32", threads=threads)
    list(drive(Muon(model), model, 1))
    assert seen == {1}


def test_adamw_compiled_takes_the_same_steps_bit_by_bit(monkeypatch):
    pytest.importorskip("numba")
    compiled = make(BERT, dtype="float32")
    list(drive(AdamW(compiled, 2e-3), compiled, 20))
    monkeypatch.setattr("glassbert.engines.numpy_kernels.compiled_loops", lambda: None)
    plain = make(BERT, dtype="float32")
    list(drive(AdamW(plain, 2e-3), plain, 20))
    for name, values in plain.parameters.items():
        np.testing.assert_array_equal(compiled.parameters[name], values, err_msg=name)
