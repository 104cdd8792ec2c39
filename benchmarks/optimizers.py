"""All optimizers on the same text: a small Mini-BERT, the same batches, learning rates from a short sweep.

    python -m benchmarks.optimizers [--corpus FOLDER_OR_TEXT] [--steps N] [--picture FILE] [--json [FILE]]

Every optimizer first trains for half of the steps with each rate of its grid; the rate with the lowest held-out loss is
used for the full run. The schedule is a linear warm-up over the first tenth and a linear decay. All runs have the same
initial weights and the same batches in the same order. Without a corpus the built-in text is used.

The vocabulary is Mini-BERT's 8,192: most words are rare, so most gradients of the output layer are small, which favours
optimizers with a step size per parameter. With 2,048 words SGD was as good as AdamW for the first thousand steps.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import Table, add_json_option, count, describe_machine, progress, rounded, run_program, show_json
from glassbert.families.bert import MINI_BERT_CONFIG, MiniBERT
from glassbert.training.evaluate import evaluate
from glassbert.training.optimizers import OPTIMIZERS, make_optimizer
from glassbert.training.schedules import make_schedule
from glassbert.training.step import TrainingStep

VOCABULARY = 8_192
LENGTH, BATCH, HELD_OUT = 32, 32, 12
CONFIG = MINI_BERT_CONFIG.replace(
    hidden_size=64,
    intermediate_size=256,
    num_hidden_layers=2,
    max_position_embeddings=LENGTH,
    activation="gelu",
    tie_word_embeddings=True,
)
RATES = {
    "adamw": (1e-3, 2e-3, 4e-3),
    "lion": (1.5e-4, 3e-4, 6e-4),
    "sophia": (2.5e-4, 5e-4, 1e-3),
    "muon": (5e-3, 1e-2, 2e-2),
    "sgd": (0.1, 0.3, 0.6),
}
SWEEP = 0.5  # share of the steps
POINTS = 16  # evaluations of a run


@dataclass
class Run:
    optimizer: str
    rate: float
    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # held out
    accuracy: float = 0.0
    milliseconds: float = 0.0  # per step, without evaluation

    @property
    def loss(self) -> float:
        return self.losses[-1]


class Data:
    """Batches from a corpus folder, a text file, or the built-in text."""

    def __init__(self, corpus: str | None, folder: Path):
        from glassbert.text.corpus import Corpus, build_corpus
        from glassbert.text.generator import MLMDataGenerator

        if corpus and (Path(corpus) / "manifest.json").exists():
            self.corpus = Corpus.open(corpus)
        else:
            self.corpus = build_corpus([corpus] if corpus else [], folder / "corpus", vocab_size=VOCABULARY)
        tokenizer = self.corpus.tokenizer
        self.train = MLMDataGenerator(self.corpus, tokenizer, LENGTH, BATCH)
        held_out = MLMDataGenerator(self.corpus, tokenizer, LENGTH, BATCH, split="validation")
        self.held_out = [held_out.batch(0, i).as_inputs() for i in range(min(HELD_OUT, len(held_out)))]


def train(data: Data, name: str, rate: float, steps: int) -> Run:
    config = CONFIG.replace(vocab_size=data.corpus.tokenizer.vocab_size)
    model = MiniBERT(config, seed=1)
    model.set_training(True)
    step = TrainingStep(model, make_optimizer(name, model, learning_rate=rate))
    schedule = make_schedule("linear", warmup=0.1)
    run = Run(name, rate)
    seconds = 0.0
    for i in range(steps):
        progress(f"{name} at {rate:g}: step {i + 1} of {steps}")
        step.optimizer.learning_rate = rate * schedule((i + 1) / (steps + 1))
        began = time.perf_counter()
        result = step(**data.train.at(i).as_inputs())
        float(result.loss)
        seconds += time.perf_counter() - began
        if (i + 1) % max(1, steps // POINTS) == 0 or i + 1 == steps:
            found = evaluate(model, data.held_out)
            run.steps.append(i + 1)
            run.losses.append(found.loss)
            run.accuracy = found.accuracy
    run.milliseconds = 1e3 * seconds / steps
    return run


def compare(data: Data, names: list[str], steps: int) -> tuple[list[Run], dict[str, dict[float, float]]]:
    """The full run of every optimizer, and the losses of the sweep by rate."""
    swept: dict[str, dict[float, float]] = {}
    runs = []
    for name in names:
        swept[name] = {rate: train(data, name, rate, round(SWEEP * steps)).loss for rate in RATES[name]}
        best = min(swept[name], key=lambda rate: swept[name][rate])
        runs.append(train(data, name, best, steps))
    progress("")
    return sorted(runs, key=lambda run: run.loss), swept


def draw(runs: list[Run], path: Path) -> None:
    from glassbert.reports import figures

    figure = figures.lines(
        {run.optimizer: (run.steps, run.losses) for run in runs},
        xlabel="step",
        ylabel="held-out MLM loss",
        title="The same Mini-BERT, the same batches, five optimizers",
        height=3.8,
    )
    figures.to_png(figure, path)


def table_of(runs: list[Run], swept: dict[str, dict[float, float]], steps: int, machine: str) -> Table:
    table = Table(
        f"Optimizers: {steps} steps of a small Mini-BERT",
        ["optimizer", "learning rate", "held-out loss", "accuracy", "ms a step", "sweep (rate: loss)"],
    )
    for run in runs:
        sweep = ", ".join(f"{rate:g}: {loss:.2f}" for rate, loss in swept[run.optimizer].items())
        row = [
            run.optimizer,
            f"{run.rate:g}",
            f"{run.loss:.3f}",
            f"{run.accuracy:.1%}",
            f"{run.milliseconds:.0f}",
            sweep,
        ]
        table.rows.append(row)
    table.notes = [
        f"Batches of {BATCH} rows of {LENGTH} tokens; the sweep had {round(SWEEP * steps)} steps per rate.",
        machine,
    ]
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="a corpus folder or a text file (default: the built-in text)")
    parser.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS), default=list(OPTIMIZERS))
    parser.add_argument("--steps", type=count, default=2_000)
    parser.add_argument("--picture", type=Path, help="file for the plot of the curves (.png)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    machine, described = describe_machine()
    with tempfile.TemporaryDirectory() as folder:
        runs, swept = compare(Data(options.corpus, Path(folder)), options.optimizers, options.steps)
    table_of(runs, swept, options.steps, machine).show()
    if options.picture:
        draw(runs, options.picture)
    if options.json:
        found: dict[str, Any] = {
            run.optimizer: {
                "rate": run.rate, "loss": rounded(run.loss), "accuracy": rounded(run.accuracy),
                "milliseconds": rounded(run.milliseconds), "curve": [rounded(loss) for loss in run.losses],
            }
            for run in runs
        }  # fmt: skip
        show_json({"steps": options.steps, "runs": found, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
