"""Everyday texts for a corpus: comments, tweets, captions and headlines, web pages.

    python -m benchmarks.everyday DATA FOLDER [--json [FILE]]
    glassbert corpus build FOLDER/*.txt -o everyday --tokenizer mini

The texts of the training files of GoEmotions, STS-B, WNUT-17 and UD-EWT in DATA, without their labels. FOLDER gets a
text file of each, a document a text. Left out are texts of fewer than three words, repeated ones, those that also stand
in a dev file (of SST-2 as well), and coarse language. The packaged Mini has read them beside its corpus
(docs/recipes.md).
"""

from __future__ import annotations

import argparse
import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.common import Table, add_json_option, run_program, show_json
from glassbert.files import atomic_write

LEAST_WORDS = 3
PLACEHOLDERS = ("[NAME]", "[RELIGION]")  # of GoEmotions
COARSE = re.compile(
    r"fuck|shit|bitch|cunt|nigg|fag|\b(ass|arse)(hole)?s?\b|\bdick|cock\b|pussy|whore|slut|retard|\brape|porn|\bsex"
    r"|\bcum\b|kill (my|your)self|kys|bastard",
    re.IGNORECASE,
)


def comments(file: Path) -> Iterator[str]:
    """GoEmotions: text, labels and a number in columns."""
    for line in file.read_text(encoding="utf-8").split("\n"):
        text = line.split("\t")[0]
        if not any(placeholder in text for placeholder in PLACEHOLDERS):
            yield text


def pairs(file: Path) -> Iterator[str]:
    """STS-B: two sentences in the sixth and seventh column, without quoting."""
    for line in file.read_text(encoding="utf-8").split("\n"):
        yield from line.split("\t")[5:7]


def tagged_words(file: Path) -> Iterator[str]:
    """WNUT-17: a word a line, and a blank line between texts."""
    words: list[str] = []
    for line in file.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            words.append(line.split("\t")[0])
        elif words:
            yield " ".join(words)
            words = []


def sentences(file: Path) -> Iterator[str]:
    """UD-EWT: the texts above the analyses."""
    mark = "# text = "
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(mark):
                yield line.removeprefix(mark)


def first_column(file: Path) -> Iterator[str]:
    """SST-2: sentence and label in columns."""
    for line in file.read_text(encoding="utf-8").split("\n"):
        yield line.rsplit("\t", 1)[0]


SOURCES: dict[str, tuple[Callable[[Path], Iterator[str]], str, str]] = {  # a reader, a training file, a dev file
    "comments": (comments, "goemotions/train.tsv", "goemotions/dev.tsv"),
    "captions-and-headlines": (pairs, "stsb/sts-train.csv", "stsb/sts-dev.csv"),
    "tweets": (tagged_words, "wnut17/train.conll", "wnut17/dev.conll"),
    "web": (sentences, "ud_english_ewt/en_ewt-ud-train.conllu.xz", "ud_english_ewt/en_ewt-ud-dev.conllu.xz"),
}


def words_of(text: str) -> str:
    """The words of a text alone, by which texts are compared."""
    return re.sub(r"\W+", " ", text.lower()).strip()


def chosen(texts: Iterator[str], held_out: set[str]) -> tuple[list[str], dict[str, int]]:
    """The texts that are kept, and how many were left out for which reason."""
    kept: dict[str, str] = {}
    left_out = {"short": 0, "repeated": 0, "in a dev file": 0, "coarse": 0}
    for raw in texts:
        text = " ".join(raw.split())
        words = words_of(text)
        if len(words.split()) < LEAST_WORDS:
            left_out["short"] += 1
        elif words in kept:
            left_out["repeated"] += 1
        elif words in held_out:
            left_out["in a dev file"] += 1
        elif COARSE.search(text):
            left_out["coarse"] += 1
        else:
            kept[words] = text
    return list(kept.values()), left_out


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder with the files of the ready tasks")
    parser.add_argument("folder", type=Path, help="where the text files are written")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    needed = [options.data / file for _, *files in SOURCES.values() for file in files]
    missing = [str(file) for file in [*needed, options.data / "sst2/dev.tsv"] if not file.exists()]
    if missing:
        parser.error(f"these files are missing: {', '.join(missing)}; DATA is the folder of the ready tasks")
    held_out = {words_of(text) for read, _, dev in SOURCES.values() for text in read(options.data / dev)}
    held_out |= {words_of(text) for text in first_column(options.data / "sst2/dev.tsv")}
    options.folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, int | str]] = []
    for name, (read, train, _) in SOURCES.items():
        kept, left_out = chosen(read(options.data / train), held_out)
        with atomic_write(options.folder / f"{name}.txt") as file:
            file.write("\n\n".join(kept) + "\n")
        rows.append({"source": name, "texts": len(kept), "words": sum(len(text.split()) for text in kept), **left_out})
    cells = [[f"{value:,}" if isinstance(value, int) else value for value in row.values()] for row in rows]
    Table("Everyday texts", list(rows[0]), cells).show()
    if options.json:
        show_json({"sources": rows}, options.json)


if __name__ == "__main__":
    run_program(main)
