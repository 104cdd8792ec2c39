"""Optimizers that update many small parameters in one launch give what they give with a launch for each.

The kernels themselves need CUDA. Elsewhere their statements are translated to MLX and run on the same arrays, which
checks the formulas, the grouping and the stacking of matrices.
"""

import re

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

from glassbert.engines import mlx_many  # noqa: E402
from glassbert.engines.mlx_cuda.launch import on_cuda  # noqa: E402
from glassbert.models.model import Model  # noqa: E402
from glassbert.training.optimizers import AdamW  # noqa: E402
from glassbert.training.optimizers.muon import Muon  # noqa: E402
from glassbert.training.step import TrainingStep  # noqa: E402
from tests.models.small import BERT  # noqa: E402


class Translated:
    """`mlx_many` with arrays of MLX: the statements of a kernel as Python, on whole arrays."""

    small = staticmethod(mlx_many.small)

    def __init__(self):
        self.launches = 0

    def sum_of_squares(self, arrays):
        self.launches += 1
        return sum(mx.square(array.astype(mx.float32)).sum() for array in arrays)

    def each(self, body, arrays, scalars, outputs, packed=None):
        self.launches += 1
        found = {name: [] for name in (*outputs, *(packed or {}))}
        for values in zip(*arrays.values(), strict=True):
            own = {
                "mx": mx,
                **scalars,
                **{n: v.reshape(-1).astype(mx.float32) for n, v in zip(arrays, values, strict=True)},
            }
            exec(python_of(body), {}, own)
            for name, dtype in outputs.items():
                found[name].append(own[name].reshape(values[0].shape).astype(dtype))
            for name, dtype in (packed or {}).items():
                found[name].append(own[name].reshape(-1).astype(dtype))
        return {name: mx.concatenate(found[name]) if name in (packed or {}) else found[name] for name in found}


def python_of(body):
    lines = [line.removeprefix("const float ").strip() for line in map(str.strip, body.split(";")) if line]
    lines = [re.sub(r"= (.+) \? (.+) : (.+)", r"= mx.where(\1, \2, \3)", line) for line in lines]
    return "\n".join(re.sub(r"(\d)f\b", r"\1", line).replace("sqrtf", "mx.sqrt") for line in lines)


def steps(optimizer, many):
    model = Model(BERT, "mlm", engine="mlx", seed=1)
    model.engine.many = many
    model.set_training(True)
    train = TrainingStep(model, optimizer(model, 1e-2))
    train.optimizer.rates = {"embeddings.token": 0.5, "layers.0.ffn.up.weight": 0.25, "layers.1.ffn.up.bias": 0.0}
    rng = np.random.default_rng(0)
    for _ in range(4):
        ids = rng.integers(1, BERT.vocab_size, (4, 8))
        train(ids, np.where(rng.random(ids.shape) < 0.3, ids, -100))
    return {name: np.array(value) for name, value in model.parameters.items()}


@pytest.mark.parametrize("optimizer", [AdamW, Muon])
def test_many_together_equal_one_by_one(optimizer):
    many = Translated()
    together, alone = steps(optimizer, many), steps(optimizer, None)
    assert many.launches > 0
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("optimizer", [AdamW, Muon])
def test_a_step_that_is_not_finite_changes_nothing(optimizer):
    model = Model(BERT, "mlm", engine="mlx", seed=1)
    model.engine.many = Translated()
    own = optimizer(model, 1e-2)
    gradients = {name: mx.ones(value.shape) for name, value in model.parameters.items()}
    gradients["layers.1.attention.qkv.weight"] = gradients["layers.1.attention.qkv.weight"] * float("inf")
    moved, state, _, finite = own.step_arrays(model.parameters, gradients, own.state, mx.array(1.0), mx.array(1e-2))
    assert not finite.item()
    for name, value in model.parameters.items():
        np.testing.assert_array_equal(np.array(moved[name]), np.array(value), err_msg=name)
        np.testing.assert_array_equal(np.array(state["mean"][name]), 0.0, err_msg=name)


def test_large_arrays_are_left_to_mlx():
    assert mlx_many.small(mx.zeros(mlx_many.LARGEST)) and not mlx_many.small(mx.zeros(mlx_many.LARGEST + 1))


@pytest.mark.skipif(not on_cuda(), reason="the kernels need an NVIDIA GPU")
@pytest.mark.parametrize("optimizer", [AdamW, Muon])
def test_the_kernels(optimizer):
    together, alone = steps(optimizer, mlx_many), steps(optimizer, None)
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=1e-3, atol=2e-4, err_msg=name)
