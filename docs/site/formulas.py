"""Formulas as MathML: `$x$` in a line, and `$$` on lines of their own around a displayed one.

MathML is drawn by the browser itself, so the pages need no script and no fonts for it. A displayed formula with
\\tag{4.6} has the address #f-4-6, and "(4.6)" in the text of a chapter leads there.
"""

from __future__ import annotations

import re
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from math_core import LatexToMathML

DISPLAYED = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.M | re.S)
TAG = re.compile(r"\s*\\tag\{(\d+)\.(\d+)\}")
REFERENCE = re.compile(r"(?<![\w`])\((\d+)\.(\d+)\)")
CODE = re.compile(r"(```.*?```|`[^`\n]*`|^\$\$\n.*?\n\$\$$)", re.M | re.S)

_converter = LatexToMathML(fancy_error=False)


def mathml(formula: str, displayed: bool) -> str:
    return _converter.convert_with_local_state(formula, displaystyle=displayed)


def displayed(formula: str) -> str:
    """A displayed formula, with its number where it has one."""
    tag = TAG.search(formula)
    body = mathml(TAG.sub("", formula), True)
    if tag is None:
        return f'<div class="formula">{body}</div>'
    name = f"f-{tag[1]}-{tag[2]}"
    return f'<div class="formula" id="{name}">{body}<a href="#{name}">({tag[1]}.{tag[2]})</a></div>'


def link_references(page: str, chapters: dict[int, str]) -> str:
    """Make links of the numbers of formulas in the text; `chapters` has the file of each chapter."""

    def link(match: re.Match[str]) -> str:
        chapter, number = int(match[1]), match[2]
        return f"([{chapter}.{number}]({chapters[chapter]}#f-{chapter}-{number}))" if chapter in chapters else match[0]

    parts = CODE.split(page)
    return "".join(part if i % 2 else REFERENCE.sub(link, part) for i, part in enumerate(parts))


class _Displayed(Preprocessor):
    """Runs after code blocks have been taken out, and before MkDocs looks for anchors in HTML."""

    def run(self, lines: list[str]) -> list[str]:
        return DISPLAYED.sub(lambda match: f"\n{displayed(match[1])}\n", "\n".join(lines)).split("\n")


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Any, int, int]:
        return self.md.htmlStash.store(mathml(m[1], False)), m.start(0), m.end(0)


class FormulaExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(_Displayed(md), "displayed formulas", 23)
        md.inlinePatterns.register(_Inline(r"\$([^$\n]+)\$", md), "formulas", 185)
