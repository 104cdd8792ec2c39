"""Held-out loss of a Mini-BERT after the same minutes of training, with GlassBERT and with `transformers` on PyTorch.

    python -m benchmarks.learning CORPUS [--minutes 30] [--contenders ours,torch] [--rate 1e-3] [--json [FILE]]

CORPUS is a folder made by `glassbert corpus build`. Ours is `glassbert pretrain --preset mini` with its defaults. The
peer is stock `BertForMaskedLM` of the same size with PyTorch's fused AdamW, a linear warm-up and decay over the same
minutes, on batches of the same corpus with 15 % of the tokens masked; packed pieces are separated by its attention
mask, as ours are. Both are evaluated on the same held-out rows with the same masks, about every tenth of the time;
evaluation counts as time. They run one after the other, each with all cores.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import time
from typing import Any

from benchmarks.common import (
    Table,
    add_json_option,
    describe_machine,
    progress,
    require,
    rounded,
    run_program,
    show_json,
)

ROWS, LAST_ROWS = 512, 4_096  # held-out rows of an intermediate evaluation, and of the last
BATCH = 32  # of the peer, as in `benchmarks.train_step`
WARMUP = 0.05
POINTS = 10

Curve = list[dict[str, float]]  # seconds, tokens, loss, accuracy


def ours(corpus: str, minutes: float, rate: float) -> Curve:
    """Train with GlassBERT. `rate` is ignored: the trainer uses its default learning rate."""
    from glassbert.training.display import NoDisplay
    from glassbert.training.log import read_log
    from glassbert.training.trainer import Trainer

    folder = tempfile.mkdtemp(prefix="glassbert-learning-")
    try:
        trainer = Trainer(
            None, f"{folder}/run", display=NoDisplay(), preset="mini", corpus=corpus, minutes=minutes,
            evaluation_rows=ROWS, final_evaluation_rows=LAST_ROWS,
        )  # fmt: skip
        result = trainer.train()
        curve = [
            {name: line[name] for name in ("seconds", "tokens", "loss", "accuracy")}
            for line in read_log(trainer.run.log_file)
            if line["kind"] == "evaluation"
        ]
    finally:
        shutil.rmtree(folder)
    last = {"seconds": result.seconds, "tokens": result.tokens, "loss": result.loss, "accuracy": result.accuracy}
    return [*curve[:-1], last]


class Peer:
    """Stock `BertForMaskedLM` on the packed batches of a corpus."""

    def __init__(self, corpus: str, rate: float):
        import torch

        from benchmarks.peers import masked_language_model
        from glassbert.checkpoints.family import PRESETS
        from glassbert.text import Corpus, MLMDataGenerator

        opened = Corpus.open(corpus)
        tokenizer = opened.tokenizer
        config = PRESETS["mini"].replace(vocab_size=tokenizer.vocab_size)
        length = config.max_position_embeddings
        self.torch, self.rate = torch, rate
        self.train_rows = MLMDataGenerator(opened, tokenizer, length, BATCH)
        self.held_out = MLMDataGenerator(opened, tokenizer, length, 64, split="validation")
        self.model = masked_language_model(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.01, fused=True)

    def inputs(self, batch: Any) -> dict[str, Any]:
        tensor = self.torch.from_numpy
        segments = tensor(batch.segment_ids)
        together = (segments[:, None, :, None] == segments[:, None, None, :]) & (segments != 0)[:, None, None, :]
        ids, positions = tensor(batch.input_ids), tensor(batch.position_ids)
        return {"input_ids": ids, "position_ids": positions, "attention_mask": together}

    def step(self, index: int, factor: float) -> int:
        batch = self.train_rows.at(index)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * factor
        self.optimizer.zero_grad(set_to_none=True)
        self.model(**self.inputs(batch), labels=self.torch.from_numpy(batch.labels).long()).loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return int(batch.input_ids.size)

    def evaluate(self, rows: int) -> tuple[float, float]:
        """Loss and accuracy over the masked tokens of the first held-out rows."""
        torch, loss, right, count = self.torch, 0.0, 0, 0
        self.model.eval()
        with torch.no_grad():
            for index in range(min(-(-rows // self.held_out.batch_size), len(self.held_out))):
                batch = self.held_out.batch(0, index)
                labels = torch.from_numpy(batch.labels).long()
                hidden = self.model.bert(**self.inputs(batch))[0]
                logits, labels = self.model.cls(hidden[labels != -100]), labels[labels != -100]
                loss += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
                right += int((logits.argmax(-1) == labels).sum())
                count += len(labels)
        self.model.train()
        return loss / count, right / count


def torch(corpus: str, minutes: float, rate: float) -> Curve:
    peer = Peer(corpus, rate)
    peer.model.train()
    began, budget = time.monotonic(), 60 * minutes
    curve: Curve = []
    tokens = index = 0
    last_cost = 0.0  # the last evaluation is part of the time budget

    def evaluate(rows: int) -> float:
        start = time.monotonic()
        loss, accuracy = peer.evaluate(rows)
        now = time.monotonic()
        curve.append({"seconds": now - began, "tokens": tokens, "loss": loss, "accuracy": accuracy})
        progress(f"PyTorch, {now - began:.0f} s: held-out loss {loss:.3f}")
        return (now - start) / rows

    while (done := (time.monotonic() - began) / (budget - last_cost)) < 1:
        if done >= (len(curve) + 1) / POINTS:
            last_cost = LAST_ROWS * evaluate(ROWS)
            continue
        tokens += peer.step(index, min(done / WARMUP, 1.0) * (1 - max(done - WARMUP, 0.0) / (1 - WARMUP)))
        index += 1
    evaluate(LAST_ROWS)
    return curve


CONTENDERS = {"ours": ours, "torch": torch}
NAMES = {"ours": "GlassBERT, `pretrain --preset mini`", "torch": "BertForMaskedLM, PyTorch"}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a folder made by `glassbert corpus build`")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--contenders", default="ours,torch", help=f"some of {', '.join(CONTENDERS)}")
    parser.add_argument("--rate", type=float, default=1e-3, help="PyTorch's peak learning rate (default 1e-3)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    chosen = options.contenders.split(",")
    if unknown := [name for name in chosen if name not in CONTENDERS]:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(CONTENDERS)}")
    if "torch" in chosen:
        require("torch", "transformers")
    machine, described = describe_machine("torch", "transformers")
    curves = {name: CONTENDERS[name](options.corpus, options.minutes, options.rate) for name in chosen}
    table = Table(
        f"Held-out loss of a Mini-BERT in {options.minutes:g} minutes", ["contender", "minutes", "M tokens", "loss",
        "perplexity", "accuracy"], left=1,
    )  # fmt: skip
    for name, curve in curves.items():
        for point in curve:
            table.rows.append(
                [NAMES[name] if point is curve[0] else "", f"{point['seconds'] / 60:.1f}",
                 f"{point['tokens'] / 1e6:.1f}", f"{point['loss']:.3f}", f"{math.exp(point['loss']):,.1f}",
                 f"{point['accuracy']:.3f}"]
            )  # fmt: skip
        table.rows.append(None)
    table.notes = [
        "The same held-out documents and masks for both; the last row of each is over more of them.",
        machine,
    ]
    table.show()
    if options.json:
        plain = {name: [{k: rounded(v) for k, v in point.items()} for point in curve] for name, curve in curves.items()}
        show_json({"minutes": options.minutes, "curves": plain, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
