"""Bands that cover, dates of forecasts, and forecasts that go on after an interruption."""

import csv
import json
import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest

from glassbert.cli import main
from glassbert.errors import TrainingError
from glassbert.finetuning.run import resume
from glassbert.forecasting import Forecaster, ForecastSettings, forecast_run, resume_forecast
from glassbert.forecasting.bands import conformal_bands, conformal_quantile
from glassbert.forecasting.dates import as_datetime64, date_texts, next_times
from glassbert.tasks import Series, find_period
from glassbert.tasks.series import times_in_days

QUICK = ForecastSettings(horizon=4, window=12, patch=4, period=6, hidden_size=8, num_hidden_layers=1, steps=12,
                         evaluate_every=4, seeds=2, engine="numpy", frame="standard")  # fmt: skip

# ---- bands ---------------------------------------------------------------------------------------------------------


def errors(generator, windows, horizon, spread):
    """Absolute errors of overlapping windows: sums of the noise over the steps ahead, as of a random walk."""
    noise = generator.standard_normal(windows + horizon) * spread
    return np.abs(np.array([np.cumsum(noise[w : w + horizon]) for w in range(windows)]))


def simulated(seed, change):
    """Coverage of static bands and of ours, if the errors change by a factor between validation and test."""
    generator = np.random.default_rng(seed)
    validation, test = errors(generator, 200, 6, 1.0), errors(generator, 300, 6, change)
    cuts = np.arange(200), np.arange(206, 506)
    static = (test <= np.quantile(validation, 0.8, axis=0)).mean()
    return static, conformal_bands(validation, cuts[0], test, cuts[1]).coverage


@pytest.mark.parametrize(("change", "static_low", "static_high"), [(1.0, 0.75, 0.85), (1.8, 0.4, 0.6), (0.5, 0.9, 1.0)])
def test_coverage_with_errors_that_change(change, static_low, static_high):
    """Bands from the validation errors alone miss the share when errors change; adaptive bands keep near it."""
    static, ours = np.mean([simulated(seed, change) for seed in range(12)], 0)
    assert static_low < static < static_high
    assert 0.77 < ours < 0.86


def test_split_conformal_coverage_is_exact_for_independent_errors():
    """P(new error ≤ margin) = ⌈(m + 1)·0.8⌉ / (m + 1), for any distribution."""
    generator = np.random.default_rng(0)
    for count in (9, 14):
        samples = np.sort(generator.exponential(size=(20_000, count)), 1)
        margins = np.array([conformal_quantile(row.tolist(), 0.8) for row in samples])
        expected = np.ceil((count + 1) * 0.8) / (count + 1)
        assert (generator.exponential(size=20_000) <= margins).mean() == pytest.approx(expected, abs=0.01)


def test_quantile_of_few_errors():
    assert conformal_quantile([1.0, 2.0], 0.8) == 2.0 and conformal_quantile([1.0, 2.0, 3.0, 4.0], 0.8) == 4.0
    assert conformal_quantile([1.0, 2.0], -0.5) == 1.0 and conformal_quantile([1.0, 2.0], 1.5) == 2.0


# ---- periods and dates ---------------------------------------------------------------------------------------------


def hourly(seed, weekly=0.0, drift=10.0):
    """Eight weeks of hours: two peaks a day, a weekend, and a slow random change that is larger than both."""
    generator = np.random.default_rng(seed)
    steps = np.arange(24 * 7 * 8)
    slow = np.cumsum(generator.normal(size=len(steps)))
    hour, day = steps % 24, steps // 24 % 7
    daily = 3 * np.exp(-(((hour - 8) / 3) ** 2)) + 3.6 * np.exp(-(((hour - 19) / 3) ** 2))
    slow = drift * (slow - slow.mean()) / slow.std()
    return 50 + daily - weekly * (day >= 5) + slow + generator.normal(size=len(steps))


@pytest.mark.parametrize("seed", range(4))
def test_periods_of_hours(seed):
    assert find_period(hourly(seed), (24, 168)) == 24
    assert find_period(hourly(seed, drift=0.0), (24, 168)) == 24
    assert find_period(hourly(seed, weekly=8.0, drift=2.0), (24, 168)) == 168
    noise = np.cumsum(np.random.default_rng(seed).normal(size=1344))
    assert find_period(noise, (24, 168)) not in (24, 168)


@pytest.mark.parametrize(
    ("dates", "texts"),
    [
        (["2020-11", "2020-12"], ["2021-01", "2021-02", "2021-03"]),
        (["2020-02-27", "2020-02-28"], ["2020-02-29", "2020-03-01", "2020-03-02"]),
        (["2020-12-31 22:00", "2020-12-31 23:00"], ["2021-01-01 00:00", "2021-01-01 01:00", "2021-01-01 02:00"]),
        (
            ["2019-12-31T23:30:00Z", "2020-01-01T00:00:00Z"],
            ["2020-01-01 00:30", "2020-01-01 01:00", "2020-01-01 01:30"],
        ),
        (["1998-01-01", "1999-01-01"], ["2000", "2001", "2002"]),
        (["2020-01-01", "2020-04-01"], ["2020-07", "2020-10", "2021-01"]),
        (["2020-01-06", "2020-01-13"], ["2020-01-20", "2020-01-27", "2020-02-03"]),
    ],
)
def test_next_dates(dates, texts):
    times = times_in_days(dates)
    assert date_texts(next_times(times, 3)) == texts
    assert as_datetime64(times)[1] > as_datetime64(times)[0]


def test_numbers_are_not_dates():
    """A column of step numbers gives neither dates nor the periods of days."""
    series = Series.of({"step": [0, 1, 2, 3], "v": [1, 2, 3, 4]})
    assert series.times is None and series.periods == ()
    assert times_in_days(["2020-01", "soon"]) is None


# ---- runs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    generator = np.random.default_rng(3)
    months = [f"{2010 + i // 12}-{i % 12 + 1:02d}" for i in range(120)]
    values = 20 + 4 * np.sin(2 * np.pi * np.arange(120) / 6) + 0.3 * generator.standard_normal(120)
    path = tmp_path / "months.csv"
    with open(path, "w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([("Month", "Sales"), *zip(months, values, strict=True)])
    return str(path)


def test_dates_in_files_and_figures(file, tmp_path):
    pytest.importorskip("matplotlib")
    run = tmp_path / "run"
    forecast_run(QUICK.replace(series=file, seeds=1, shortcut="learned"), run)
    rows = list(csv.DictReader((run / "future.csv").open()))
    assert [row["time"] for row in rows] == ["2020-01", "2020-02", "2020-03", "2020-04"]
    assert all(float(row["low"]) < float(row["forecast"]) < float(row["high"]) for row in rows)
    first = json.loads((run / "predictions.jsonl").read_text().splitlines()[0])
    assert first["time"] == "2018-01" and len(first["low"]) == 4
    page = (run / "report.html").read_text()
    assert "2020-04" in page and ">2018</text>" in page and ">step</text>" in page  # the axis of learning
    assert Forecaster.load(run, engine="numpy")(Series.of(file)).times == ["2020-01", "2020-02", "2020-03", "2020-04"]


def stop_after(trainings):
    seen = set()

    def progress(description, *_):
        seen.add(description)
        if len(seen) > trainings:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("trainings", [0, 1, 4])
def test_interrupted_forecast_goes_on(file, tmp_path, trainings):
    """Two recipes and two seeds, each trained and trained again, stopped after some of them."""
    settings = QUICK.replace(series=file)
    whole, _ = forecast_run(settings, tmp_path / "whole")
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        forecast_run(settings, run, stop_after(trainings))
    assert len(list((run / "trainings").glob("*.safetensors"))) == trainings
    repeated = []
    found, _ = resume_forecast(run, lambda description, *_: repeated.append(description))
    assert len(set(repeated)) == 5 - trainings
    assert (found.future == whole.future).all() and found.bands.coverage == whole.bands.coverage
    assert (run / "result.json").read_text() == (tmp_path / "whole" / "result.json").read_text()
    assert not (run / "trainings").exists()


def test_resumed_by_the_command(file, tmp_path, capsys):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        forecast_run(QUICK.replace(series=file), run, stop_after(2))
    (next((run / "trainings").iterdir())).write_bytes(b"half a file")  # trained again
    with pytest.raises(TrainingError, match=r"already holds a run\. Resume it with: glassbert resume"):
        forecast_run(QUICK.replace(series=file), run)
    with pytest.raises(TrainingError, match="is a forecast; resume it with"):
        resume(run)
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(run)])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "2020-01" in out and "such bands contained" in out and (run / "result.json").exists()


def test_a_signal_ends_the_command_with_its_code(file, tmp_path, capsys, monkeypatch):
    from glassbert.cli import forecast as command

    @contextmanager
    def interrupting():
        yield lambda *values: os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(command, "progress_bar", interrupting)
    with pytest.raises(SystemExit) as ended:
        main(["forecast", "--series", str(file), "--steps", "4", "--run", str(tmp_path / "run")])
    assert ended.value.code == 143
    assert "Continue with: glassbert resume" in capsys.readouterr().err


def test_changed_series_is_not_resumed(file, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        forecast_run(QUICK.replace(series=file), run, stop_after(1))
    with open(file, "a", encoding="utf-8") as opened:
        opened.write("2020-01,25\n")
    with pytest.raises(TrainingError, match="has changed since the run started"):
        resume_forecast(run)
