"""Vocabularies trained by GlassBERT and by `tokenizers`: time, memory, and statistics on held-out text.

    python -m benchmarks.vocabulary --corpus ../shared/data/corpus --sizes 8192 50000

Every hundredth document is held out. The trainers run one after the other, each in its own process on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    Table,
    Worker,
    add_json_option,
    count,
    describe_machine,
    mib,
    progress,
    rounded,
    run_program,
    show_json,
)
from glassbert.text import FastTokenizer, Tokenizer, WordPieceTokenizer
from glassbert.text.corpus.documents import read_documents
from glassbert.text.normalise import Normaliser
from glassbert.text.wordpiece import WORD
from glassbert.text.wordpiece_files import Description

HELD_OUT = 100
TRAINERS: dict[str, type[Tokenizer]] = {"ours": WordPieceTokenizer, "tokenizers": FastTokenizer}
ONE_CORE = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def training_paragraphs(corpus: Path) -> Iterator[str]:
    """The paragraphs of all documents except the held-out ones."""
    for i, document in enumerate(read_documents([corpus])):
        if i % HELD_OUT:
            yield from document.split("\n")


class Trainer:
    def __init__(self, corpus: Path, trainer: str, size: int):
        self.corpus, self.trainer, self.size = corpus, TRAINERS[trainer], size

    def train(self) -> dict[str, Any]:
        begin, busy = time.perf_counter(), time.process_time()
        tokenizer = self.trainer.train(training_paragraphs(self.corpus), self.size)
        times = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - busy}
        return {**times, "vocabulary": tokenizer.vocabulary}


def held_out_statistics(corpus: Path, tokens: dict[str, int]) -> dict[str, float]:
    """Tokens per word and the share of unknown tokens in the held-out documents."""
    tokenizer = WordPieceTokenizer(Description(tuple(sorted(tokens, key=tokens.__getitem__))))
    normaliser = Normaliser()
    texts = list(islice(read_documents([corpus]), 0, None, HELD_OUT))
    ids, _ = tokenizer.encode_ids(texts)
    words = sum(len(WORD.findall(normaliser.text(text))) for text in texts)
    return {
        "words": words,
        "tokens_per_word": len(ids) / words,
        "unknown": float(np.mean(ids == tokenizer.unknown_id)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="a file or folder of text")
    parser.add_argument("--sizes", type=count, nargs="+", default=[8192, 50000])
    add_json_option(parser)
    options = parser.parse_args()
    columns = ["entries", "trainer", "seconds", "of the CPU", "memory", "tokens a word", "to tokenizers", "unknown"]
    table = Table("Vocabularies", columns, left=2)
    report: list[dict[str, Any]] = []
    for size in options.sizes:
        found: dict[str, dict[str, Any]] = {}
        for name in reversed(TRAINERS):
            progress(f"{size:,} entries: {name}")
            worker = Worker("benchmarks.vocabulary:Trainer", ONE_CORE, corpus=options.corpus, trainer=name, size=size)
            found[name] = worker.call("train")
            found[name]["memory"] = worker.call("memory")
            worker.close()
            found[name] |= held_out_statistics(options.corpus, found[name].pop("vocabulary"))
        reference = found["tokenizers"]["tokens_per_word"]
        for name in TRAINERS:
            row = found[name]
            table.rows.append(
                [
                    f"{size:,}",
                    name,
                    f"{row['seconds']:.0f}",
                    f"{row['cpu_seconds']:.0f}",
                    mib(row["memory"]),
                    f"{row['tokens_per_word']:.4f}",
                    f"{row['tokens_per_word'] / reference - 1:+.2%}",
                    f"{row['unknown']:.4%}",
                ]
            )
            report.append({"entries": size, "trainer": name, **row})
        table.rows.append(None)
    progress("")
    table.notes.append(f"{report[0]['words']:,} words of held-out text; memory above that after the imports")
    line, machine = describe_machine("tokenizers")
    table.notes.append(line)
    table.show()
    rows = [{key: rounded(v) if isinstance(v, float) else v for key, v in row.items()} for row in report]
    if options.json:
        show_json({"benchmark": "vocabulary", "rows": rows, "machine": machine}, options.json)


if __name__ == "__main__":
    run_program(main)
