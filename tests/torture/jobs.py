"""Every long command as a small job: how it is begun, how it is continued, and what must be the same afterwards."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from glassbert.cli import load_command
from glassbert.errors import GlassBertError
from glassbert.reports.drawing import plot_style
from glassbert.training import building, finishing
from glassbert.training.planning import timing
from tests.finetuning.toy import make_model, tune, write_reviews
from tests.text.corpus.sample_corpora import stories, tokenizer, write
from tests.training.toy import SETTINGS, WORDS, make_corpus, make_trainer

WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}  # matrices large enough to be quantised
CLOCKS = (  # names of facts that differ between two runs
    "second",
    "time",
    "speed",
    "date",
    "made",
    "version",
    "milli",
    "checksum",
    "per_s",
    "memory",
    "path",
    "machine",
)
DOMAIN = ["kernel", "socket", "thread", "buffer", "the", "of", "runs", "a", *WORDS[:6]]
SMALL = {"batch": 4, "length": 16, "threads": 1, "engine": "numpy", "evaluation_rows": 16, "final_evaluation_rows": 16}


@dataclass(frozen=True)
class Job:
    """`begin` gives the command from (what all jobs read, folder). `again`: the run that `glassbert resume` continues,
    else the same command is given again. `same`: patterns of the files that must be equal."""

    begin: Callable[[Path, Path], list[Any]]
    same: tuple[str, ...]
    again: str = ""
    done: str = ""  # the file that a finished job has
    needs: str = ""  # a package beyond the usual ones

    def command(self, base: Path, folder: Path) -> list[str] | None:
        """The next command that a user would give; None if the job is done."""
        if self.done and (folder / self.done).exists():
            return None
        if self.again and (folder / self.again / "settings.json").exists():
            return ["resume", str(folder / self.again)]
        return [str(word) for word in self.begin(base, folder)]


def flags(**options: Any) -> list[str]:
    return [str(word) for name, value in options.items() for word in ("--" + name.replace("_", "-"), value)]


TINY = {**SETTINGS, "threads": 1, "steps": 60, "checkpoint_every": 5, "evaluate_every": 20}
TUNING = {"text": "review", "target": "verdict", "learning_rate": 3e-3, "batch": 8, "engine": "numpy", "threads": 1,
          "resamples": 50}  # fmt: skip
QUIET = ["--no-report", "--no-baseline"]
TENSORS = "run/model/*.safetensors"

JOBS = {
    "pretrain": Job(
        lambda base, f: ["pretrain", *flags(corpus=base / "corpus", run=f / "run", **TINY)],
        (TENSORS,), again="run", done="run/result.json",
    ),
    "pretrain with Muon, moving average and snapshots": Job(
        lambda base, f: ["pretrain", *flags(corpus=base / "corpus", run=f / "run", **{**TINY, "optimizer": "muon",
                         "ema": 0.9, "snapshots": 4, "physical_batch": 4, "steps": 40})],
        (TENSORS, "run/snapshots/*/*.safetensors"), again="run", done="run/result.json",
    ),
    "pretrain from text files": Job(
        lambda base, f: ["pretrain", *flags(corpus=base / "domain.txt", run=f / "run", vocab_size=120,
                                            **{**TINY, "steps": 20})],
        (TENSORS,), again="run", done="run/result.json",
    ),
    "adapt": Job(
        lambda base, f: ["adapt", base / "trained", *flags(corpus=base / "domain.txt", general=base / "corpus",
                         run=f / "run", new_pieces=10, steps=30, checkpoint_every=5, sentence="", **SMALL)],
        (TENSORS,), again="run", done="run/result.json",
    ),
    "finetune": Job(
        lambda base, f: ["finetune", *flags(model=base / "encoder", train=base / "train.csv", dev=base / "dev.csv",
                         run=f / "run", epochs=4, **TUNING), *QUIET],
        (TENSORS, "run/model/task.json"), again="run", done="run/result.json",
    ),
    "finetune with LoRA and two seeds": Job(
        lambda base, f: ["finetune", *flags(model=base / "encoder", train=base / "train.csv", dev=base / "dev.csv",
                         run=f / "run", epochs=2, seeds=2, low_rank=2, **TUNING), *QUIET],
        (TENSORS, "run/model/task.json"), again="run", done="run/result.json",
    ),
    "forecast": Job(
        lambda base, f: ["forecast", *flags(series=base / "waves.csv", run=f / "run", horizon=4, window=12, patch=4,
                         period=6, hidden_size=8, num_hidden_layers=1, steps=24, evaluate_every=4, seeds=2,
                         engine="numpy", frame="standard", shortcut="learned")],
        ("run/model/*.safetensors", "run/*.csv"), again="run", done="run/result.json",
    ),
    "scale": Job(
        lambda base, f: ["scale", *flags(sizes="1,1.5,2", tokens="0.64k", repeats=0, corpus=base / "corpus",
                         output=f / "study", optimizer="adamw", checkpoint_every=5, **{**SMALL, "batch": 2})],
        ("study/runs/*/model/*.safetensors",),
    ),
    "evaluate": Job(
        lambda base, f: ["evaluate", base / "trained", "--quick", "--only", "language", "--dev", base / "corpus",
                         "--engine", "numpy", "--threads", "1", "--resamples", "100", "-o", f / "report"],
        ("report/evaluation.json",),
    ),
    "corpus build": Job(
        lambda base, f: ["corpus", "build", base / "stories", "-o", f / "out", *flags(tokenizer=base / "tokenizer",
                         shard_tokens=2_000, workers=1)],
        ("out/*.npy",),
    ),
    "tokenizer train": Job(
        lambda base, f: ["tokenizer", "train", base / "stories", "-o", f / "tokenizer", *flags(vocab_size=300),
                         "--overwrite"],
        ("tokenizer/*.json", "tokenizer/vocab.txt"),
    ),
    "predict": Job(
        lambda base, f: ["predict", base / "tuned", "--file", base / "train.csv", "-o", f / "answers.csv",
                         *flags(engine="numpy", threads=1)],
        ("answers.csv",),
    ),
    "embed": Job(
        lambda base, f: ["embed", base / "train.csv", "-o", f / "vectors.npy", *flags(text="review", threads=1,
                         model=base / "encoder", engine="numpy")],
        ("vectors.npy",),
    ),
    "predict a folder": Job(
        lambda base, f: ["predict", base / "tuned", "--file", base / "tables", "-o", f / "answers",
                         *flags(engine="numpy", threads=1, rows_per_part=4)],
        ("answers/part-*.parquet",), done="answers/_done.json", needs="pyarrow",
    ),
    "index": Job(
        lambda base, f: ["index", base / "train.csv", "-o", f / "index", *flags(text="review", threads=1,
                         model=base / "encoder", engine="numpy")],
        ("index/*.usearch", "index/*.jsonl", "index/*.npy"), done="index/index.json", needs="usearch",
    ),
    "cluster": Job(
        lambda base, f: ["cluster", base / "train.csv", "-o", f / "groups", *flags(text="review", threads=1,
                         model=base / "encoder", engine="numpy", clusters=3, picture="pca")],
        ("groups/clusters.csv",),
    ),
    "distill": Job(
        lambda base, f: ["distill", *flags(teacher=base / "tuned", student=base / "encoder", train=base / "train.csv",
                         dev=base / "dev.csv", texts=base / "more.txt", run=f / "run", epochs=3, **TUNING), *QUIET],
        (TENSORS, "run/model/task.json"), again="run", done="run/result.json",
    ),
    "quantize": Job(
        lambda base, f: ["quantize", base / "wide tuned", "-o", f / "small", *flags(data=base / "dev.csv", bits=4,
                         threads=1)],
        ("small/*.safetensors", "small/config.json"), done="small",
    ),
    "export": Job(
        lambda base, f: ["export", base / "trained", "-o", f / "published"],
        ("published/*.safetensors", "published/tokenizer.json"), done="published",
    ),
    "export as ONNX": Job(
        lambda base, f: ["export", base / "tuned", "--format", "onnx", "-o", f / "graph"],
        ("graph/onnx/*.onnx",), done="graph", needs="onnx",
    ),
}  # fmt: skip

UNLOCKED: tuple[str, ...] = ()  # commands for which two processes with one folder mean nothing


def missing(job: str) -> str:
    """The package that the job needs and that is not installed; empty if there is none."""
    needed = JOBS[job].needs
    return needed if needed and importlib.util.find_spec(needed) is None else ""


@contextmanager
def shortened() -> Iterator[None]:
    """Context manager: leave out of all runs what takes longer than they do, drawing and measuring."""
    with (
        patch.object(finishing, "write_report", lambda run, result=None: None),
        patch.object(building, "measure_matmul_rate", lambda *rest, **options: 100.0),
        patch.object(timing, "SECONDS", 0.0),
    ):
        yield


@shortened()
def prepare(base: Path) -> Path:
    """Write what the jobs read, and import what they need."""
    corpus = make_corpus(base / "corpus")
    make_trainer(corpus, base / "trained", steps=4, threads=1).train()
    make_model(base / "encoder")
    train, dev = write_reviews(base, 64, 24)
    tune(base / "tuned", base / "encoder", train, dev, epochs=1)
    tune(base / "wide tuned", make_model(base / "wide", **WIDE), train, dev, epochs=1)
    (base / "tables").mkdir()
    for number in range(3):
        shutil.copyfile(dev, base / "tables" / f"{number}.csv")
    (base / "more.txt").write_text("".join(f"the {word} house sings\n" for word in WORDS[:12]))
    rng = random.Random(2)
    documents = ["\n".join(" ".join(rng.choices(DOMAIN, k=12)) + "." for _ in range(8)) for _ in range(60)]
    (base / "domain.txt").write_text("\n\n".join(documents))
    for number in range(8):
        write(base / "stories" / f"{number}.txt", stories(50, 50 * number))
    tokenizer().save(base / "tokenizer")
    waves = (20 + 4 * [0, 1, 1, 0, -1, -1][i % 6] + rng.random() for i in range(120))
    (base / "waves.csv").write_text("step,wave\n" + "".join(f"{i},{v:.4f}\n" for i, v in enumerate(waves)))
    with suppress(GlassBertError), plot_style():  # imports the plotting library, where there is one
        pass
    for name in ("pretrain", "resume", "adapt", "finetune", "forecast", "scale", "evaluate", "corpus", "tokenizer",
                 "predict", "embed", "index", "cluster", "distill", "quantize", "export"):  # fmt: skip
        load_command(name)
    return base


def content_of(job: str, folder: Path) -> dict[str, str]:
    """Digests of the files that must be the same, by name. Of JSON everything but clocks, sizes of memory and paths."""
    found = {}
    for path in sorted(path for pattern in JOBS[job].same for path in folder.glob(pattern)):
        content = path.read_bytes()
        if path.suffix == ".json" and path.name != "tokenizer.json":
            content = json.dumps(list(_facts(json.loads(content), folder))).encode()
        found[str(path.relative_to(folder))] = hashlib.blake2b(content).hexdigest()
    return found


def _facts(tree: Any, folder: Path, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of all leaves that do not hang on the clock, the machine or the folder."""
    if any(clock in name.rpartition(".")[2] for clock in CLOCKS) or (isinstance(tree, str) and str(folder) in tree):
        return
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _facts(value, folder, f"{name}.{key}")
    else:
        yield name, tree
