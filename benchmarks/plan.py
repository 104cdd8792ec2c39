"""Predicted and real time and loss of runs of different sizes and budgets.

    python -m benchmarks.plan CORPUS [--runs N] [--table] [--threads N] [--json [FILE]]

Every run is planned (`glassbert plan`), then trained, and compared with its plan. The runs are short: the ten together
take about half an hour on two idle cores. `--runs 3` trains the three cheapest. `--table` trains nothing: it leaves
every reference run out in turn and predicts it from the others.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import Table, add_json_option, count, rounded, run_program, show_json
from glassbert.training.display import NoDisplay
from glassbert.training.planning.expectation import leave_one_out
from glassbert.training.planning.plan import plan
from glassbert.training.planning.table import read_table
from glassbert.training.settings import TrainingSettings
from glassbert.training.trainer import Trainer

ROTARY = {"positions": "rotary", "tie_word_embeddings": True, "batch": 32}
NAMED = ("preset", "size", "tokens", "minutes")
RUNS: list[dict[str, Any]] = [  # the cheapest first
    {"size": 1, "tokens": 400_000, **ROTARY},
    {"size": 1.5, "tokens": 500_000, **ROTARY},
    {"size": 2, "tokens": 600_000, **ROTARY},
    {"size": 1, "minutes": 1.5, **ROTARY},
    {"size": 2, "minutes": 2, **ROTARY},
    {"size": 3, "tokens": 800_000, **ROTARY},
    {"size": 2, "tokens": 2_000_000, **ROTARY},
    {"preset": "mini", "minutes": 4},
    {"size": 4, "tokens": 1_000_000, **ROTARY},
    {"size": 3, "minutes": 6, **ROTARY},
]


def measure(corpus: str, runs: list[dict[str, Any]], threads: int | None) -> list[dict[str, Any]]:
    found = []
    for changes in runs:
        settings = TrainingSettings.from_dict({"corpus": corpus, "threads": threads, "engine": "numpy", **changes})
        planned = plan(settings, sizes=False)
        with tempfile.TemporaryDirectory(prefix="glassbert-plan-") as folder:
            result = Trainer(settings, Path(folder) / "run", display=NoDisplay()).train()
        assert planned.expectation is not None and result.loss is not None
        loss = planned.expectation.loss
        receipt = result.plan or {}
        found.append({
            "run": ", ".join(f"{name} {changes[name]}" for name in NAMED if name in changes),
            "seconds": [rounded(planned.seconds), rounded(result.seconds)],
            "time_error": rounded(result.seconds / planned.seconds - 1),
            "tokens": [planned.tokens, result.tokens],
            "expected": [rounded(bound) for bound in loss], "loss": rounded(result.loss), "inside": result.loss in loss,
            "first_steps": rounded(receipt["seconds"]["predicted"]) if receipt else None,
        })  # fmt: skip
    return found


def left_out() -> list[dict[str, Any]]:
    return [
        {"run": row.source, "expected": [rounded(bound) for bound in expected.loss], "loss": row.loss,
         "inside": row.loss in expected.loss}
        for row, expected in leave_one_out(read_table())
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", help="a corpus folder")
    parser.add_argument("--runs", type=count, default=len(RUNS), help="train only the first so many")
    parser.add_argument("--table", action="store_true", help="leave every reference run out in turn")
    parser.add_argument("--threads", type=count, help="threads of the NumPy engine")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    if options.table:
        rows = left_out()
        table = Table("Reference runs, each predicted from the others", ["run", "expected loss", "loss", ""])
        for row in rows:
            where = "inside" if row["inside"] else "outside"
            table.rows.append([row["run"][:70], _interval(row["expected"]), f"{row['loss']:.3f}", where])
    else:
        if options.corpus is None:
            parser.error("name a corpus folder, or give --table")
        rows = measure(options.corpus, RUNS[: options.runs], options.threads)
        table = Table("Plans and what came", ["run", "planned s", "real s", "", "expected loss", "loss", ""])
        for row in rows:
            planned, real = row["seconds"]
            where = "inside" if row["inside"] else "outside"
            table.rows.append([
                row["run"], f"{planned:.0f}", f"{real:.0f}", f"{row['time_error']:+.0%}", _interval(row["expected"]),
                f"{row['loss']:.3f}", where,
            ])  # fmt: skip
    table.notes.append(f"{sum(row['inside'] for row in rows)} of {len(rows)} losses inside their interval")
    table.show()
    if options.json:
        show_json({"runs": rows}, options.json)


def _interval(expected: list[float]) -> str:
    return f"{expected[0]:.2f} ({expected[1]:.2f} to {expected[2]:.2f})"


if __name__ == "__main__":
    run_program(main)
