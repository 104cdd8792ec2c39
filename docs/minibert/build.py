"""Make docs/minibert.html: prose on the left, the lines of minibert.py on the right.

    python docs/minibert/build.py

The prose stands in the Markdown files of this folder. A heading is followed by a comment that names the pieces of
minibert.py beside it: a function, a class, a method as `Class.method`, or the beginning of a `# ----` line. The lines
themselves come from minibert.py, every line exactly once and in order.
"""

from __future__ import annotations

import ast
import html
import io
import keyword
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
SOURCE = FOLDER.parents[1] / "minibert.py"
PAGE = FOLDER.parent / "minibert.html"
HEADING = re.compile(r"^(#{1,2}) (.+)\n<!-- (.+) -->\n", re.M)


class Section(NamedTuple):
    level: int
    title: str
    pieces: list[str]
    prose: str
    start: int  # first and last line, counted from 1
    stop: int


def pieces_of(source: str) -> dict[str, int]:
    """The name of every piece and its first line."""
    starts = {"docstring": 1}
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            starts.setdefault("imports", node.lineno)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            starts[node.name] = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            for part in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(part, ast.FunctionDef):
                    starts[f"{node.name}.{part.name}"] = part.lineno
    for number, line in enumerate(lines, 1):
        if line.startswith("# ---- "):
            starts[re.split(r":| -", line.removeprefix("# ---- "))[0]] = number
    return dict(sorted(starts.items(), key=lambda item: item[1]))


def sections() -> list[Section]:
    """The prose of all files with its lines of code; an error if a piece is missing, repeated or out of order."""
    source = SOURCE.read_text(encoding="utf-8")
    starts = pieces_of(source)
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")))
    found = list(HEADING.finditer(text))
    named = [name.strip() for match in found for name in match[3].split(",")]
    if named != list(starts):
        wrong = next((a, b) for a, b in zip([*named, None], [*starts, None], strict=False) if a != b)
        raise ValueError(f"the prose names {wrong[0]!r} where minibert.py has {wrong[1]!r}")
    result = []
    ends = [match.start() for match in found[1:]] + [len(text)]
    firsts = [starts[match[3].split(",")[0].strip()] for match in found]
    for match, end, first, after in zip(found, ends, firsts, [*firsts[1:], len(source.splitlines()) + 1], strict=True):
        pieces = [name.strip() for name in match[3].split(",")]
        result.append(Section(len(match[1]), match[2], pieces, text[match.end() : end].strip(), first, after - 1))
    return result


def highlighted(source: str) -> list[str]:
    """The lines of a program as HTML: comments, strings, keywords, numbers and defined names have classes."""
    marks: dict[int, list[tuple[int, int, str]]] = {}
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = {tokenize.COMMENT: "c", tokenize.STRING: "s", tokenize.NUMBER: "n"}.get(token.type)
        if token.type == tokenize.NAME:
            kind = "k" if keyword.iskeyword(token.string) else "d" if before in ("def", "class") else None
        before = token.string
        if kind:
            (row, start), (last_row, end) = token.start, token.end
            for line in range(row, last_row + 1):
                marks.setdefault(line, []).append(
                    (start if line == row else 0, end if line == last_row else 10_000, kind)
                )
    result = []
    for number, line in enumerate(source.splitlines(), 1):
        done, parts = 0, []
        for start, end, kind in marks.get(number, []):
            parts += [html.escape(line[done:start]), f'<i class="{kind}">{html.escape(line[start:end])}</i>']
            done = min(end, len(line))
        result.append("".join(parts) + html.escape(line[done:]))
    return result


def inline(text: str) -> str:
    """Code, emphasis and links of Markdown as HTML."""
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r'<a href="\2">\1</a>', text)


def anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def page() -> str:
    source = SOURCE.read_text(encoding="utf-8")
    lines, plain = highlighted(source), source.splitlines()
    parts, contents = [], []
    for section in sections():
        stop = section.stop
        while not plain[stop - 1].strip():
            stop -= 1
        code = []
        for number in range(section.start, stop + 1):
            indent = len(plain[number - 1]) - len(plain[number - 1].lstrip()) + 2
            code.append(
                f'<span class="line" id="L{number}"><a href="#L{number}" class="number" aria-label="line {number}">'
                f'{number}</a><span class="text" style="--in:{indent}ch">{lines[number - 1]}</span></span>'
            )
        paragraphs = "".join(f"<p>{inline(part)}</p>" for part in section.prose.split("\n\n"))
        heading = f"<h{section.level}>{html.escape(section.title)}</h{section.level}>"
        parts.append(
            f'<section id="{anchor(section.title)}"><div class="prose">{heading}{paragraphs}'
            f'</div><pre class="code" role="group" aria-label="lines {section.start} to {stop} of minibert.py"><code>'
            f"{''.join(code)}</code></pre></section>"
        )
        if section.level == 1:
            contents.append(f'<a href="#{anchor(section.title)}">{html.escape(section.title)}</a>')
    template = (FOLDER / "page.html").read_text(encoding="utf-8")
    return template.replace("CONTENTS", "".join(contents[1:])).replace("SECTIONS", "\n".join(parts))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
