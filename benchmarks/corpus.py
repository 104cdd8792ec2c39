"""Speed and memory of building a corpus, compared with `tokenizers` alone.

    python -m benchmarks.corpus FILE_OR_FOLDER...

`tokenizers` encodes text that is already in memory, with all cores (`encode_batch_fast`). The build reads and
decompresses files, cleans, splits into sentences, tokenises, removes exact and near-duplicates, splits and writes
shards, including the start and stop of worker processes. Both use the same vocabulary. Memory is the peak of all
processes together, for the text and for four copies of it in which every fourth word is followed by an added word, so
that no copy is a duplicate. "CPU seconds" are the sum over all threads and processes; on a busy machine they are more
reliable than the wall-clock time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import (
    Spread,
    Table,
    Worker,
    add_json_option,
    count,
    describe_machine,
    interleave,
    mib,
    progress,
    rounded,
    run_program,
    show_json,
)

BATCH = 10_000  # lines per call of tokenizers
TOKENIZER_SAMPLE = 20 << 20
COPIES = 4


class TokenizersAlone:
    """Encodes lines that are in memory."""

    def __init__(self, sources: list[str], tokenizer: str):
        import tokenizers

        from glassbert.text.corpus import read_documents

        self.tokenizer = tokenizers.Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.lines = [line for text in read_documents(sources) for line in text.split("\n") if line]

    def size(self) -> int:
        return sum(len(line.encode()) for line in self.lines)

    def run(self) -> tuple[float, float]:
        began, before = time.perf_counter(), cpu_seconds()
        for begin in range(0, len(self.lines), BATCH):
            self.tokenizer.encode_batch_fast(self.lines[begin : begin + BATCH], add_special_tokens=False)
        return time.perf_counter() - began, cpu_seconds() - before


class Build:
    """A complete corpus build with default settings."""

    def __init__(self, sources: list[str], tokenizer: str, folder: str):
        self.sources, self.tokenizer, self.folder = sources, tokenizer, Path(folder)

    def run(self, sources: list[str] | None = None) -> tuple[float, float]:
        from glassbert.text.corpus import build_corpus

        shutil.rmtree(self.folder, ignore_errors=True)
        began, before = time.perf_counter(), cpu_seconds()
        self.counts = build_corpus(sources or self.sources, self.folder, self.tokenizer).manifest["counts"]
        return time.perf_counter() - began, cpu_seconds() - before

    def documents_and_characters(self) -> tuple[int, int]:
        return self.counts["documents_kept"], self.counts["characters_read"]

    def process(self) -> int:
        return os.getpid()


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


class ProcessTreeMemory:
    """Context manager: the peak memory of a process and its children, sampled every 50 ms."""

    def __init__(self, process: int):
        self.process, self.peak = process, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> ProcessTreeMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.peak = max(self.peak, sum(_resident(process) for process in _process_tree(self.process)))


def _process_tree(process: int) -> Iterator[int]:
    yield process
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _process_tree(int(child))


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def modified_copies(sources: list[str], folder: Path) -> list[str]:
    """Text files with copies of the text, each with different added words."""
    from glassbert.text.corpus import read_documents

    paths = [folder / f"copy-{copy}.txt" for copy in range(COPIES)]
    files = [open(path, "w", encoding="utf-8") for path in paths]  # noqa: SIM115
    for text in read_documents(sources):
        for copy, file in enumerate(files):
            for line in text.split("\n"):
                words = line.split()
                words[3::4] = [f"{word} {'abcd'[copy] * 3}" for word in words[3::4]]
                file.write(" ".join(words) + "\n")
            file.write("\n")
    for file in files:
        file.close()
    return [str(path) for path in paths]


def make_tokenizer(sources: list[str], folder: Path, vocab_size: int) -> None:
    from glassbert.text import FastTokenizer
    from glassbert.text.corpus import read_documents

    def sample() -> Iterator[str]:
        taken = 0
        for number, text in enumerate(read_documents(sources)):
            if number % 10 == 0:
                yield text
                taken += len(text)
            if taken > TOKENIZER_SAMPLE:
                return

    FastTokenizer.train(sample(), vocab_size).save(folder)


def measure(sources: list[str], vocab_size: int, rounds: int, with_memory: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="glassbert-") as scratch:
        folder = Path(scratch)
        progress("a vocabulary")
        make_tokenizer(sources, folder / "tokenizer", vocab_size)
        options = {"sources": sources, "tokenizer": str(folder / "tokenizer")}
        alone = Worker("benchmarks.corpus:TokenizersAlone", **options)
        ours = Worker("benchmarks.corpus:Build", folder=str(folder / "corpus"), **options)
        size = alone.call("size")
        both: Any = interleave(
            {"tokenizers": lambda: alone.call("run"), "glassbert": lambda: ours.call("run")}, rounds, settle=0.5
        )
        alone.close()
        report: dict[str, Any] = {"megabytes": rounded(size / 1e6)}
        for place, kind in enumerate(("seconds", "cpu_seconds")):
            times = {name: [turn[place] for turn in turns] for name, turns in both.items()}
            report[kind] = {name: rounded(Spread.of(values).median) for name, values in times.items()}
            report[f"ratio_of_{kind}"] = rounded(Spread.of_ratio(times["tokenizers"], times["glassbert"]).median)
            report[f"rounds_{kind}"] = {name: [rounded(value) for value in values] for name, values in times.items()}
        if with_memory:
            progress("four copies")
            copies = modified_copies(sources, folder)
            for factor in (1, COPIES):
                progress(f"memory at {factor}x")
                with ProcessTreeMemory(ours.call("process")) as memory:
                    seconds, cpu = ours.call("run", copies[:factor])
                documents, characters = ours.call("documents_and_characters")
                report[f"memory_{factor}x"] = {
                    "peak": memory.peak,
                    "seconds": rounded(seconds),
                    "cpu_seconds": rounded(cpu),
                    "documents": documents,
                    "characters": characters,
                }
        ours.close()
        return report


def table_of(report: dict[str, Any], machine: str) -> Table:
    table = Table("Building a corpus", ["", "text", "seconds", "MB/s", "CPU seconds", "peak memory"])
    size = report["megabytes"]
    for name, label in (("tokenizers", "tokenizers alone, text in memory"), ("glassbert", "glassbert corpus build")):
        seconds = report["seconds"][name]
        cpu = f"{report['cpu_seconds'][name]:.1f}"
        table.rows.append([label, f"{size:,.0f} MB", f"{seconds:.1f}", f"{size / seconds:.1f}", cpu, ""])
    for times in (1, COPIES):
        facts = report.get(f"memory_{times}x")
        if facts:
            text = facts["characters"] / 1e6
            seconds, cpu = facts["seconds"], f"{facts['cpu_seconds']:.1f}"
            speed = f"{text / seconds:.1f}"
            row = [f"build, {times}x", f"{text:,.0f} MB", f"{seconds:.1f}", speed, cpu, mib(facts["peak"])]
            table.rows.append(row)
    table.notes = [
        f"build / tokenizers: {report['ratio_of_seconds']:.2f} times the throughput (median over rounds), "
        f"{report['ratio_of_cpu_seconds']:.2f} times by CPU seconds",
        machine,
    ]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument("--no-memory", action="store_true", help="only the speed")
    add_json_option(parser)
    options = parser.parse_args()
    machine, facts = describe_machine("tokenizers")
    report = {**measure(options.sources, options.vocab_size, options.rounds, not options.no_memory), "machine": facts}
    table_of(report, machine).show()
    if options.json:
        show_json(report, options.json)


if __name__ == "__main__":
    run_program(main)
