"""Trains a small model under any launcher and writes the losses, which must not depend on the number of processes.

    mpirun -n 2 python tests/training/distributed_losses.py CORPUS OUTPUT --steps 200
    mlx.launch -n 2 --backend ring -- python tests/training/distributed_losses.py CORPUS OUTPUT --engine mlx

`--trouble` makes worker 1 misbehave at step 3: raise, die (kill -9), sleep, or change a weight.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from glassbert.errors import InputError
from glassbert.families.bert import MINI_BERT_CONFIG, BertWithHead
from glassbert.text.corpus.reader import Corpus
from glassbert.text.generator import MLMDataGenerator
from glassbert.training.distributed import find_workers
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from glassbert.training.workers import Workers

ROWS, LENGTH = 16, 32


def trouble(kind: str, model: Any) -> None:
    if kind == "raise":
        raise InputError("a batch that cannot be used")
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(1_000)
    if kind == "drift":
        model.parameters["final_norm.weight"] *= 1.0001


def train(arguments: argparse.Namespace, workers: Workers) -> dict[str, Any]:
    corpus = Corpus.open(arguments.corpus)
    data = MLMDataGenerator(corpus, corpus.tokenizer, LENGTH, ROWS, seed=3)
    config = MINI_BERT_CONFIG.replace(
        hidden_size=arguments.hidden, intermediate_size=4 * arguments.hidden, num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=LENGTH, vocab_size=corpus.tokenizer.vocab_size, **json.loads(arguments.config),
    )  # fmt: skip
    model = BertWithHead(config, "mlm", engine=arguments.engine, threads=arguments.threads, seed=5)
    model.set_training(True)
    step = TrainingStep(model, AdamW(model, 1e-3), workers=workers, physical_batch=arguments.physical_batch)
    workers.check_weights(model, "at the start")
    share = ROWS // workers.size
    rows = slice(workers.rank * share, (workers.rank + 1) * share)
    losses, norms = [], []
    began = time.perf_counter()
    for index in range(arguments.steps):
        if index == 3 and workers.rank == 1 and arguments.trouble:
            trouble(arguments.trouble, model)
        result = step(**data.at(index, rows=rows).as_inputs())
        losses.append(float(result.loss))
        norms.append(float(result.gradient_norm))
        if index % 50 == 4:
            workers.check_weights(model, f"at step {index + 1}")
    seconds = time.perf_counter() - began
    workers.check_weights(model, "at the end")
    shared = workers.broadcast(f"from {workers.rank}: é"), workers.decide([0.1 + workers.rank], [workers.rank == 1])
    return {
        "workers": workers.name, "size": workers.size, "threads": workers.threads, "losses": losses, "norms": norms,
        "milliseconds": 1000 * seconds / max(arguments.steps, 1), "shared": shared,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--engine", default="numpy")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--physical-batch", type=int)
    parser.add_argument("--config", default="{}", help="fields of the config that differ, as JSON")
    parser.add_argument("--bucket", type=int, help="bytes after which MPI begins a sum; small ones test the overlap")
    parser.add_argument("--trouble", choices=["raise", "die", "hang", "drift"])
    chosen = parser.parse_args()
    with find_workers(chosen.engine) as found:
        if chosen.bucket and found.size > 1:
            found.bucket = chosen.bucket  # type: ignore[attr-defined]
        result = train(chosen, found)
        if found.leads:
            chosen.output.write_text(json.dumps(result))
