"""`training.evaluate` for every kind of model."""

import numpy as np
import pytest

from glassbert import create_model
from glassbert.training.evaluate import evaluate

WINDOWS = np.random.default_rng(0).standard_normal((10, 8))
FUTURE = np.random.default_rng(1).standard_normal((10, 3))


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_a_forecast_model_is_evaluated(engine):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    model = create_model(
        "bert_with_head", head="forecast", config="mini", window=8, patch=4, horizon=3, engine=engine, threads=1
    )
    batches = [{"input_ids": WINDOWS[i : i + 5], "labels": FUTURE[i : i + 5]} for i in (0, 5)]
    found = evaluate(model, batches)
    expected = np.mean((np.asarray(model.engine.to_numpy(model.predict(WINDOWS))) - FUTURE) ** 2)
    assert found.loss == pytest.approx(float(expected), rel=1e-4)
    assert found.counts == {"forecast": 30} and np.isnan(found.accuracy)
