"""Speed of encoding on one core, compared with Hugging Face's `tokenizers`; and a comparison of the results.

    python -m benchmarks.tokenizer --corpus ../shared/data/corpus --tokenizer MODEL_FOLDER
    python -m benchmarks.tokenizer --corpus ../shared/data/corpus --tokenizer MODEL_FOLDER --exact 300000

`--exact N` compares tokens, ids, offsets and word indices of N lines with those of `tokenizers`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

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
    seconds_of,
    show_json,
)
from glassbert.text import FastTokenizer, WordPieceTokenizer
from glassbert.text.corpus.documents import read_documents

MB = 10**6
REFERENCE = "tokenizers encode_batch_fast"
OURS, FRESH = "encode_ids", "encode_ids, tables empty at first"


def lines_of(corpus: Path) -> Iterator[str]:
    return (line for document in read_documents([corpus]) for line in document.split("\n") if line)


def sampled(corpus: Path, count: int) -> list[str]:
    """`count` lines spread evenly over the corpus, or all of them."""
    total = sum(1 for _ in lines_of(corpus))
    chosen = set(np.linspace(0, total - 1, min(count, total)).astype(int).tolist())
    return [line for i, line in enumerate(lines_of(corpus)) if i in chosen]


# ---- speed ---------------------------------------------------------------------------------------------------------


def measure(corpus: Path, folder: Path, megabytes: float, rounds: int) -> dict[str, Any]:
    fast = FastTokenizer.load(folder)
    rust = fast._rust
    every = max(1, round(sum(len(line) for line in lines_of(corpus)) / (megabytes * MB)))
    texts = list(islice(lines_of(corpus), 0, None, every))
    size = sum(len(text.encode()) for text in texts)
    tokens = len(fast.encode_ids(texts)[0])
    contenders: dict[str, Callable[[], object]] = {
        OURS: lambda: fast.encode_ids(texts),
        FRESH: lambda: FastTokenizer.load(folder).encode_ids(texts),
        REFERENCE: lambda: rust.encode_batch_fast(texts, add_special_tokens=False),
        "tokenizers encode_batch": lambda: rust.encode_batch(texts, add_special_tokens=False),
        "FastTokenizer.encode_batch": lambda: fast.encode_batch(texts, special_tokens=False),
    }

    seconds = interleave({name: partial(seconds_of, work) for name, work in contenders.items()}, rounds)
    table = Table(
        f"{size / MB:.0f} MB of text, {len(texts):,} lines, {tokens / 1e6:.1f} M tokens, one core, {rounds} rounds",
        ["", "MB/s", "million tokens/s", f"times {REFERENCE}"],
    )
    report = {}
    for name, values in seconds.items():
        ratio = Spread.of_ratio(seconds[REFERENCE], values)
        median = Spread.of(values).median
        table.rows.append([name, f"{size / MB / median:.1f}", f"{tokens / 1e6 / median:.2f}", ratio.text()])
        report[name] = {"mb_per_second": rounded(size / MB / median), "ratio": rounded(ratio.median)}
    line, machine = describe_machine("tokenizers")
    table.notes.append(line)
    table.show()
    return {"benchmark": "tokenizer", "megabytes": rounded(size / MB), "contenders": report, "machine": machine}


# ---- agreement -----------------------------------------------------------------------------------------------------


def compare(corpus: Path, folder: Path, count: int) -> dict[str, Any]:
    """The number of lines that the two tokenizers encode differently, plus those that do not survive a round trip."""
    python, fast = WordPieceTokenizer.load(folder), FastTokenizer.load(folder)
    lines = sampled(corpus, count)
    different = unstable = 0
    for begin in range(0, len(lines), 1000):
        part = lines[begin : begin + 1000]
        ours, theirs = python.encode_batch(part), fast.encode_batch(part)
        ids, counts = python.encode_ids(part)
        rows = np.split(ids, np.cumsum(counts)[:-1])
        for line, mine, reference, row in zip(part, ours, theirs, rows, strict=True):
            text = python.decode(mine)
            same = mine == reference and row.tolist() == reference.ids[1:-1] and text == fast.decode(reference)
            if not same:
                different += 1
                print(f"different: {line[:200]!a}")
            unstable += python.decode(python.encode_ids([text])[0]) != text
        progress(f"{begin + len(part):,} of {len(lines):,} lines")
    progress("")
    print(f"{len(lines):,} lines, {sum(map(len, lines)):,} characters: {different} differ, {unstable} not stable")
    return {"benchmark": "tokenizer-exact", "lines": len(lines), "different": different, "unstable": unstable}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="a file or folder of text")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder with a WordPiece tokenizer")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument(
        "--exact", type=count, metavar="LINES", help="compare the results on this number of lines instead of the speed"
    )
    add_json_option(parser)
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core for both
    if options.exact:
        report = compare(options.corpus, options.tokenizer, options.exact)
    else:
        report = measure(options.corpus, options.tokenizer, options.megabytes, options.rounds)
    if options.json:
        show_json(report, options.json)
    return int(report.get("different", 0) + report.get("unstable", 0) > 0)


if __name__ == "__main__":
    run_program(main)
