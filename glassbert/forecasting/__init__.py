"""Forecasts of time series with the encoder that reads texts: choose, train, judge, look ahead.

from glassbert.forecasting import ForecastSettings, forecast
from glassbert.tasks import Series

result = forecast(Series.of("passengers.csv"), ForecastSettings(horizon=12))
result.scores()                    # beside the naive, the seasonal naive and the linear forecast
result.future                      # the twelve values after the last one
"""

from glassbert.forecasting.forecast import Forecasted, ForecastScores, forecast
from glassbert.forecasting.forecaster import Forecaster, Future
from glassbert.forecasting.run import forecast_run
from glassbert.forecasting.settings import ForecastSettings

__all__ = [
    "ForecastScores",
    "ForecastSettings",
    "Forecasted",
    "Forecaster",
    "Future",
    "forecast",
    "forecast_run",
]
