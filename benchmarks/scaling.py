"""A training step with several threads and with several processes, on this machine.

    python -m benchmarks.scaling [--preset mini|larger] [--turns N] [--json [FILE]]

The logical batch is the same for all: one process distributes it over threads, or several processes with one thread
each share it over MPI. Contenders take turns; each turn is a separate job (`benchmarks.scaling_worker`). For several
machines, see the predictions of `benchmarks.scaling_model`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
from functools import partial
from typing import Any

from benchmarks.common import (
    Spread,
    Table,
    add_json_option,
    count,
    describe_machine,
    interleave,
    rounded,
    run_program,
    show_json,
)
from benchmarks.train_step import WORKLOADS, Workload
from glassbert.engines.machine import usable_cores

ROOT_ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # for containers


def contenders(cores: int, batch: int) -> tuple[dict[str, tuple[list[str], int]], list[str]]:
    """The launch command of each job with its threads per process, and notes on what is left out here.

    Processes share the batch evenly, so their number divides it.
    """
    found: dict[str, tuple[list[str], int]] = {"1 process x 1 thread": ([], 1)}
    if cores == 1:
        return found, ["This process can use one core only: several threads and processes are left out."]
    found[f"1 process x {cores} threads"] = ([], cores)
    scripts = sysconfig.get_path("scripts")
    mpirun = shutil.which("mpirun", path=os.pathsep.join([scripts, os.environ.get("PATH", "")]))
    if mpirun is None or importlib.util.find_spec("mpi4py") is None:
        return found, ["Several processes are left out: they need mpirun and mpi4py (pip install mpich mpi4py)."]
    processes = max(n for n in range(1, cores + 1) if batch % n == 0)
    if processes == 1:
        return found, [f"Several processes are left out: no number up to {cores} divides the batch of {batch}."]
    found[f"{processes} processes x 1 thread, MPI"] = ([mpirun, "-n", str(processes)], 1)
    uneven = f"{cores} processes would not share the batch of {batch} evenly, so {processes} do."
    return found, [] if processes == cores else [uneven]


def one_turn(launch: list[str], threads: int, preset: str, rounds: int) -> dict[str, float]:
    """Seconds per step of one job, by the way of summing gradients."""
    command = [*launch, sys.executable, "-m", "benchmarks.scaling_worker"]
    options = ["--preset", preset, "--threads", str(threads), "--rounds", str(rounds)]
    job = subprocess.run([*command, *options], env={**os.environ, **ROOT_ALLOWED}, capture_output=True, text=True)
    if job.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{job.stderr}")
    return json.loads(job.stdout.splitlines()[-1])["seconds"]


def measure(
    found: dict[str, tuple[list[str], int]], preset: str, turns: int, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds per step of every turn, by contender and way of summing."""
    jobs: dict[str, Any] = {
        name: partial(one_turn, launch, threads, preset, rounds) for name, (launch, threads) in found.items()
    }
    made: Any = interleave(jobs, turns)
    return {name: {way: [one[way] for one in found] for way in found[0]} for name, found in made.items()}


def table_of(workload: Workload, found: dict[str, dict[str, list[float]]], notes: list[str]) -> Table:
    title = f"One batch of {workload.batch} x {workload.length} tokens, {workload.preset}: ms a step"
    table = Table(title, ["workers", "ms a step", "tokens/s", "over one thread", "summed afterwards", "no sums"])
    first = next(iter(found.values()))["apart"]
    for name, ways in found.items():
        ours = ways.get("overlapped", ways["apart"])
        others = [f"{1e3 * statistics.median(ways[way]):.1f}" if way in ways else "" for way in ("afterwards", "apart")]
        others = others if "overlapped" in ways else ["", ""]
        speed = Spread.of_ratio(first, ours)
        tokens = workload.batch * workload.length / statistics.median(ours)
        table.rows.append([name, f"{1e3 * statistics.median(ours):.1f}", f"{tokens:,.0f}", speed.text(), *others])
    table.notes = ["Medians over the turns; 'no sums': the same computation without summing gradients.", *notes]
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=list(WORKLOADS), default="mini")
    parser.add_argument("--turns", type=count, default=3, help="number of turns (default 3)")
    parser.add_argument("--rounds", type=count, default=5, help="rounds per turn (default 5)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    machine, described = describe_machine("mpi4py", "mpich", "openmpi")
    workload = WORKLOADS[options.preset]
    jobs, left_out = contenders(usable_cores(), workload.batch)
    found = measure(jobs, options.preset, options.turns, options.rounds)
    table_of(workload, found, [*left_out, machine]).show()
    if options.json:
        seconds: dict[str, Any] = {
            name: {way: rounded(statistics.median(values)) for way, values in ways.items()}
            for name, ways in found.items()
        }
        show_json({"preset": options.preset, "seconds_per_step": seconds, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
