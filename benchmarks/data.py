"""Batches: fill of packed rows, masking statistics, and speed of batch creation.

    python -m benchmarks.data CORPUS [--texts FILE] [--tokens N] [--threads N] [--json [FILE]]

CORPUS is a folder made by `glassbert corpus build`. `--texts` is a file with one text a line, up to the first tab, to
measure the padding of batches by length. Batches are made by one thread unless stated otherwise; the training step of
Mini-BERT for comparison uses all cores. Times are medians over rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import train_step
from benchmarks.common import (
    Spread,
    Table,
    add_json_option,
    count,
    describe_machine,
    interleave,
    progress,
    rounded,
    run_program,
    show_json,
    timed,
)
from glassbert.engines.machine import usable_cores
from glassbert.text.buckets import batches_by_length, padding_share
from glassbert.text.corpus.reader import Corpus
from glassbert.text.generator import MLMDataGenerator, prefetch
from glassbert.text.masking import IGNORED, Masking
from glassbert.text.packing import PACKINGS, plan_rows
from glassbert.text.pairs import TASKS, PairDataGenerator

ROUNDS = 5
LENGTHS = (64, 128, 512)
MASKINGS = {
    "tokens": Masking(),
    "tokens, rate 0.3": Masking(rate=0.3),
    "whole words": Masking(whole_words=True),
    "spans of 3": Masking(spans=(3.0, 10)),
    "spans of 3 words": Masking(whole_words=True, spans=(3.0, 10)),
}
FILL, TIMES_FASTER, H200_TOKENS = 0.99, 20, 9.3e6


@dataclass(frozen=True)
class Measurement:
    """A measured number and its target value."""

    name: str
    value: float
    shown: str
    wanted: str = ""


# ---- packing --------------------------------------------------------------------------------------------------------


def packing(corpus: Corpus) -> list[Measurement]:
    lines = []
    for length in LENGTHS:
        for kind in PACKINGS:
            progress(f"packing {kind} at {length}")
            begin = time.perf_counter()
            plan = plan_rows(corpus.split("train"), length, kind, continues_word=corpus.tokenizer.continues_word)
            seconds = time.perf_counter() - begin
            name = f"packing by {kind}, T {length}"
            lines += [
                Measurement(f"{name}: fill", plan.fill, f"{plan.fill:.2%}", f">= {FILL:.0%}"),
                Measurement(f"{name}: mean context of a token", plan.mean_context, f"{plan.mean_context:.1f} tokens"),
                Measurement(f"{name}: planned in", seconds, f"{seconds:.2f} s"),
            ]
    return lines


# ---- masking --------------------------------------------------------------------------------------------------------


@dataclass
class Counts:
    """Statistics of masking, summed over batches."""

    maskable: int = 0
    masked: int = 0
    hidden: int = 0  # replaced by [MASK]
    changed: int = 0  # replaced by another token
    special: int = 0  # masked special tokens
    empty: int = 0  # rows without a masked token
    broken: int = 0  # words masked in part
    replacements: Any = 0

    def add(self, batch: Any, tokenizer: Any, special: np.ndarray) -> None:
        masked = batch.labels != IGNORED
        ids = np.where(masked, batch.labels, batch.input_ids)
        hidden = masked & (batch.input_ids == tokenizer.mask_id)
        changed = masked & ~hidden & (batch.input_ids != ids)
        self.maskable += int((~special[ids]).sum())
        self.masked += int(masked.sum())
        self.hidden += int(hidden.sum())
        self.changed += int(changed.sum())
        self.special += int((special[ids] & masked).sum())
        self.empty += int((~masked.any(1)).sum())
        inside = tokenizer.continues_word[ids]
        inside[:, 1:] &= ~special[ids[:, :-1]]
        self.broken += int((inside[:, 1:] & (masked[:, 1:] != masked[:, :-1])).sum())
        self.replacements = self.replacements + np.bincount(batch.input_ids[changed], minlength=len(special))


def masking(corpus: Corpus, tokens: int) -> list[Measurement]:
    tokenizer, lines = corpus.tokenizer, []
    special = np.zeros(tokenizer.vocab_size, bool)
    special[list(tokenizer.special_ids)] = True
    ordinary = int((~special).sum())
    for seed, (name, kind) in enumerate(MASKINGS.items()):  # different seeds, so that random numbers are independent
        stream = MLMDataGenerator(corpus, tokenizer, 128, 512, masking=kind, seed=seed)
        counts, step = Counts(), 0
        while counts.maskable < tokens:
            progress(f"masking {name}: {counts.maskable:,} of {tokens:,} tokens")
            counts.add(stream.at(step), tokenizer, special)
            step += 1
        rate, hidden, changed = (
            counts.masked / counts.maskable,
            counts.hidden / counts.masked,
            counts.changed / counts.masked,
        )
        expected = counts.changed / ordinary
        spread = float(((counts.replacements[~special] - expected) ** 2 / expected).sum() / (ordinary - 1))
        wanted = kind.random_share * (1 - 1 / ordinary)  # a random token may equal the original
        lines += [
            Measurement(f"masking {name}: rate", rate, f"{rate:.5f}", f"{kind.rate:.3f}"),
            Measurement(f"masking {name}: [MASK]", hidden, f"{hidden:.5f}", f"{kind.mask_share:.3f}"),
            Measurement(f"masking {name}: another token", changed, f"{changed:.5f}", f"{wanted:.5f}"),
            Measurement(f"masking {name}: replacements, chi² / dof", spread, f"{spread:.3f}", "about 1"),
            Measurement(f"masking {name}: special tokens", counts.special, f"{counts.special}", "0"),
            Measurement(f"masking {name}: rows without", counts.empty, f"{counts.empty}", "0"),
        ]
        if kind.whole_words:
            lines.append(Measurement(f"masking {name}: words broken", counts.broken, f"{counts.broken}", "0"))
    return lines


# ---- speed ----------------------------------------------------------------------------------------------------------


def speed(corpus: Corpus, threads: int) -> list[Measurement]:
    tokenizer = corpus.tokenizer
    mini = MLMDataGenerator(corpus, tokenizer, 64, 32)
    model = train_step.Ours("mini")
    turns = interleave({"batch": lambda: timed(mini.at, 100), "step": lambda: model.run(3)}, ROUNDS)
    seconds, step = (Spread.of(turns[name]).median for name in ("batch", "step"))
    faster = Spread.of_ratio(turns["step"], turns["batch"]).median
    lines = [
        Measurement("a batch of 32 x 64 on one core", seconds, f"{1e3 * seconds:.2f} ms"),
        Measurement("a training step of Mini-BERT on 32 x 64", step, f"{1e3 * step:.0f} ms"),
        Measurement("batches are made faster by", faster, f"{faster:,.0f} times", f">= {TIMES_FASTER} times"),
    ]
    makers: dict[str, Callable[[int], Any]] = {
        name: MLMDataGenerator(corpus, tokenizer, 128, 512, masking=kind).at for name, kind in MASKINGS.items()
    }
    makers |= {f"pairs, {task}": PairDataGenerator(corpus, tokenizer, 128, 512, task=task).at for task in TASKS}
    for name, make in makers.items():
        turns = interleave({name: lambda make=make: timed(make, 20)}, ROUNDS)  # type: ignore[misc]
        rate = 512 * 128 / Spread.of(turns[name]).median
        lines.append(Measurement(f"512 x 128, {name}, one thread", rate, f"{rate / 1e6:.1f} M tokens/s"))
    steps = 200
    begin = time.perf_counter()
    for _ in prefetch(makers["tokens"], range(steps), threads):
        pass
    rate = steps * 512 * 128 / (time.perf_counter() - begin)
    wanted = f">= {H200_TOKENS / 1e6:.1f} M tokens/s"
    lines.append(
        Measurement(f"512 x 128, prefetched by {threads} threads", rate, f"{rate / 1e6:.1f} M tokens/s", wanted)
    )
    return lines


def padding(corpus: Corpus, texts: Path) -> list[Measurement]:
    chosen = [line.split("\t")[0] for line in texts.read_text(encoding="utf-8").splitlines()]
    lengths = corpus.tokenizer.encode_ids(chosen)[1] + 2
    lines = []
    for max_rows in (None, 32):
        share = padding_share(lengths, batches_by_length(lengths, 2048, max_rows))
        name = f"{texts.name}, budget 2,048 tokens" + (f", at most {max_rows} rows" if max_rows else "")
        lines.append(Measurement(f"padding in {name}", share, f"{share:.1%}"))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--tokens", type=int, default=10_000_000, help="number of tokens for the masking statistics")
    parser.add_argument("--threads", type=count, default=usable_cores(), help="threads that prepare batches")
    add_json_option(parser)
    options = parser.parse_args()
    corpus = Corpus.open(options.corpus)
    sections = [packing(corpus), masking(corpus, options.tokens), speed(corpus, options.threads)]
    if options.texts:
        sections.append(padding(corpus, options.texts))
    progress("")
    machine, described = describe_machine()
    split = corpus.split("train")
    table = Table(
        f"Batches of {split.tokens:,} tokens in {split.documents:,} documents",
        ["", "measured", "wanted"],
        notes=[machine],
    )
    for section in sections:
        table.rows += [[line.name, line.shown, line.wanted] for line in section]
        table.rows.append(None)
    table.show()
    if options.json:
        measured = {line.name: rounded(line.value) for section in sections for line in section}
        show_json({"benchmark": "data", "machine": described, **measured}, options.json)


if __name__ == "__main__":
    run_program(main)
