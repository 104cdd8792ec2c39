"""Time series: windows, splits, scale, periods."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassbert.errors import ConfigError, InputError
from glassbert.tasks import Scale, Series, find_period, forecast_windows, seasonal_naive, split_by_time


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 4), st.integers(0, 30))
def test_windows_are_slices(length, horizon, step, extra):
    values = np.arange(length + horizon + extra, dtype=float)
    found = forecast_windows(values, length, horizon, step)
    assert len(found) == extra // step + 1
    for past, future, cut in zip(found.inputs, found.targets, found.cuts, strict=True):
        assert past.tolist() == list(range(cut - length, cut)) and future.tolist() == list(range(cut, cut + horizon))


def test_split_by_time():
    values = np.arange(100.0)
    train, test, scale = split_by_time(values, length=10, horizon=3, held_out=0.2)
    assert train.targets.max() == 79 and test.targets.min() == 80 and test.targets.max() == 99
    assert test.inputs.min() == 70 and test.cuts[0] == 80
    assert scale.mean == 39.5 and np.allclose(scale.undo(scale.apply(values)), values)
    assert Scale.from_json(json.loads(json.dumps(scale.as_json()))) == scale
    assert Scale.of(np.ones(4)).apply(np.ones(4)).tolist() == [0, 0, 0, 0]


def test_seasonal_naive():
    inputs = np.array([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    assert seasonal_naive(inputs, 3).tolist() == [[4, 4, 4], [8, 8, 8]]
    assert seasonal_naive(inputs, 3, period=2).tolist() == [[3, 4, 3], [7, 8, 7]]
    with pytest.raises(InputError, match="does not hold a period of 12"):
        seasonal_naive(inputs, 3, period=12)


@pytest.mark.parametrize("period", [4, 7, 12, 24])
def test_periods(period):
    rng = np.random.default_rng(period)
    steps = np.arange(20 * period)
    wave = np.sin(2 * np.pi * steps / period)
    assert find_period(wave + 0.05 * steps + 0.3 * rng.normal(size=len(steps))) == period
    assert find_period(wave > 0.1) == period
    assert find_period(rng.normal(size=500)) is None
    assert find_period(np.ones(50)) is None and find_period(np.arange(50.0)) is None
    assert find_period(np.sin(2 * np.pi * np.arange(2000) / 367), suggested=(7, 365)) == 365


def test_read(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text('"Month","Value"\n"1949-01",1\n"1949-02",2\n"1949-03",3.5\n')
    series = Series.of(path)
    assert series.values.tolist() == [1, 2, 3.5] and series.periods == (12,) and series.name == "Value"
    assert Series.of({"day": ["2020-01-01", "2020-01-02"], "v": [1, 2]}).periods == (7, 365)
    assert Series.of({"v": [1, 2, 3]}).periods == ()


def test_bad_series():
    with pytest.raises(InputError, match=r"row 2: '' in the column 'v' is no number.*fill the gap"):
        Series.of({"v": ["1", "", "3"]})
    with pytest.raises(InputError, match="row 3: its time is not after the row before"):
        Series.of({"day": ["2020-01-01", "2020-01-03", "2020-01-02"], "v": [1, 2, 3]})
    with pytest.raises(InputError, match="too few for a window of 10"):
        forecast_windows(np.arange(5.0), 10, 1)
    with pytest.raises(InputError, match="choose a shorter window"):
        split_by_time(np.arange(12.0), 10, 3)
    with pytest.raises(ConfigError, match="not a stored scale"):
        Scale.from_json({"mean": 1})
