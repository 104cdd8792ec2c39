"""Readers for CoNLL and CoNLL-U: one word with its annotations a line, blank lines between sentences.

One sentence is one row of the table. A line of white space is blank: some files end sentences with a single tab. In
CoNLL a word may begin with "#" (tweets), so a line is a comment only if its number of columns differs from the words'.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from glassbert.errors import TextError
from glassbert.reading.cells import shown
from glassbert.reading.options import DEFAULTS, ReadingOptions
from glassbert.tasks.table import Table, read_text, split_lines

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
DOCUMENT_START = "-DOCSTART-"
Sentence = list[tuple[int, list[str]]]  # line number and columns of every word


def read_conll(path: str | Path, options: ReadingOptions = DEFAULTS, named: Collection[str] = ()) -> Table:
    """Lists of words and tags. Without `columns` the first column is called "words" and the last one "tags"."""
    text, notes = read_text(path, options.encoding)
    lines, columns = split_lines(text), options.columns
    separator = "\t" if any("\t" in line.strip() for line in lines) else None
    width = len(columns) if columns else _column_count(lines, separator)
    names = list(columns or ["words", *(f"column {number}" for number in range(2, width)), "tags"][:width])
    sentences = []
    for sentence in _sentences(lines):
        words: Sentence = []
        for number, line in sentence:
            cells = line.split(separator)
            if len(cells) != width and line.startswith("#"):
                continue
            if len(cells) != width:
                raise TextError(
                    f"{path}, line {number:,}: {len(cells)} columns where {width} are expected: {shown(line)}; "
                    "repair the line, or name all columns with --columns"
                )
            if not cells[0].strip():
                raise TextError(f"{path}, line {number:,}: there is no word before the tag")
            words.append((number, cells))
        if words and words[0][1][0] != DOCUMENT_START:
            sentences.append(words)
    if not sentences:
        raise TextError(f"{path} contains no sentence")
    table = {name: [[cells[i] for _, cells in words] for words in sentences] for i, name in enumerate(names)}
    return Table(table, str(path), [words[0][0] for words in sentences], "line", notes)


def read_conllu(path: str | Path, options: ReadingOptions = DEFAULTS, named: Collection[str] = ()) -> Table:
    """Lists of "words", "lemma", "upos", "xpos", "feats", "head" (numbers), "deprel"; "text" and "sent_id" of comments.

    Annotations belong to syntactic words. A multi-word token such as "don't" is kept in "multiwords" as (first, last,
    form), counted from 0. Empty nodes (ids such as 3.1) are left out.
    """
    text, notes = read_text(path, options.encoding)
    rows: list[dict[str, Any]] = []
    starts = []
    for sentence in _sentences(split_lines(text)):
        row = _parse_conllu(sentence, str(path))
        if row["words"]:
            rows.append(row)
            starts.append(next(number for number, line in sentence if not line.startswith("#")))
    if not rows:
        raise TextError(f"{path} contains no sentence")
    return Table({name: [row[name] for row in rows] for name in rows[0]}, str(path), starts, "line", notes)


def _parse_conllu(sentence: list[tuple[int, str]], source: str) -> dict[str, Any]:
    comments: dict[str, str] = {}
    words: Sentence = []
    multiwords = []
    for number, line in sentence:
        if line.startswith("#"):
            name, equals, value = line[1:].partition("=")
            if equals:
                comments[name.strip()] = value.strip()
            continue
        cells = line.split("\t")
        where = f"{source}, line {number:,}"
        if len(cells) != len(CONLLU_COLUMNS):
            raise TextError(f"{where}: {len(cells)} columns where CoNLL-U has {len(CONLLU_COLUMNS)}, separated by tabs")
        first, dash, last = cells[0].partition("-")
        if dash and _is_count(first) and _is_count(last):
            multiwords.append((int(first) - 1, int(last) - 1, cells[1]))
        elif "." not in cells[0]:
            if cells[0] != str(len(words) + 1):
                raise TextError(
                    f"{where}: the word has the number {shown(cells[0])} where {len(words) + 1} is expected"
                )
            words.append((number, cells))
    heads = [_head(cells[6], len(words), f"{source}, line {number:,}") for number, cells in words]
    columns = {name: [cells[index] for _, cells in words] for index, name in enumerate(CONLLU_COLUMNS)}
    forms = columns["form"]
    return {
        "words": forms,
        **{name: columns[name] for name in ("lemma", "upos", "xpos", "feats")},
        "head": heads,
        "deprel": columns["deprel"],
        "multiwords": multiwords,
        "text": comments.get("text", " ".join(forms)),
        "sent_id": comments.get("sent_id", ""),
    }


def _head(cell: str, words: int, where: str) -> int | None:
    """The number of the head from 1, 0 for the root; None if it is not annotated."""
    if cell == "_":
        return None
    if not _is_count(cell) or int(cell) > words:
        raise TextError(f"{where}: the head {shown(cell)} is no word of this sentence, which has {words}")
    return int(cell)


def _is_count(cell: str) -> bool:
    return cell.isdecimal() and cell.isascii() and len(cell) < 10


def _sentences(lines: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Groups of (line number, line) between blank lines."""
    sentence: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            sentence.append((number, line))
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _column_count(lines: Sequence[str], separator: str | None) -> int:
    """The number of columns of the first line that is certainly a word."""
    for line in lines:
        if line.strip() and not line.startswith(("#", DOCUMENT_START)):
            return len(line.split(separator))
    return next((len(line.split(separator)) for line in lines if line.strip()), 1)
