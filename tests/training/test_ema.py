"""The moving average of the weights: its formula, swapping and saving, on both engines."""

import numpy as np
import pytest

from glassbert.errors import TrainingError
from glassbert.training.ema import EMA
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from tests.models.small import batch, make


def train(engine, steps=12, decay=0.8, **options):
    model = make(dtype="float32", engine=engine, **options)
    ema = EMA(model, decay)
    step = TrainingStep(model, AdamW(model, 1e-2), ema=ema)
    ids, mask, labels = batch()
    seen = [{name: np.array(value) for name, value in model.parameters.items()}]
    for _ in range(steps):
        step(ids, labels, mask)
        seen.append({name: np.array(value) for name, value in model.parameters.items()})
    return model, ema, seen


@pytest.mark.parametrize(("engine", "threads"), [("numpy", 1), ("numpy", 3), ("mlx", 1)])
def test_the_average_follows_the_formula(engine, threads):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    _, ema, seen = train(engine, threads=threads)
    for name, average in ema.parameters.items():
        expected = seen[0][name].astype(np.float64)
        for t, values in enumerate(seen[1:], 1):
            decay = min(0.8, (1 + t) / (10 + t))
            expected = decay * expected + (1 - decay) * values[name]
        np.testing.assert_allclose(np.array(average), expected, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_weights_and_average_are_swapped_and_restored(engine):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    model, ema, _ = train(engine, 3)
    weights, average = model.parameters, ema.parameters
    with pytest.raises(RuntimeError), ema.swapped(model):
        assert model.parameters is average and ema.parameters is weights
        raise RuntimeError
    assert model.parameters is weights and ema.parameters is average


def test_the_average_is_saved_and_loaded():
    _, ema, _ = train("numpy", 3)
    other = EMA(make(dtype="float32"), 0.8)
    arrays = {name: array.copy() for name, array in ema.state_arrays().items()}
    other.load_state_arrays(arrays)
    np.testing.assert_array_equal(other.parameters.flat, ema.parameters.flat)
    arrays.pop("ema/embeddings.token")
    with pytest.raises(TrainingError, match=r"the moving average has no 'ema/embeddings.token'"):
        other.load_state_arrays(arrays)


def test_a_decay_outside_0_to_1_is_refused():
    for decay in (0, 1, 1.5, "much"):
        with pytest.raises(TrainingError, match="between 0 and 1"):
            EMA(make(), decay)
