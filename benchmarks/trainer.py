"""Speed of the trainer with all its features, compared with the bare training step.

    python -m benchmarks.trainer [--corpus DIR] [--preset mini] [--engine auto] [--rounds N] [--json [FILE]]

Two contenders take turns on the same batches with the same optimizer. The bare one calls `TrainingStep` on prepared
batches; the trainer makes its batches in a thread, draws the live display, writes the log, fills the mask sentence and
records statistics of the model. Evaluations and checkpoints are timed separately, with their share of a run. Without a
corpus the built-in texts are used.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import (
    MIB,
    Contenders,
    Spread,
    Table,
    Worker,
    add_json_option,
    count,
    describe_machine,
    interleave,
    mib,
    rounded,
    run_program,
    seconds_of,
    show_json,
    timed,
)

STEPS = 20  # in a round
BATCHES = 16


class Contender:
    """A prepared trainer; the bare contender uses only its model, step and batches."""

    def __init__(self, folder: str, corpus: str, preset: str, engine: str):
        from rich.console import Console

        from glassbert.training.display import LiveDisplay
        from glassbert.training.trainer import Trainer

        shutil.rmtree(folder, ignore_errors=True)
        null_file = open(os.devnull, "w")  # noqa: SIM115 (stays open until the process ends)
        display = LiveDisplay(Console(file=null_file, force_terminal=True, width=100))
        settings = {"preset": preset, "engine": engine, "steps": 10**6, **({"corpus": corpus} if corpus else {})}
        self.trainer = Trainer(None, folder, display=display, **settings)
        self.engine = self.trainer.model.engine
        self.prepare()
        self.run(3)

    def finish(self) -> None:
        if self.engine.compiles:
            self.engine.xp.synchronize()

    def run(self, steps: int) -> float:
        """Seconds per step."""
        return timed(self.step, steps, self.finish, warmup=0)


class Bare(Contender):
    def prepare(self) -> None:
        trainer = self.trainer
        source = trainer.data.sources[trainer.settings.length]
        trainer.components.optimizer.learning_rate = 1e-5
        self.inputs = [trainer.components.inputs(source.batch(0, i)) for i in range(min(BATCHES, len(source)))]

    def step(self, i: int) -> None:
        result = self.trainer.components.step(**self.inputs[i % len(self.inputs)])
        if not self.engine.compiles:
            float(result.loss)


class FullTrainer(Contender):
    def prepare(self) -> None:
        self.context = self.trainer.prepared()
        self.context.__enter__()

    def step(self, i: int) -> None:
        self.trainer.one_step()

    def describe(self) -> dict[str, Any]:
        """Seconds of an evaluation and of a checkpoint, and the sizes of batch and checkpoint."""
        trainer = self.trainer
        times = {}
        for name, action in (("evaluation", trainer.evaluate), ("checkpoint", trainer.save)):
            trainer.one_step()
            times[name] = seconds_of(action)
        rows, length = trainer.settings.batch, trainer.settings.length
        size = trainer.components.checkpoint_bytes
        return {**times, "batch": rows, "length": length, "checkpoint_bytes": size, "engine": self.engine.name}


def measure(corpus: str, preset: str, engine: str, rounds: int) -> dict[str, Any]:
    from glassbert.training.trainer import CHECKPOINTS, EVALUATIONS

    base = Path(tempfile.mkdtemp(prefix="glassbert-trainer-"))
    try:
        with Contenders() as contenders:
            for name, kind in (("bare", "Bare"), ("trainer", "FullTrainer")):
                options = {"folder": str(base / name), "corpus": corpus, "preset": preset, "engine": engine}
                contenders.add(name, Worker(f"benchmarks.trainer:{kind}", **options))
                contenders[name].ready()
            turns = {name: lambda name=name: contenders[name].call("run", STEPS) for name in ("bare", "trainer")}
            times = interleave(turns, rounds)
            facts = contenders["trainer"].call("describe")
            memory = {name: contenders[name].call("memory") for name in ("bare", "trainer")}
    finally:
        shutil.rmtree(base, ignore_errors=True)
    share = Spread.of_ratio(times["bare"], times["trainer"])
    pauses = EVALUATIONS * facts["evaluation"] + CHECKPOINTS * facts["checkpoint"]
    return {
        "preset": preset,
        "share_of_bare": rounded(share.median),
        "share_range": share.range,
        "seconds_per_step": {name: rounded(Spread.of(values).median) for name, values in times.items()},
        "peak_memory_mib": {name: rounded(value / MIB) for name, value in memory.items()},
        "pauses_of_30_minutes": rounded(pauses / 1800),
        "rounds": rounds,
        **{name: rounded(v) if isinstance(v, float) else v for name, v in facts.items()},
    }


def table_of(report: dict[str, Any], machine: str) -> Table:
    tokens = report["batch"] * report["length"]
    table = Table(
        f"Trainer and bare step: {report['preset']}, batch {report['batch']}, length {report['length']}, "
        f"{report['engine']}",
        ["contender", "ms a step", "tokens/s", "of the bare step", "peak memory"],
    )
    low, high = report["share_range"]
    for name, share in (("bare", ""), ("trainer", f"{report['share_of_bare']:.1%} ({low:.1%} – {high:.1%})")):
        seconds = report["seconds_per_step"][name]
        memory = mib(report["peak_memory_mib"][name] * MIB)
        table.rows.append([name, f"{seconds * 1e3:,.1f}", f"{tokens / seconds:,.0f}", share, memory])
    table.notes = [
        f"Medians of {report['rounds']} rounds of {STEPS} steps; the share is the median of the ratio within a round.",
        f"An evaluation takes {report['evaluation']:.2f} s, a checkpoint of {mib(report['checkpoint_bytes'])} "
        f"{report['checkpoint']:.2f} s: together {report['pauses_of_30_minutes']:.1%} of a run of 30 minutes.",
        machine,
    ]
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="", help="a corpus folder (default: the built-in texts)")
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--rounds", type=count, default=9, help="number of rounds (default 9)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    machine, described = describe_machine()
    report = measure(options.corpus, options.preset, options.engine, options.rounds)
    table_of(report, machine).show()
    if options.json:
        show_json({**report, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
