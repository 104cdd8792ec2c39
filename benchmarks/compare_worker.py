"""One side of `benchmarks.compare`: runs a workload with the glassbert that PYTHONPATH names, turn by turn.

The file imports nothing of `benchmarks`, so that the same workload runs with the package of any commit. It reads one
JSON request a line and answers with one: {"turn": true} with the seconds of a turn, {"facts": true} with what runs.

A planted slowdown is a busy loop in every step: `--slower 0.04` makes it 4 % of the step's median in the warm-up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

Step = Callable[[int], object]
LENGTHS = (6, 9, 12, 16, 21, 28, 38, 64)  # of sentences


def training_step(preset: str, batch: int, length: int) -> Step:
    from glassbert.checkpoints.family import PRESETS
    from glassbert.models.model import Model
    from glassbert.training.optimizers import AdamW
    from glassbert.training.step import TrainingStep

    model = Model(PRESETS[preset], "mlm", engine="numpy")
    model.set_training(True)
    train = TrainingStep(model, AdamW(model, 1e-4))
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(4):
        ids = rng.integers(5, model.config.vocab_size, (batch, length))
        labels = np.where(rng.random(ids.shape) < 0.15, ids, -100)
        batches.append((np.where(labels == -100, ids, 4), labels))
    return lambda i: float(train(*batches[i % len(batches)]).loss)


def sentence_embeddings() -> Step:
    import glassbert

    config = glassbert.BertConfig(
        vocab_size=30_522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1_536
    )
    model = glassbert.create_model("bert", config=config, engine="numpy")
    model.set_training(False)
    rng = np.random.default_rng(0)
    lengths = rng.choice(LENGTHS, 32)
    mask = (np.arange(max(LENGTHS)) < lengths[:, None]).astype(np.int64)  # [32, 64]
    ids = rng.integers(5, 30_000, mask.shape) * mask
    return lambda _: model.predict(ids, mask)


def tokens() -> Step:
    import glassbert

    tokenizer = glassbert.load_tokenizer("mini")
    rng = np.random.default_rng(0)
    words = sorted(word for word in tokenizer.vocabulary if word.isalpha())
    texts = [" ".join(rng.choice(words, 24)) for _ in range(2_000)]
    return lambda _: tokenizer.encode_ids(texts)


def program(*arguments: str) -> Step:
    def step(_: int) -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    return step


# name: (what makes the step, steps in a turn, what it is)
WORKLOADS: dict[str, tuple[Callable[[], Step], int, str]] = {
    "step": (lambda: training_step("mini", 32, 64), 2, "a training step of Mini-BERT, B 32, T 64"),
    "larger": (lambda: training_step("larger", 8, 128), 1, "a training step of Larger-BERT, B 8, T 128"),
    "inference": (sentence_embeddings, 3, "32 sentences through an encoder of MiniLM's size"),
    "tokens": (tokens, 1, "2,000 texts to tokens"),
    "import": (lambda: program("-c", "import glassbert"), 1, "a process that imports glassbert"),
    "help": (lambda: program("-m", "glassbert", "--help"), 1, "glassbert --help"),
}


def slowed(step: Step, seconds: float) -> Step:
    """The step, then a busy loop of so many seconds."""

    def slow(i: int) -> None:
        step(i)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    return slow


def cpu_seconds() -> float:
    """Of this process and of the programs that it has run."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": cpu_seconds}


def seconds_of(step: Step, steps: int) -> dict[str, float]:
    """Seconds a step by every clock."""
    start = {name: clock() for name, clock in CLOCKS.items()}
    for i in range(steps):
        step(i)
    return {name: (clock() - start[name]) / steps for name, clock in CLOCKS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=list(WORKLOADS), required=True)
    parser.add_argument("--slower", type=float, default=0.0)
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    import glassbert

    make, steps, _ = WORKLOADS[options.what]
    step = make()
    step(0)
    usual = statistics.median(seconds_of(step, 1)["wall"] for _ in range(5))
    if options.slower:
        step = slowed(step, options.slower * usual)
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, object] = {"file": glassbert.__file__} if "facts" in request else {**seconds_of(step, steps)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
