"""Forecasts of time series with a transformer encoder over patches of the series.

from glassbert.forecasting import ForecastSettings, forecast
from glassbert.tasks import Series

result = forecast(Series.of("passengers.csv"), ForecastSettings(horizon=12))
result.scores()                    # of the model and the naive, seasonal naive and linear baselines
result.future                      # the next twelve values
"""

from glassbert.forecasting.forecast import Forecasted, ForecastScores, forecast
from glassbert.forecasting.forecaster import Forecaster, Future
from glassbert.forecasting.run import forecast_run, resume_forecast
from glassbert.forecasting.settings import ForecastSettings

__all__ = [
    "ForecastScores",
    "ForecastSettings",
    "Forecasted",
    "Forecaster",
    "Future",
    "forecast",
    "forecast_run",
    "resume_forecast",
]
