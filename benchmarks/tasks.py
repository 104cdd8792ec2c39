"""Fine-tuned scores for every kind of task, compared with a simple model fitted on the same examples.

    python -m benchmarks.tasks --model RUN --data DIR [--only sst2,stsb] [--seeds 3] [--runs FOLDER] [--json [FILE]]

Every task is fine-tuned with the default settings of `glassbert finetune`, once for every seed; small tables with
cross-validation. Means and standard deviations are over seeds. The epoch is chosen on examples that are split off from
the training examples, or not at all where these are few; so is the regularisation of the simple model, by
cross-validation. Which of two simple models is shown is chosen by its score. Finished runs in FOLDER are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import Table, add_json_option, count, describe_machine, progress, rounded, run_program, show_json
from glassbert.metrics import METRICS


@dataclass(frozen=True)
class Entry:
    """A row of the table: a ready task, the metrics to show, and changes of its default settings."""

    task: str
    metrics: tuple[str, ...]
    changes: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def key(self) -> str:
        return self.name or self.task


ENTRIES = [
    Entry("sst2", ("accuracy", "auc")),
    Entry("sst5", ("quadratic_kappa", "mae", "accuracy")),
    Entry(
        "sst5",
        ("quadratic_kappa", "mae", "accuracy"),
        {"head": "multiclass", "metric": "quadratic_kappa"},
        "sst5-multiclass",
    ),
    Entry("stsb", ("spearman", "pearson", "rmse")),
    Entry("stsb", ("spearman", "pearson"), {"head": "embedding"}, "stsb-embedding"),
    Entry("goemotions", ("micro_f1", "macro_f1")),
    Entry("titanic", ("auc", "accuracy"), {"folds": 5}),
    Entry("wine-red", ("quadratic_kappa", "mae"), {"folds": 5}),
    Entry("wine-white", ("quadratic_kappa", "mae")),
    Entry("wnut17", ("span_f1",)),
    Entry("ud-pos", ("accuracy",)),
]


def run_once(entry: Entry, model: str, data: str, seed: int, folder: Path, baseline: bool) -> dict[str, Any]:
    """The scores of one seed, and of the simple model if `baseline`; read from the folder if they exist."""
    stored = folder / "table.json"
    if stored.exists():
        found: dict[str, Any] = json.loads(stored.read_text())
        return found
    from glassbert.files import write_json
    from glassbert.finetuning import FineTuningSettings, cross_validate, finetune_or_go_on
    from glassbert.training.display import NoDisplay

    settings = FineTuningSettings(
        model=model, task=entry.task, data=data, seed=seed, seeds=1, baseline=baseline, report=baseline, **entry.changes
    )
    began = time.monotonic()
    if settings.folds is None:
        folds = [finetune_or_go_on(settings, folder, display=NoDisplay())]
    else:
        folds = cross_validate(settings, folder, display=NoDisplay()).folds
    if any(one.outcome is None for one in folds):
        raise SystemExit(f"{entry.key}, seed {seed}, was interrupted; run the same command again to continue")
    found = {
        "scores": {name: _mean(name, [one.outcome for one in folds]) for name in entry.metrics},
        "baseline": {name: _mean(name, [one.baseline for one in folds]) for name in entry.metrics},
        "seconds": time.monotonic() - began,
    }
    write_json(stored, found)
    return found


def _mean(name: str, outcomes: list[Any]) -> float | None:
    """The mean of a metric over folds. It is computed here if the head does not report it, such as MAE of ranks."""
    values = []
    for outcome in outcomes:
        if outcome is None:
            continue
        known = outcome.scores.get(name)
        found = METRICS[name].function(outcome.truth, outcome.choices()) if known is None else known.value
        values += [] if found is None else [float(found)]
    return statistics.mean(values) if values else None


def _spread(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a pretraining run or a saved model")
    parser.add_argument("--data", required=True, help="the folder with the files of the ready tasks")
    parser.add_argument("--only", default="", help=f"some of {', '.join(entry.key for entry in ENTRIES)}")
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/tasks"), help="folder for the runs (default runs/tasks)"
    )
    parser.add_argument("--no-baseline", action="store_true", help="leave out the simple models")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    chosen = [entry for entry in ENTRIES if not options.only or entry.key in options.only.split(",")]
    if unknown := set(options.only.split(",")) - {""} - {entry.key for entry in ENTRIES}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    machine, described = describe_machine("scikit-learn")
    columns = ["task", "metric", f"ours, {options.seeds} seeds", "simple model", "minutes"]
    table = Table("Fine-tuned, compared with a simple model", columns, left=2)
    found: dict[str, Any] = {}
    for entry in chosen:
        runs = []
        for seed in range(options.seeds):
            progress(f"{entry.key}, seed {seed}")
            with_baseline = seed == 0 and not options.no_baseline
            folder = options.runs / entry.key / f"seed-{seed}"
            runs.append(run_once(entry, options.model, options.data, seed, folder, with_baseline))
        found[entry.key] = {"seeds": [run["scores"] for run in runs], "baseline": runs[0]["baseline"]}
        for metric in entry.metrics:
            values = [run["scores"][metric] for run in runs if run["scores"].get(metric) is not None]
            simple = runs[0]["baseline"].get(metric)
            first = metric == entry.metrics[0]
            table.rows.append(
                [
                    entry.key if first else "",
                    metric,
                    _spread(values) if values else "–",
                    "–" if simple is None else f"{simple:.4f}",
                    f"{sum(run['seconds'] for run in runs) / 60:.1f}" if first else "",
                ]
            )
        table.rows.append(None)
    table.notes = ["Small tables (titanic, wine-red) by 5-fold cross-validation; the rest on the dev set.", machine]
    table.show()
    if options.json:
        plain = {
            key: {
                "seeds": [{k: rounded(v) for k, v in one.items() if v is not None} for one in entry["seeds"]],
                "baseline": {k: rounded(v) for k, v in entry["baseline"].items() if v is not None},
            }
            for key, entry in found.items()
        }
        show_json({"tasks": plain, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
