"""`python -m tests.torture`: try to break the files and the processes of GlassBERT, and print a table of what happened.

python -m tests.torture                          about twenty minutes on two cores
python -m tests.torture --quick                  a tenth of everything
python -m tests.torture --only kills,soak        parts: flips, fuzz, strings, masks, kills, disk, processes, soak, costs
python -m tests.torture --kills 1000 --strings 1000000 --masks 50000 --workers 12 -o results
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from tests.torture.pool import ONE_THREAD, Task, run_tasks, shares
from tests.torture.table import as_markdown, examples_of

COUNTS = {
    "flips": (4_000, "flipped bits"),
    "fuzz": (30_000, "changed files"),
    "strings": (300_000, "strings"),
    "masks": (10_000, "masks of rows"),
    "kills": (200, "processes killed"),
    "disk": (45, "commands whose disk is full"),
    "processes": (30, "pairs of processes with one folder"),
    "predicts": (20_000, "predictions of the soak"),
    "steps": (2_000, "training steps of the soak"),
    "evaluations": (100, "evaluations of the soak"),
}
PARTS = ("soak", "kills", "disk", "processes", "flips", "fuzz", "strings", "masks", "costs")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of parts, separated by commas")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    parser.add_argument("-o", "--output", type=Path, help="a folder for table.md and table.json, written as it goes")
    for name, (count, what) in COUNTS.items():
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{what} (default: {count:,})")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else list(PARTS)
    if unknown := set(only) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; parts: {', '.join(PARTS)}")
    counts = {
        name: count if (count := getattr(options, name)) is not None else max(1, usual // (10 if options.quick else 1))
        for name, (usual, _) in COUNTS.items()
    }
    os.environ.update(ONE_THREAD)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    tasks = [task for part in PARTS if part in only for task in tasks_of(part, counts, options.seed, options.output)]
    print(f"{len(tasks)} tasks in {options.workers} processes: {', '.join(only)}", flush=True)
    alone = [task for task in tasks if task.part == "costs"]  # a time, which other processes would change
    lines = run_tasks(alone, 1, None) if alone else []
    lines = run_tasks([task for task in tasks if task not in alone], options.workers, options.output, lines)
    print(f"\n{time.monotonic() - begun:.0f} s, seed {options.seed}\n\n{as_markdown(lines)}\n{examples_of(lines)}")
    return 1 if any(line.failed for line in lines) else 0


def tasks_of(part: str, counts: dict[str, int], seed: int, output: Path | None) -> list[Task]:
    """The tasks of a part, small enough to keep all processes busy to the end."""
    from tests.torture import parts

    if part == "soak":
        return [Task(part, parts.soak, (counts["predicts"], counts["steps"], counts["evaluations"], output))]
    if part == "costs":
        return [Task(part, parts.verification_cost, ())]
    if part in ("kills", "disk", "processes"):
        return parts.tasks_for_jobs(part, counts[part], seed)
    function, size = parts.SHARED[part]
    return [Task(part, function, (share, seed, number)) for number, share in shares(counts[part], size)]


if __name__ == "__main__":
    raise SystemExit(main())
