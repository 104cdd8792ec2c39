"""Convert Markdown to plain text.

Front matter, code blocks, tables, images, comments and link targets are removed; headings, list items, quotes and link
texts are kept. Wrapped lines are joined: one paragraph per line.
"""

from __future__ import annotations

import re

FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n.*?\n\1[ \t]*(?:\n|\Z)", re.DOTALL)
FENCE = re.compile(r"^ {0,3}(?:>\s?)*(`{3,}|~{3,})")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
UNDERLINE = re.compile(r"^ {0,3}(?:=+|-+)\s*$")
RULE = re.compile(r"^ {0,3}(?:(?:\*\s*){3,}|(?:_\s*){3,}|(?:-\s*){3,})$")
LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?")
QUOTE = re.compile(r"^ {0,3}(?:>\s?)+")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s")
INDENTED = re.compile(r"^(?: {4}|\t)")
TABLE_RULE = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*$")
INLINE = (
    (re.compile(r"!\[[^\]]*\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\])"), ""),  # images
    (re.compile(r"\[([^\]]+)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\])"), r"\1"),  # links
    (re.compile(r"<https?://[^>\s]+>"), ""),
    (re.compile(r"</?[A-Za-z][^<>\n]*>"), ""),  # tags
    (re.compile(r"\[\^[^\]]+\]:?"), ""),  # footnote marks
    (re.compile(r"(`+)(.+?)\1"), r"\2"),
    (re.compile(r"(?<!\\)(\*{1,3}|~~)(?=\S)(.+?)(?<=[^\s\\])\1"), r"\2"),
    (re.compile(r"(?<!\w)(_{1,3})(?=\S)(.+?)(?<=\S)\1(?!\w)"), r"\2"),
    (re.compile(r"\\([!-/:-@\[-`{-~])"), r"\1"),
)


def plain_text(markdown: str) -> str:
    """Plain text with one paragraph per line."""
    text = FRONT_MATTER.sub("", markdown, count=1)
    text = _without_comments(text)
    paragraphs: list[str] = []
    open_lines: list[str] = []

    def close() -> None:
        if open_lines:
            paragraphs.append(_without_marks(" ".join(open_lines)))
            open_lines.clear()

    fence = ""
    table = False
    lines = text.split("\n")
    for number, line in enumerate(lines):
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
            continue
        if mark:
            close()
            fence = mark[1]
            continue
        following = lines[number + 1] if number + 1 < len(lines) else ""
        table = "|" in line and (table or bool(TABLE_RULE.match(line)) or bool(TABLE_RULE.match(following)))
        heading = HEADING.match(line)
        ends_here = not line.strip() or RULE.match(line) or UNDERLINE.match(line) or table or DEFINITION.match(line)
        if ends_here or (INDENTED.match(line) and not open_lines and not LIST_ITEM.match(line)):
            close()
        elif heading:
            close()
            paragraphs.append(_without_marks(heading[1]))
        else:
            line = QUOTE.sub("", line)
            if LIST_ITEM.match(line):
                close()
            open_lines.append(LIST_ITEM.sub("", line).strip())
    close()
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)


def _without_comments(text: str) -> str:
    """Without <!-- ... -->. The time is linear also if many of them have no end."""
    pieces, position = [], 0
    while (begin := text.find("<!--", position)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        pieces.append(text[position:begin])
        position = end + 3
    return "".join([*pieces, text[position:]])


def _without_marks(text: str) -> str:
    for pattern, kept in INLINE:
        text = pattern.sub(kept, text)
    return text.strip()
