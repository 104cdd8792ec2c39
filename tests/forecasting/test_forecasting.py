"""Forecasts: data splits, determinism, baselines, run folders, the command, and errors."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest

from glassbert import BertCore, create_model
from glassbert.cli import COMMANDS, main
from glassbert.cli.forecast import forecast_with
from glassbert.errors import CheckpointError, InputError, TrainingError
from glassbert.families.bert import MINI_BERT_CONFIG
from glassbert.forecasting import Forecaster, ForecastSettings, forecast, forecast_run, resume_forecast
from glassbert.forecasting.bands import conformal_bands
from glassbert.forecasting.baselines import LinearForecast, baselines, best_ridge
from glassbert.forecasting.fit import predict
from glassbert.forecasting.forecaster import is_forecaster
from glassbert.forecasting.model import new_model
from glassbert.forecasting.plan import grows_with_level, plan_for
from glassbert.forecasting.settings import FRAMES
from glassbert.tasks import Series, forecast_windows

QUICK = ForecastSettings(horizon=4, window=12, patch=4, period=6, hidden_size=8, num_hidden_layers=1,
                         steps=12, evaluate_every=4, seeds=2, engine="numpy", frame="standard",
                         shortcut="learned")  # fmt: skip


def wave(count=120, noise=0.1, trend=0.02):
    rng = np.random.default_rng(3)
    steps = np.arange(count)
    values = 20 + 4 * np.sin(2 * np.pi * steps / 6) + trend * steps + noise * rng.standard_normal(count)
    return Series(values, "waves", "wave.csv")


@pytest.fixture(scope="module")
def result():
    return forecast(wave(), QUICK)


def test_parts_of_the_series():
    plan = plan_for(wave(), QUICK)
    assert (plan.validated_from, plan.tested_from) == (78, 96)
    assert plan.train.cuts[-1] + 4 == 78
    assert plan.validation.cuts[0] == 78 and plan.validation.cuts[-1] + 4 == 96
    assert plan.test.cuts[0] == 96 and plan.test.cuts[-1] + 4 == 120
    assert (plan.test.inputs[0] == plan.values[84:96]).all()
    assert np.isclose(plan.config.mean, plan.values[:78].mean())


def test_test_part_is_not_used_in_training(result):
    other = wave()
    other.values[96:] = 1e3 * np.random.default_rng(0).standard_normal(24)
    again = forecast(other, QUICK)
    for name, value in result.model.parameters.items():
        assert (again.model.parameters[name] == value).all(), name
    assert [seed.fitted for seed in again.seeds] == [seed.fitted for seed in result.seeds]


def test_validation_part_is_not_used_without_refit():
    settings = QUICK.replace(refit=False, seeds=1, patience=0, ema=0.0, steps=4)
    other = wave()
    other.values[78:96] += 5.0
    first, again = forecast(wave(), settings), forecast(other, settings)
    assert first.seeds[0].fitted.error != again.seeds[0].fitted.error
    assert all((again.model.parameters[name] == value).all() for name, value in first.model.parameters.items())


def test_deterministic_by_seed(result):
    again = forecast(wave(), QUICK)
    assert (again.future == result.future).all() and (again.predicted == result.predicted).all()
    assert not (result.seeds[0].predicted == result.seeds[1].predicted).all()
    other = forecast(wave(), QUICK.replace(seed=1, seeds=1))
    assert (other.seeds[0].predicted == result.seeds[1].predicted).all()


def test_engines_agree():
    pytest.importorskip("mlx.core")
    settings = QUICK.replace(dropout=0.0, seeds=1)
    ours, theirs = forecast(wave(), settings), forecast(wave(), settings.replace(engine="mlx"))
    assert np.allclose(ours.predicted, theirs.predicted, atol=1e-4) and np.allclose(ours.future, theirs.future)


def test_model_beats_naive_forecasts():
    settings = QUICK.replace(steps=150, hidden_size=16, seeds=1, frame="mean", shortcut="line")
    scores = forecast(wave(200, noise=1.0, trend=0.05), settings).scores()
    assert scores["this model"].mase < 0.9 * scores["seasonal naive"].mase
    assert scores["this model"].mase < 0.9 * scores["naive"].mase


def test_early_stopping():
    settings = QUICK.replace(steps=400, learning_rate=0.05, patience=2, seeds=1, refit=False)
    fitted = forecast(wave(), settings).seeds[0].fitted
    steps, errors = zip(*fitted.curve, strict=True)
    assert fitted.error == min(errors) and fitted.step == steps[errors.index(min(errors))]
    assert steps[-1] == fitted.step + 2 * settings.evaluate_every < 400


@pytest.mark.parametrize("frame", FRAMES)
def test_shortcut_starts_as_the_linear_forecast(frame):
    plan = plan_for(wave(), QUICK.replace(frame=frame, shortcut="line"))
    config = plan.recipes[0].apply_to(plan.config)
    linear = LinearForecast.fit(plan.train, config, best_ridge(plan.train, plan.validation, config))
    model = new_model(QUICK.replace(precision="float64"), config, 0, linear)
    expected = linear.forecast(plan.test.inputs)
    assert np.allclose(model.head.decode(model.predict(plan.test.inputs)), expected)
    assert not np.allclose(expected, plan.test.targets, atol=1e-6)


def test_linear_forecast_of_a_linear_series():
    values = [1.0, 2.0]
    for _ in range(60):
        values.append(1.5 * values[-1] - 0.8 * values[-2] + 3)
    windows = forecast_windows(np.array(values), 4, 2)
    plan = plan_for(wave(), QUICK)
    config = dataclasses.replace(plan.config, window=4, patch=4, mean=0.0, scale=1.0)
    assert np.allclose(LinearForecast.fit(windows, config, 1e-12).forecast(windows.inputs), windows.targets, atol=1e-3)


def test_baselines():
    plan = plan_for(wave(), QUICK.replace(period=20))
    found = baselines(plan, plan.test)
    cut = plan.test.cuts[0]
    assert (found["seasonal naive"][0] == plan.values[cut - 20 : cut - 16]).all()
    assert (found["naive"][0] == plan.values[cut - 1]).all()


def test_choices_from_the_series():
    months = Series(wave().values, "v", "v.csv", periods=(12,))
    free = ForecastSettings(horizon=4)
    plan = plan_for(months, free)
    assert plan.period == 6 and plan.config.patch == 12 and plan.config.window == 24 and len(plan.recipes) == 6
    assert not plan.config.logarithm
    growing = Series(np.exp(wave().values / 10 + np.arange(120) / 30), "v", "v.csv")
    assert plan_for(growing, free).config.logarithm and grows_with_level(growing.values, 6)
    assert not grows_with_level(growing.values - growing.values.max(), 6)
    assert not plan_for(growing, free.replace(logarithm=False)).config.logarithm


def test_bands_use_only_errors_known_at_their_time():
    found = forecast(wave(noise=1.0), QUICK.replace(refit=False, seeds=1))
    scaled, plan = found.series.scaled, found.plan
    before, after = (
        np.abs(scaled(part.targets) - scaled(predict(found.model, part.inputs)))
        for part in (plan.validation, plan.test)
    )
    known = before[plan.validation.cuts + 3 < plan.test.cuts[0], 3]  # four steps ahead, before the first test window
    assert found.bands.tested[0, 3] == pytest.approx(
        np.sort(known)[min(len(known), math.ceil((len(known) + 1) * 0.8)) - 1]
    )
    assert found.bands.coverage == (after <= found.bands.tested).mean()
    assert (found.low < found.future).all() and (found.future < found.high).all()
    again = conformal_bands(
        before, plan.validation.cuts, np.where(np.arange(21)[:, None] < 10, after, 99.0), plan.test.cuts
    )
    assert (again.tested[:10] == found.bands.tested[:10]).all() and again.margin[0] > found.bands.margin[0]


def test_mase_of_an_exactly_periodic_series():
    steps = np.arange(120)
    exact = Series(20 + 4 * np.array([0.0, 1, 2, 3, 2, 1])[steps % 6], "v", "v.csv")
    found = forecast(exact, QUICK.replace(steps=4, seeds=1))
    assert found.scores()["this model"].mase is None and found.spread() is None
    assert found.scores()["seasonal naive"].rmse == 0


def test_layers_of_a_pretrained_encoder(tmp_path):
    config = MINI_BERT_CONFIG.replace(vocab_size=30, hidden_size=16, intermediate_size=24, num_hidden_layers=2)
    encoder = BertCore(config, engine="numpy", seed=5)
    encoder.save(tmp_path)
    plan = plan_for(wave(), QUICK)
    model = new_model(QUICK.replace(model=str(tmp_path)), plan.recipes[0].apply_to(plan.config), 0)
    for name, value in encoder.parameters.items():
        if name.startswith(("layers.", "final_norm.")):
            assert (model.parameters[name] == value).all()
    assert "embeddings.token" not in model.parameters and model.parameters["embeddings.projection.weight"].any()
    assert model.config.num_hidden_layers == 2 and model.predict(plan.test.inputs).shape == (21, 4)
    found = forecast(wave(), QUICK.replace(model=str(tmp_path), seeds=1, steps=4))
    assert np.isfinite(found.future).all()


def write(path, series):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("step", "waves"), *enumerate(series.values)])
    return str(path)


def test_run_folder_and_forecaster(tmp_path):
    file, run = write(tmp_path / "wave.csv", wave()), tmp_path / "run"
    found, folder = forecast_run(QUICK.replace(series=file), run)
    names = {path.name for path in run.iterdir()}
    assert {"settings.json", "log.jsonl", "model", "predictions.jsonl", "future.csv", "result.json",
            "report.html"} <= names  # fmt: skip
    result = json.loads((run / "result.json").read_text())
    assert set(result["scores"]) == {"this model", "its seeds together", "naive", "seasonal naive", "linear"}
    assert result["spread"]["mase"]["seeds"] == 2 and result["test_windows"] == 21
    rows = [json.loads(linear) for linear in (run / "predictions.jsonl").read_text().splitlines()]
    assert len(rows) == 21 and rows[0]["truth"] == wave().values[96:100].tolist()
    page = (run / "report.html").read_text()
    assert "waves: the next 4 values" in page and "seasonal naive" in page
    future = Forecaster.load(run, engine="numpy")(wave())
    assert np.allclose(future.values, found.future) and (future.low < future.values).all()
    assert np.allclose(future.high, found.high) and is_forecaster(run) and is_forecaster(folder.model)
    assert np.allclose(
        forecast_with(ForecastSettings(series=file, model=str(run), engine="numpy")).values, found.future
    )
    with pytest.raises(TrainingError, match="already holds a run"):
        forecast_run(QUICK.replace(series=file), run)
    with pytest.raises(TrainingError, match="is finished"):
        resume_forecast(run)
    with pytest.raises(InputError, match="needs 12 past values, and the series has 11"):
        Forecaster.load(run)(wave().values[:11])
    with pytest.raises(InputError, match="is nan; fill gaps"):
        Forecaster.load(run)(np.append(wave().values, np.nan))


def test_is_forecaster(tmp_path):
    create_model("bert", config=MINI_BERT_CONFIG.replace(vocab_size=10, hidden_size=8), engine="numpy").save(tmp_path)
    assert not is_forecaster(tmp_path) and not is_forecaster(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=r"has no task.json"):
        Forecaster.load(tmp_path)


@pytest.mark.parametrize(
    ("series", "changes", "error", "message"),
    [
        (wave(20), {}, InputError, "20 values, of which 12 are left for training; a window of 12 and a horizon of 4"),
        (wave(3), {}, InputError, "0 are left for training"),
        (Series(np.where(np.arange(120) == 7, np.nan, 1.0), "v", "f"), {}, InputError, "value 7 of v is not finite"),
        (Series(-wave().values, "v", "f"), {"logarithm": True}, InputError, "logarithms need values above 0"),
        (wave(), {"period": 200}, InputError, "a period of 200 is longer than the 78 training values"),
    ],
)
def test_invalid_series(series, changes, error, message):
    with pytest.raises(error, match=message):
        forecast(series, QUICK.replace(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ({"frame": "median"}, "frame must be one of standard"),
        ({"held_out": 1.5}, "held_out must be a share of the series"),
        ({"held_out": 0.5, "validation": 0.45}, "leave less than a tenth"),
        ({"learning_rate": -1.0}, "learning_rate must be a number above 0"),
        ({"horizn": 3}, "did you mean 'horizon'"),
    ],
)
def test_invalid_settings(changes, message):
    with pytest.raises(TrainingError, match=message):
        ForecastSettings.from_dict({**QUICK.to_dict(), **changes})


def test_error_for_divergence():
    series = wave()
    with pytest.raises(TrainingError, match="no step gave a finite error"):
        forecast(series, QUICK.replace(learning_rate=1e30, steps=8, ema=0.0, seeds=1))


def test_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(COMMANDS, "forecast", "Forecast a series.")
    file = write(tmp_path / "wave.csv", wave())
    flags = ["--series", file, "--horizon", "4", "--window", "12", "--patch", "4",
             "--hidden-size", "8", "--num-hidden-layers", "1",
             "--steps", "4", "--seeds", "1", "--frame", "none", "--shortcut", "line", "--engine", "numpy"]  # fmt: skip
    with pytest.raises(SystemExit) as left:
        main(["forecast", *flags, "--run", str(tmp_path / "run"), "--json"])
    assert left.value.code == 0
    assert len(json.loads(capsys.readouterr().out)["future"]) == 4
    with pytest.raises(SystemExit):
        main(["forecast", *flags, "--run", str(tmp_path / "shown")])
    shown = capsys.readouterr().out
    assert "seasonal naive" in shown and f"Report  {tmp_path / 'shown' / 'report.html'}" in shown
    with pytest.raises(SystemExit) as left:
        main(["forecast", "--series", file, "--model", str(tmp_path / "run"), "--horizon", "9"])
    assert left.value.code == 2 and "is already trained; remove horizon" in capsys.readouterr().err
