"""From tags to spans: BIO, BIOES and their relatives.

    B-PER I-PER O      B begins, I continues; O is outside
    B-PER E-PER S-LOC  E ends a span, S is a span of one word; L and U are other names for E and S

Models write sequences that make no sense, such as an I after an O. The usual reading, that of the CoNLL evaluation,
takes whatever is not O as part of some span: a span begins at B and S, after O, E and S, and where the type changes.
The strict reading takes only spans that are written as they should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from glassbert.errors import InputError

LETTERS = {"O": 0, "B": 1, "I": 2, "E": 3, "L": 3, "S": 4, "U": 4}
OUTSIDE, BEGIN, INSIDE, END, SINGLE = range(5)


class Span(NamedTuple):
    """Words start to end of a sentence, `end` not included."""

    type: str
    start: int
    end: int


class Parsed(NamedTuple):
    """The tags of many sentences in a row, [N] each, with an O between sentences."""

    letters: np.ndarray
    types: np.ndarray
    names: list[str]
    firsts: np.ndarray  # where each sentence begins


def spans(tags: Sequence[str], strict: bool = False) -> list[Span]:
    """The spans of one sentence."""
    return sentence_spans([tags], strict)[0]


def sentence_spans(sentences: Sequence[Sequence[str]], strict: bool = False) -> list[list[Span]]:
    """The spans of every sentence."""
    parsed = parse(sentences)
    starts, ends, sound = _bounds(parsed)
    if strict:
        starts, ends = starts[sound], ends[sound]
    owners = np.searchsorted(parsed.firsts, starts, side="right") - 1
    found: list[list[Span]] = [[] for _ in sentences]
    offsets = parsed.firsts[owners] if len(owners) else owners
    for owner, kind, start, end in zip(
        owners.tolist(),
        parsed.types[starts].tolist(),
        (starts - offsets).tolist(),
        (ends - offsets).tolist(),
        strict=True,
    ):
        found[owner].append(Span(parsed.names[kind], start, end))
    return found


def broken_spans(sentences: Sequence[Sequence[str]]) -> int:
    """How many spans are not written as they should be; 0 for tags made by people, one hopes."""
    parsed = parse(sentences)
    return int((~_bounds(parsed)[2]).sum())


def parse(sentences: Sequence[Sequence[str]]) -> Parsed:
    numbers: dict[str, tuple[int, int]] = {"O": (OUTSIDE, 0)}
    names = [""]
    codes: list[tuple[int, int]] = []
    firsts = []
    for number, sentence in enumerate(sentences):
        firsts.append(len(codes))
        for word, tag in enumerate(sentence):
            code = numbers.get(tag)
            if code is None:
                code = numbers[tag] = _code(tag, names, f"sentence {number}, word {word}")
            codes.append(code)
        codes.append((OUTSIDE, 0))
    table = np.array(codes, np.int64).reshape(-1, 2)
    return Parsed(table[:, 0], table[:, 1], names, np.array(firsts, np.int64))


def _code(tag: str, names: list[str], where: str) -> tuple[int, int]:
    letter, dash, kind = str(tag).partition("-")
    if letter not in LETTERS or letter == "O" or not (dash and kind):
        raise InputError(f"{where}: {tag!r} is no tag of a span; tags are O, or B, I, E, S with a type, as B-PER")
    if kind not in names:
        names.append(kind)
    return LETTERS[letter], names.index(kind)


def _bounds(parsed: Parsed) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where spans start and end, and which are written as they should be: with their end where any tag marks ends."""
    letters, types = parsed.letters, parsed.types
    if not len(letters):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool)
    before, kind_before = np.concatenate([[OUTSIDE], letters[:-1]]), np.concatenate([[0], types[:-1]])
    inside = letters != OUTSIDE
    begins = np.isin(letters, (BEGIN, SINGLE)) | np.isin(before, (OUTSIDE, END, SINGLE)) | (types != kind_before)
    starts = np.flatnonzero(inside & begins)
    stops = np.flatnonzero(begins | ~inside)  # the next start or O after a start ends it
    ends = stops[np.searchsorted(stops, starts, side="right")]
    first, last, length = letters[starts], letters[ends - 1], ends - starts
    with_end = np.where(length == 1, first == SINGLE, (first == BEGIN) & (last == END))
    return starts, ends, with_end if np.isin(letters, (END, SINGLE)).any() else first == BEGIN
