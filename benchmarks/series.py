"""Forecasts of three time series, compared with simple methods on the same windows.

    python -m benchmarks.series [--data ../shared/data] [--seeds 3] [--steps 600] [--only sunspots] [--json [FILE]]

Passengers by month (12 ahead), lowest temperatures by day (7 ahead) and sunspots by month (12 ahead). The last fifth
of a series is the test part; it is not used in training or for any choice. Ours is `glassbert forecast` with its
defaults: a new encoder of two blocks of 32, its recipe and steps chosen on the part before the test. The others are the
last value (naive), the value one period before (seasonal naive), and autoregression by least squares on the same
windows, with its ridge penalty chosen on the same part (linear).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any

from benchmarks.common import Table, add_json_option, count, describe_machine, progress, run_program, show_json
from benchmarks.inference import DATA
from glassbert.forecasting import Forecasted, ForecastSettings, forecast
from glassbert.tasks import ready_task

HORIZONS = {"airline": 12, "temperatures": 7, "sunspots": 12}
METRICS = ("mase", "rmse", "smape")


def measure(name: str, data: str, settings: ForecastSettings) -> tuple[Forecasted, float]:
    series = ready_task(name).open_series(data)
    start = time.perf_counter()
    result = forecast(series, settings.replace(horizon=HORIZONS[name]))
    return result, time.perf_counter() - start


def rows(name: str, result: Forecasted, seconds: float) -> list[dict[str, Any]]:
    """One row for every method: ours as mean and standard deviation over the seeds."""
    spreads = {metric: result.spread(metric) for metric in METRICS}
    ours = {metric: None if s is None else s.mean for metric, s in spreads.items()}
    deviation = {f"{metric}_deviation": None if s is None else s.deviation for metric, s in spreads.items()}
    found = [{"series": name, "forecast": "ours, one seed", **ours, **deviation, "seconds": round(seconds, 1),
              "recipe": str(result.recipe), "windows": len(result.test)}]  # fmt: skip
    others = {n: s for n, s in result.scores().items() if n != "this model"}
    names = {"its seeds together": f"ours, {len(result.seeds)} seeds together"}
    return found + [{"series": name, "forecast": names.get(n, n), **asdict(s)} for n, s in others.items()]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", default=str(DATA), help="the folder with series/ (default: ../shared/data of the repository)"
    )
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--steps", type=count, default=600)
    parser.add_argument("--only", choices=sorted(HORIZONS), help="one series (default: all three)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    settings = ForecastSettings(seeds=options.seeds, steps=options.steps)
    found: list[dict[str, Any]] = []
    for name in [options.only] if options.only else HORIZONS:
        progress(f"{name} ...")
        found += rows(name, *measure(name, options.data, settings))
    progress("")
    line, machine = describe_machine("glassbert")
    if options.json:
        show_json({"machine": machine, "rows": found}, options.json)
        return
    lines: list[list[str] | None] = []
    for row in found:
        if lines and row["forecast"].startswith("ours, one"):
            lines.append(None)
        cells = [_cell(row[metric], row.get(f"{metric}_deviation")) for metric in METRICS]
        lines.append([row["series"], row["forecast"], *cells])
    notes = [f"{row['series']}: {row['windows']} windows, {row['recipe']}, {row['seconds']:.0f} s"
             for row in found if "recipe" in row]  # fmt: skip
    Table(f"Forecasts, {options.seeds} seeds", ["series", "forecast", "MASE", "RMSE", "sMAPE %"], lines,
          [*notes, line], left=2).show()  # fmt: skip


def _cell(value: float | None, deviation: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if deviation is None else f"{value:.3f} ± {deviation:.3f}"


if __name__ == "__main__":
    run_program(main)
