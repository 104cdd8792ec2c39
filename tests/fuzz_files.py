"""Damaged task files and hostile strings: every one is read, or refused with one sentence.

    python -m tests.fuzz_files                          5,000 files and 500,000 strings, with a table at the end
    python -m tests.fuzz_files --files 200 --strings 0

A file of the collection in `tests/tasks/awkward.py` is damaged at random (bits, pieces cut, doubled, moved, joined with
another file, hostile pieces put in), read with random options, made into a task, checked, split, and encoded. An error
of the package is an answer; any other exception is a defect, and its file is kept in `fuzz-failures/`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from glassbert.errors import GlassBertError
from glassbert.finetuning.predictor import split_words
from glassbert.reading.cells import as_number, is_missing, shown
from glassbert.reading.decimals import canonical
from glassbert.tasks import LabelMap, Series, TaskData, auto_template, check_data, read_table, train_dev_split
from glassbert.tasks.labels import label_name
from glassbert.tasks.splits import normalised
from glassbert.text.corpus import Settings, read_documents
from glassbert.text.corpus.cleaning import clean
from glassbert.text.corpus.markdown import plain_text
from glassbert.text.corpus.sentences import split_sentences
from tests.tasks.awkward import CORPORA, TABLES, TASKS, excel, parquet

LONGEST = 10.0  # seconds for one file
PIECES = (
    b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b'"', b'""', b"'", b",", b";", b"\t", b"|", b"\r", b"\n", b"\r\n",
    b"\n\n", b"null", b"NaN", b"Infinity", b"-1e999", b"1,5", b"1.234,5", b"{}", b"[]", b"[[[[", b"]]]]", b'{"a":',
    b"\\ud800", b"\\u0000", b"9" * 400, b"9" * 5000, b"[" * 3000, b'{"x":' * 3000, b"\xe9", b"\xc3",
    b"\xf0\x9f\x98\x80",
    b"\xed\xa0\x80", b"true", b"0x10", b"1_000", b"\xe2\x80\xa8", b"\x1b[31m", b"{text}", b"{", b"}", b"%s", b"$(id)",
    b"<nav>", b"-DOCSTART-", b"1-2", b"#", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"x" * 70_000,
)  # fmt: skip
OPTIONS: dict[str, list[Any]] = {
    "encoding": ["utf-8", "utf-16", "cp1252", "shift_jis", "gb18030", "utf-7", "idna", "nonsense"],
    "delimiter": [",", ";", "tab", "|", " ", "x", "::"],
    "quoting": [True, False],
    "header": [True, False],
    "columns": [["a", "b"], ["a"], ["a", "a"]],
    "decimal": [",", "."],
    "drop": [["text"], ["nothing"]],
    "ragged": ["skip", "cut", "error"],
    "sheet": ["first", "1", "99"],
}
KINDS = (None, "binary", "multiclass", "multilabel", "ordinal", "regression")


def seeds() -> list[tuple[str, bytes]]:
    """(file name, bytes) of the collection."""
    files = [(case.file, case.content) for case in (*TABLES, *TASKS)] + [row[1:3] for row in CORPORA]
    found = []
    for name, content in files:
        with suppress(ImportError):  # a package that writes such files may be missing
            found.append((name, content if isinstance(content, bytes) else content()))
    rows = [
        {"text": f"a film of {i} parts, {i % 7} good", "n": i / 4, "code": f"{i:03}", "y": "ab"[i % 2]}
        for i in range(40)
    ]
    table = [list(rows[0]), *(list(row.values()) for row in rows)]
    larger = [
        ("t.csv", "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in table).encode()),
        ("t.tsv", "".join("\t".join(map(str, row)) + "\n" for row in table).encode("cp1252")),
        ("t.csv", "".join(";".join(map(str, row)).replace(".", ",") + "\r\n" for row in table).encode("utf-16")),
        ("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()),
        ("t.json", json.dumps(rows, indent=1).encode()),
        ("t.conll", "".join(f"word{i}\tB-X\nend\tO\n\n" for i in range(40)).encode()),
        ("t.conllu", (CONLLU * 20).encode()),
        ("t.txt", "".join(f"{row['text']}\n" for row in rows).encode()),
    ]
    with suppress(ImportError):
        larger.append(("t.xlsx", excel(table)()))
        larger.append(("t.parquet", parquet(**{name: [row[name] for row in rows] for name in rows[0]})()))
    return found + larger * 8


CONLLU = "# text = go on\n1\tgo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n2\ton\ton\tADP\t_\t_\t1\tcase\t_\t_\n\n"


def value(rng: random.Random, depth: int = 0) -> Any:
    """A value of JSON, a strange one."""
    how = rng.randrange(12)
    if how < 2 and depth < 4:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if how < 4 and depth < 4:
        return {rng.choice(["text", "answer_start", "a", ""]): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    simple = [
        None,
        True,
        0,
        -1,
        10**30,
        10**400,
        0.5,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "a",
        "1,5",
        "nan",
        "\ud800",
    ]
    return rng.choice([*simple, *STRINGS])


STRINGS = ("a longer text of words", "x" * 500, "2024-05-01", "\x00", "007", "a,b", "a;b")


def made(rng: random.Random) -> tuple[str, bytes]:
    """A whole file with strange values instead of a damaged one: JSON lines, JSON, Parquet or Excel."""
    kind = rng.choice(["jsonl", "json", "parquet", "xlsx"])
    names = rng.sample(["text", "y", "words", "a b", "", "1"], rng.randint(1, 4))
    column = {name: [value(rng) for _ in range(4)] for name in names}
    rows = [{name: rng.choice(column[name]) for name in names} for _ in range(rng.randint(1, 12))]
    with suppress(Exception):  # the libraries that write these files refuse many values
        if kind == "parquet":
            return "t.parquet", parquet(**{name: [row[name] for row in rows] for name in names})()
        if kind == "xlsx":
            cells = [[one if not isinstance(one, list | dict) else None for one in row.values()] for row in rows]
            return "t.xlsx", excel([names, *cells])()
    if kind == "json":
        return "t.json", json.dumps(rng.choice([rows, {"data": rows}, column, rows[0]])).encode()
    return "t.jsonl", "".join(json.dumps(rng.choice([row, row, row, value(rng)])) + "\n" for row in rows).encode()


def damaged(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The bytes with one to four changes."""
    for _ in range(rng.randint(1, 4)):
        at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        how = rng.randrange(7)
        if how == 0 and data:
            at = rng.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        elif how == 1:
            data = data[:at] + data[end:]
        elif how == 2:
            data = data[:end] + data[at:]
        elif how == 3:
            data = data[:at] + rng.choice(PIECES) + data[at:]
        elif how == 4:
            data = data[:at] + other[: rng.randint(0, len(other))] + data[end:]
        elif how == 5:
            data = data.replace(rng.choice(PIECES), rng.choice(PIECES), 3)
        else:
            data = data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]
    return data[: 1 << 20]


def use(path: Path, rng: random.Random) -> None:
    """Read the file in every way that a user can."""
    chosen = rng.sample(sorted(OPTIONS), rng.choice((0, 0, 1, 2)))
    options: dict[str, Any] = {name: rng.choice(OPTIONS[name]) for name in chosen}
    if rng.random() < 0.1:
        options["format"] = rng.choice(["csv", "tsv", "jsonl", "json", "conll", "conllu", "lines", "excel", "parquet"])
    how = rng.randrange(8)
    if how == 0:
        list(
            read_documents(
                [path], Settings(field=rng.choice([None, "text"]), on_bad_text=rng.choice(["error", "skip"]))
            )
        )
        return
    if how == 1:
        Series.of(path, **options)
        return
    table = read_table(path, **options)
    names = [*table.columns] or ["nothing"]
    roles = {"target": rng.choice(names), "kind": rng.choice(KINDS), "drop_missing": rng.random() < 0.5}
    if how == 2:
        roles["template"] = rng.choice(["auto", f"a {{{rng.choice(names)}}}"])
    elif how == 3:
        roles = {"words": rng.choice(names), "target": rng.choice(names)}
    elif how < 6:
        roles["text"] = rng.choice(names)
    else:
        roles |= {"text": rng.choice(names), "pair": rng.choice(names)}
    with suppress(GlassBertError):
        auto_template(table, roles["target"])
    data = TaskData.of(path, **options, **roles)
    with suppress(GlassBertError):
        check_data(data)
    with suppress(GlassBertError):
        labels = data.encoded().labels
        train, dev = train_dev_split(data, 0.3)
        dev.encoded(labels)
        LabelMap.of(train.targets or [])


def fuzz_files(count: int, seed: int, failures: Path) -> list[tuple[str, Counter[str], float]]:
    """For every kind of file: what happened how often, and the longest time."""
    known = seeds()
    results: dict[str, Counter[str]] = defaultdict(Counter)
    slowest: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            (name, data), (_, other) = rng.choice(known), rng.choice(known)
            if rng.random() < 0.25:
                name, content = made(rng)
            elif name.endswith(".gz"):
                content = gzip.compress(damaged(data, other, rng)) if rng.random() < 0.5 else damaged(data, other, rng)
            else:
                content = damaged(data, other, rng)
            path = Path(folder) / name
            path.write_bytes(content)
            kind = name.split(".", 1)[1]
            start = time.perf_counter()
            try:
                use(path, rng)
                outcome = "read"
            except GlassBertError as error:
                outcome = "refused" if is_a_sentence(str(error), str(path)) else "no sentence"
                if outcome == "no sentence":
                    print(f"{number}: {str(error)[:600]!r}", file=sys.stderr)
            except Exception:
                outcome = "traceback"
                failures.mkdir(exist_ok=True)
                (failures / f"{number}-{name}").write_bytes(path.read_bytes())
                print(f"{number}: {name}\n{traceback.format_exc(limit=-6)}", file=sys.stderr)
            seconds = time.perf_counter() - start
            results[kind][outcome] += 1
            results[kind]["slow"] += seconds > LONGEST
            slowest[kind] = max(slowest[kind], seconds)
            path.unlink()
    return [(kind, results[kind], slowest[kind]) for kind in sorted(results)]


def is_a_sentence(text: str, path: str) -> bool:
    """One line, with at most 200 characters of any value."""
    plain = text.replace(path, "FILE")
    return "\n" not in plain and 0 < len(plain) < 3000 and "x" * 201 not in plain and "9" * 201 not in plain


# ---- strings ---------------------------------------------------------------------------------------------------------

ALPHABETS = (
    "abc xyz.,!?'\"-_/\\<>[]{}()#*`~|&;:@$%^+=0123456789",
    "äöüßéèñçøåÆŒ€“”‘’–—…",
    "привет мир γειά שלום مرحبا हिन्दी 日本語 한국어 ไทย",
    "\u0300\u0301\u0327\u200b\u200d\u200e\u202e\ufeff\u00ad\u2028\u2029\x00\x01\x1b\x7f\x85\r\n\t\x0b\x0c",
    "😀👩‍👩‍👧🏳️‍🌈🇩🇪\U0010ffff\ufffd\uffff\ue000",
)
TOKENS = ("<nav>", "</nav>", "<!--", "-->", "<p>", "</p>", "[MASK]", "[CLS]", "##", "1,5", "1.234,5", "1e999", "nan",
          "**", "__", "```", "](", "![", "&amp;", "&#0;", "\\", "A" * 300, "...", "Mr. ", "U.S. ")  # fmt: skip


def strings(count: int, seed: int) -> Iterator[str]:
    rng = random.Random(f"strings {seed}")
    for _ in range(count):
        length = min(int(rng.expovariate(1 / 25)) + 1, 2000)
        alphabet = rng.choice(ALPHABETS)
        pieces = rng.choices(alphabet, k=length)
        for _ in range(rng.randrange(3)):
            pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(TOKENS))
        if rng.random() < 0.02:
            pieces.append(chr(rng.randrange(0xD800, 0xE000)))
        yield "".join(pieces)


def fuzz_strings(count: int, seed: int) -> Counter[str]:
    """Every string through cells, labels, cleaning, Markdown, sentences, words and the packaged tokenizer."""
    from glassbert.checkpoints.packaged import packaged_folder
    from glassbert.text.loading import find_tokenizer

    tokenizer = find_tokenizer(packaged_folder("mini"))
    results: Counter[str] = Counter()
    for text in strings(count, seed):
        try:
            as_number(text), is_missing(text), shown(text), label_name(text), normalised(text), split_words(text)
            canonical(text, "."), canonical(text, ",")
            for line in clean(text, Counter())[0]:
                split_sentences(line)
            plain_text(text)
            tokenizer.decode(tokenizer.encode(text, max_length=64))
            results["read"] += 1
        except GlassBertError:
            results["refused"] += 1
        except Exception:
            results["traceback"] += 1
            print(f"{text!r}\n{traceback.format_exc(limit=-4)}", file=sys.stderr)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--strings", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    print("| kind | tried | read | refused | tracebacks | no sentence | over 10 s | longest |")
    print("|---|---|---|---|---|---|---|---|")
    total: Counter[str] = Counter()
    for kind, found, slowest in fuzz_files(given.files, given.seed, given.failures):
        total += found
        tried = sum(found.values()) - found["slow"]
        shown_counts = " | ".join(
            f"{found[name]:,}" for name in ("read", "refused", "traceback", "no sentence", "slow")
        )
        print(f"| {kind} | {tried:,} | {shown_counts} | {slowest:.1f} s |", flush=True)
    if given.strings:
        found = fuzz_strings(given.strings, given.seed)
        total += found
        counts = " | ".join(f"{found[name]:,}" for name in ("read", "refused", "traceback"))
        print(f"| strings | {found.total():,} | {counts} | 0 | | |")
    try:
        import resource  # not on Windows
    except ImportError:
        peak = float("nan")
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nSeed {given.seed}, {time.perf_counter() - start:,.0f} s, peak memory {peak:,.0f} MiB")
    sys.exit(bool(total["traceback"] or total["no sentence"] or total["slow"]))


if __name__ == "__main__":
    main()
