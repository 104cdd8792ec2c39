"""Accuracy of the forecasts of a run's final held-out loss.

    python -m benchmarks.forecast RUN [RUN ...] [--json [FILE]]

For every finished run, the forecast made after several fractions of the run is compared with the final held-out loss.
A RUN is a folder with a log.jsonl.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Table, add_json_option, rounded, run_program, show_json
from glassbert.training.history import forecast_final_loss
from glassbert.training.log import read_log

FRACTIONS = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.9)
MIN_EVALUATIONS = 5  # of a run, including the one before its first step


def read(run: Path) -> list[Mapping[str, Any]] | None:
    """The evaluations of a run; None if it has too few or is not finished."""
    lines = [line for line in read_log(run / "log.jsonl") if line["kind"] == "evaluation"]
    return lines if len(lines) >= MIN_EVALUATIONS and lines[-1]["progress"] > 0.97 else None


def measure(runs: list[Path]) -> dict[str, Any]:
    curves = [curve for curve in map(read, runs) if curve is not None]
    if not curves:
        raise SystemExit(f"none of the {len(runs)} folders contains a finished run with {MIN_EVALUATIONS} evaluations")
    rows = []
    for fraction in FRACTIONS:
        errors, inside, widths = [], [], []
        for lines in curves:
            found = forecast_final_loss([line for line in lines if line["progress"] <= fraction + 0.001])
            if found is None:
                continue
            end = float(lines[-1]["loss"])
            errors.append(found.loss / end - 1)
            inside.append(found.low <= end <= found.high)
            widths.append((found.high - found.low) / end)
        if errors:
            low, middle, high = np.quantile(errors, [0.1, 0.5, 0.9])
            rows.append({
                "progress": fraction, "runs": len(errors), "error": rounded(float(middle)),
                "error_range": [rounded(float(low)), rounded(float(high))],
                "inside": rounded(float(np.mean(inside))), "width": rounded(float(np.median(widths))),
            })  # fmt: skip
    return {"runs": len(curves), "moments": rows}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    report = measure(options.runs)
    table = Table(
        f"Forecasts of the final held-out loss, {report['runs']} runs",
        ["at", "runs", "forecast over truth", "eight of ten runs", "inside the range", "width of the range"],
    )
    for row in report["moments"]:
        low, high = row["error_range"]
        table.rows.append([
            f"{row['progress']:.0%}", str(row["runs"]), f"{row['error']:+.1%}", f"{low:+.1%} to {high:+.1%}",
            f"{row['inside']:.0%}", f"{row['width']:.0%}",
        ])  # fmt: skip
    table.show()
    if options.json:
        show_json(report, options.json)


if __name__ == "__main__":
    run_program(main)
