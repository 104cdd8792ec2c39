"""Clean documents in any language: remove what is not text, and leave text unchanged.

The rules work on characters, lines and documents, not on words. Each rule counts its changes for the manifest:

    control_characters   control characters, removed (joiners of Persian, Hindi and emoji are kept)
    spaces_squeezed      lines in which several white-space characters became one space
    html_documents       documents with many HTML tags; the tags were removed
    lines_without_letters  separators, page numbers, rows of figures: removed
    repeated_lines       a long line that occurs four times or more in a document (page headers): kept once
    noise                documents with less than half letters and spaces: left out
    too_short            documents with too few characters: left out
"""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict

CONTROL = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]"
)
BREAK = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
LETTER = re.compile(r"[^\W\d_]")
HTML_BEGIN = re.compile(r"<(script|style|head|nav)\b|<!(--)", re.IGNORECASE)
HTML_END = re.compile(r"</(script|style|head|nav)\s*>|(--)>", re.IGNORECASE)
HTML_TAG = re.compile(r"<!--|</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>|<!doctype[^<>]*>", re.IGNORECASE)
HTML_BREAK = re.compile(r"</(?:p|div|li|tr|td|h[1-6]|ul|ol|table|title)\s*>|<br\s*/?>", re.IGNORECASE)
FEW_TAGS = 6
REPEATS, LONG_LINE = 4, 20
SAMPLE = 500

RULES = (
    "control_characters",
    "spaces_squeezed",
    "html_documents",
    "lines_without_letters",
    "repeated_lines",
    "noise",
    "too_short",
)
NOISE, TOO_SHORT = "noise", "too_short"


def clean(text: str, counts: Counter[str], min_characters: int = 0) -> tuple[list[str], str]:
    """(paragraphs, "") of a document, or ([], rule) with the rule that left it out."""
    if is_noise(text):
        counts[NOISE] += 1
        return [], NOISE
    text, removed = CONTROL.subn("", text)
    if removed:
        counts["control_characters"] += removed
    text = BREAK.sub("\n", text)
    if "</" in text or "/>" in text:
        text = _without_html(text, counts)
    lines = []
    for line in text.split("\n"):
        squeezed = " ".join(line.split())
        if squeezed != line:
            if not squeezed:
                continue
            counts["spaces_squeezed"] += 1
        if not LETTER.search(squeezed):
            counts["lines_without_letters"] += bool(squeezed)
        else:
            lines.append(squeezed)
    if len(lines) >= REPEATS:
        lines = _without_repeats(lines, counts)
    if not lines or sum(map(len, lines)) < min_characters:
        counts[TOO_SHORT] += 1
        return [], TOO_SHORT
    return lines, ""


def split_paragraphs(text: str, counts: Counter[str], min_characters: int = 0) -> tuple[list[str], str]:
    """As `clean`, with the rule too_short only: the lines that are not empty, stripped."""
    lines = [stripped for line in text.split("\n") if (stripped := line.strip())]
    if not lines or sum(map(len, lines)) < min_characters:
        counts[TOO_SHORT] += 1
        return [], TOO_SHORT
    return lines, ""


def is_noise(text: str) -> bool:
    """Whether less than half of a sample of about SAMPLE characters are letters and spaces."""
    sample = text[:: len(text) // SAMPLE + 1]
    good = sum(map(str.isalpha, sample)) + sum(map(str.isspace, sample))
    if not sample.isascii():  # vowels of Hindi, Thai and Khmer are marks
        good += sum(unicodedata.category(character)[0] == "M" for character in sample)
    return good * 2 < len(sample)


def _without_html(text: str, counts: Counter[str]) -> str:
    tags = sum(1 for _, _ in zip(HTML_TAG.finditer(text), range(FEW_TAGS), strict=False))
    if tags < FEW_TAGS or len(text) > 2000 * len(HTML_TAG.findall(text)):  # prose that mentions a few tags
        return text
    counts["html_documents"] += 1
    return html.unescape(HTML_TAG.sub("", HTML_BREAK.sub("\n", _without_blocks(text))))


def _without_blocks(text: str) -> str:
    """Without scripts, styles, heads, navigation and comments. One without its end is no block, and its text stays.

    All ends are found first, so that the time is linear even if no block has one.
    """
    ends: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for end in HTML_END.finditer(text):
        ends[(end[1] or end[2]).lower()].append(end.span())
    pieces, position = [], 0
    for begin in HTML_BEGIN.finditer(text):
        kind = (begin[1] or begin[2]).lower()
        following = bisect_left(ends[kind], (begin.end(), 0))
        if begin.start() >= position and following < len(ends[kind]):
            pieces.append(text[position : begin.start()])
            position = ends[kind][following][1]
    return "\n".join([*pieces, text[position:]])


def _without_repeats(lines: list[str], counts: Counter[str]) -> list[str]:
    if len(set(lines)) > len(lines) - REPEATS + 1:
        return lines
    often = {line for line, times in Counter(lines).items() if times >= REPEATS and len(line) >= LONG_LINE}
    if not often:
        return lines
    seen: set[str] = set()
    kept = []
    for line in lines:
        if line not in often or line not in seen:
            kept.append(line)
            seen.add(line)
    counts["repeated_lines"] += len(lines) - len(kept)
    return kept
