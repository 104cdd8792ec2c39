"""How fast a corpus is built, beside `tokenizers` alone, and whether memory stays flat.

    python -m benchmarks.corpus FILE_OR_FOLDER...

`tokenizers` has the text in memory already and only has to encode it, with all cores (`encode_batch_fast`). The build
reads and decompresses files, cleans, cuts into sentences, tokenises, removes exact and near-duplicates, splits and
writes shards, workers started and stopped included. Both use the same vocabulary. Memory is the peak of all processes
together, once for the text and once for four times as much: copies in which every fourth word is followed by another
word, so that none is a duplicate. "CPU seconds" are those of all threads and processes together: on a machine that is
busy with other things they tell more than the clock.
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

from benchmarks.common import Spread, Table, Worker, describe_machine, interleave, mib, progress, rounded, show_json

BATCH = 10_000  # lines a call of tokenizers
TOKENIZER_SAMPLE = 20 << 20
COPIES = 4


class TokenizersAlone:
    """Lines that wait in memory, encoded."""

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
    """A whole build with everything on."""

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
    """Of this process and of those it started that have ended."""
    return sum(os.times()[:4])


class TreeMemory:
    """The peak memory of a process and all its children, looked at every 50 ms while inside."""

    def __init__(self, process: int):
        self.process, self.peak = process, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> TreeMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.peak = max(self.peak, sum(_resident(process) for process in _family(self.process)))


def _family(process: int) -> Iterator[int]:
    yield process
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def salted_copies(sources: list[str], folder: Path) -> list[str]:
    """Plain files with the same text, each made different from the others."""
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
            copies = salted_copies(sources, folder)
            for times_the_text in (1, COPIES):
                progress(f"memory at {times_the_text}x")
                with TreeMemory(ours.call("process")) as memory:
                    seconds, cpu = ours.call("run", copies[:times_the_text])
                documents, characters = ours.call("documents_and_characters")
                report[f"memory_{times_the_text}x"] = {
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-memory", action="store_true", help="only the speed")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine, facts = describe_machine("tokenizers", "datasketch")
    report = {**measure(options.sources, options.vocab_size, options.rounds, not options.no_memory), "machine": facts}
    table_of(report, machine).show()
    if options.json:
        show_json(report)


if __name__ == "__main__":
    main()
