"""AdamW against a reference that is written as the formula has it."""

import numpy as np
import pytest

from glassbert.training.adamw import AdamW
from tests.models.small import make


def reference(parameters, gradients, steps, learning_rate, betas, epsilon, weight_decay, clip):
    """The formula, one tensor at a time, in float64. `gradients(t)` gives those of step t."""
    p = {name: values.astype(np.float64) for name, values in parameters.items()}
    m = {name: np.zeros_like(values) for name, values in p.items()}
    v = {name: np.zeros_like(values) for name, values in p.items()}
    norms = []
    for t in range(1, steps + 1):
        g = {name: values.astype(np.float64) for name, values in gradients(t).items()}
        norm = np.sqrt(sum((values**2).sum() for values in g.values()))
        norms.append(norm)
        scale = min(1.0, clip / norm) if clip is not None else 1.0
        for name in p:
            step = g[name] * scale
            m[name] = betas[0] * m[name] + (1 - betas[0]) * step
            v[name] = betas[1] * v[name] + (1 - betas[1]) * step**2
            m_hat, v_hat = m[name] / (1 - betas[0] ** t), v[name] / (1 - betas[1] ** t)
            decay = weight_decay if p[name].ndim > 1 else 0.0
            p[name] = p[name] - learning_rate * (m_hat / (np.sqrt(v_hat) + epsilon) + decay * p[name])
    return p, norms


def gradients_of(model, t, size=1.0):
    rng = np.random.default_rng(t)
    return {name: size * rng.standard_normal(shape) * rng.random(shape) for name, shape in model.layout.shapes.items()}


DEFAULTS = {"learning_rate": 1e-3, "betas": (0.9, 0.999), "epsilon": 1e-8, "weight_decay": 0.01, "clip": 1.0}
SETTINGS = {
    "as it comes": {},
    "clipped": {"clip": 0.5},
    "never clipped": {"clip": None, "weight_decay": 0.1},
    "other betas": {"betas": (0.8, 0.95), "epsilon": 1e-3, "learning_rate": 0.02},
}


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_hundred_steps_are_those_of_the_formula(options, dtype, threads, monkeypatch):
    monkeypatch.setattr("glassbert.training.adamw.CHUNK", 50)  # many chunks
    model = make(dtype=dtype, threads=threads)
    optimizer = AdamW(model, **options)
    given = {**DEFAULTS, **options}
    size = 1e-3 if "clip" not in options else 1.0
    expected, norms = reference(dict(model.parameters), lambda t: gradients_of(model, t, size), 100, **given)
    gradients = model.engine.gradients(model.layout)
    for t in range(1, 101):
        gradients.clear()
        for name, values in gradients_of(model, t, size).items():
            gradients.add(name, values.astype(model.engine.dtype))
        gradients.finish()
        norm = optimizer.update(model.parameters, gradients)
        assert norm == pytest.approx(norms[t - 1], rel=1e-5 if dtype == "float32" else 1e-12)
    for name, values in expected.items():
        tolerance = 2e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(model.parameters[name], values, rtol=0, atol=tolerance, err_msg=name)


def test_norms_and_biases_do_not_decay():
    model = make()
    before = {name: values.copy() for name, values in model.parameters.items()}
    gradients = model.engine.gradients(model.layout)
    gradients.finish()
    AdamW(model, learning_rate=0.1, weight_decay=0.5).update(model.parameters, gradients)
    for name, values in model.parameters.items():
        factor = 1.0 if values.ndim == 1 else 0.95
        np.testing.assert_allclose(values, factor * before[name], atol=1e-14, err_msg=name)


def test_mlx_takes_the_same_steps():
    pytest.importorskip("mlx.core")
    import mlx.core as mx

    model = make(dtype="float32", engine="mlx")
    optimizer = AdamW(model, clip=0.5)
    start = {name: np.array(values) for name, values in model.parameters.items()}
    expected, norms = reference(start, lambda t: gradients_of(model, t), 20, **{**DEFAULTS, "clip": 0.5})
    state = (model.parameters, optimizer.mean, optimizer.square)
    for t in range(1, 21):
        gradients = {name: mx.array(g.astype(np.float32)) for name, g in gradients_of(model, t).items()}
        *state, norm = optimizer.step_arrays(state[0], gradients, *state[1:], mx.array(float(t)), mx.array(1e-3))
        assert float(norm) == pytest.approx(norms[t - 1], rel=1e-5)
    for name, values in expected.items():
        np.testing.assert_allclose(np.array(state[0][name]), values, rtol=0, atol=2e-5, err_msg=name)
