"""`Section`: the elements of a page, appended one after the other.

All text is escaped, so HTML in a corpus cannot change the page. Only `Html` strings are inserted as markup. In running
text, `backticks` mark code.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from glassbert.errors import InputError
from glassbert.reports import figures
from glassbert.reports.numbers import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Each level has a word and a symbol, because colour alone is not accessible to everyone.
LEVELS = {"problem": ("✕", "Problem"), "warning": ("!", "Warning"), "note": ("i", "Note"), "good": ("✓", "Good")}
NUMERIC = re.compile(r"[-+−±<>≈~ ]*\d[\d.,]*(e[-+]?\d+)?( ?[±–] ?[\d.,]+)?( ?(%|×|[kMGT]?B?|ms|s|min|h))?")


UNIT = re.compile(r"(?<=\d) (?=%)")
LONG = 60  # characters: a cell with more is running text


class Html(str):
    """Markup that is inserted without escaping. Never make one from user text."""


class PageState:
    """State shared by the sections of a page: numbers of figures and headings, and the table of contents."""

    def __init__(self) -> None:
        self.figures = itertools.count(1)
        self.headings = itertools.count(1)
        self.contents: list[tuple[str, str]] = []
        self.missing_plots_reported = False


class Section:
    """A part of a page; every method appends one element."""

    def __init__(self, state: PageState | None = None):
        self._parts: list[str] = []
        self._state = state or PageState()

    def heading(self, text: str, level: int = 2) -> None:
        """A heading; those of level 2 are in the table of contents."""
        anchor = f"section-{next(self._state.headings)}"
        if level == 2:
            self._state.contents.append((anchor, text))
        self._parts.append(f'<h{level} id="{anchor}">{inline(text)}</h{level}>')

    def text(self, paragraph: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{inline(paragraph)}</p>")

    def facts(self, facts: Iterable[Sequence[Any]]) -> None:
        """A row of cards: (label, value) or (label, value, note)."""
        cards = []
        for label, value, *note in facts:
            below = f'<dd class="note">{inline(str(note[0]))}</dd>' if note and note[0] else ""
            cards.append(f'<div class="fact"><dt>{inline(label)}</dt><dd class="value">{cell(value)}</dd>{below}</div>')
        self._parts.append(f'<dl class="facts">{"".join(cards)}</dl>')

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> None:
        """A table whose first column names the rows. Columns of numbers are right-aligned."""
        rows = [list(row) for row in rows]
        for row in rows:
            if len(row) != len(headers):
                raise InputError(f"a table with {len(headers)} headers got a row of {len(row)} cells: {row}")
        sides = [' class="number"' if is_numeric([row[i] for row in rows]) else "" for i in range(len(headers))]
        columns = zip(headers, sides, strict=True)
        head = "".join(f'<th scope="col"{_long(text, 24) or side}>{inline(text)}</th>' for text, side in columns)
        body = []
        for row in rows:
            tags = ['th scope="row"', *["td"] * (len(row) - 1)]
            parts = zip(tags, sides, row, strict=True)
            body.append(
                "".join(f"<{tag}{side or _long(value)}>{cell(value)}</{tag[:2]}>" for tag, side, value in parts)
            )
        title = f"<caption>{inline(caption)}</caption>" if caption else ""
        lines = "".join(f"<tr>{line}</tr>\n" for line in body)
        self._parts.append(
            '<div class="wide" tabindex="0" role="group" aria-label="table">'
            f"<table>{title}<thead><tr>{head}</tr></thead>\n<tbody>{lines}</tbody></table></div>"
        )

    def message(self, level: str, text: str, remedy: str = "", evidence: str = "", samples: Sequence[str] = ()) -> None:
        """A finding: what is wrong, the evidence with samples, and the remedy."""
        symbol, word = LEVELS[level]
        parts = [f'<p class="what"><b>{word}.</b> {inline(text)}</p>']
        if evidence:
            parts.append(f'<p class="evidence">{inline(evidence)}</p>')
        if samples:
            parts.append(f"<ul>{''.join(f'<li><q>{escape(sample)}</q></li>' for sample in samples)}</ul>")
        if remedy:
            parts.append(f'<p class="remedy"><b>What to do:</b> {inline(remedy)}</p>')
        mark = f'<span class="sign" aria-hidden="true">{symbol}</span>'
        self._parts.append(f'<div class="message {level}" role="note">{mark}<div>{"".join(parts)}</div></div>')

    def warning(self, text: str, remedy: str = "", evidence: str = "", samples: Sequence[str] = ()) -> None:
        self.message("warning", text, remedy, evidence, samples)

    def good(self, text: str) -> None:
        self.message("good", text)

    def figure(self, figure: Figure | Callable[[], Figure], caption: str, alt: str = "") -> None:
        """A figure. A function that returns one is called only if matplotlib is installed."""
        if not callable(figure):
            drawn = figure
        elif figures.available():
            drawn = figure()
        else:
            if not self._state.missing_plots_reported:
                self.message("note", f"The figures are left out: {figures.MISSING}")
                self._state.missing_plots_reported = True
            return
        svg = figures.to_svg(drawn, alt or caption, prefix=f"figure-{next(self._state.figures)}-")
        self._parts.append(
            f'<figure><div class="picture">{svg}</div><figcaption>{inline(caption)}</figcaption></figure>'
        )

    def tokens(
        self,
        tokens: Sequence[str],
        values: Sequence[float],
        *,
        write: Callable[[float], str] | None = None,
        marked: int | None = None,
        largest: float = 0.0,
    ) -> None:
        """Tokens shaded by their values, orange below zero, with each value below its token as text from `write`.

        Pieces such as "##ing" are joined to the piece before. `marked` is the index of a token to highlight. The
        darkest shade is the largest absolute value, or `largest` if that is larger.
        """
        top = max(largest, *(abs(value) for value in values)) or 1.0
        parts = []
        for index, (token, value) in enumerate(zip(tokens, values, strict=True)):
            classes = "token" + " joined" * token.startswith("##") + " marked" * (index == marked)
            hue = "36, 120, 196" if value >= 0 else "217, 102, 26"
            below = f"<small>{escape(write(value))}</small>" if write else ""
            shade = f"background: rgba({hue}, {0.7 * abs(value) / top:.3f})"
            parts.append(
                f'<span class="{classes}"><b style="{shade}">{escape(token.removeprefix("##"))}</b>{below}</span>'
            )
        self._parts.append(f'<p class="tokens">{"".join(parts)}</p>')

    def code(self, text: str) -> None:
        """A block of code."""
        self._parts.append(f'<pre tabindex="0"><code>{escape(text)}</code></pre>')

    @contextmanager
    def details(self, summary: str, open: bool = False) -> Iterator[Section]:
        """Context manager: a part that the reader can open and close."""
        inside = Section(self._state)
        yield inside
        attribute = " open" if open else ""
        self._parts.append(f"<details{attribute}><summary>{inline(summary)}</summary>{inside.body()}</details>")

    @contextmanager
    def columns(self, count: int = 2) -> Iterator[list[Section]]:
        """Context manager: parts side by side on a wide screen, below each other on a narrow one."""
        parts = [Section(self._state) for _ in range(count)]
        yield parts
        self._parts.append(f'<div class="columns">{"".join(f"<div>{part.body()}</div>" for part in parts)}</div>')

    def body(self) -> str:
        """The HTML of this section."""
        return "\n".join(self._parts)


def inline(text: str) -> str:
    """Escaped text in which `backticks` mark code; a percent sign stays beside its number."""
    if isinstance(text, Html):
        return text
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", UNIT.sub("\u00a0", escape(text)))


def _long(value: Any, limit: int = LONG) -> str:
    """The class of a cell with running text, which may be broken into lines and, if they are long, within words."""
    return ' class="long"' if isinstance(value, str) and not isinstance(value, Html) and len(value) > limit else ""


def cell(value: Any) -> str:
    """A table cell: text escaped, numbers formatted by `number`."""
    if isinstance(value, Html):
        return value
    return UNIT.sub("\u00a0", escape(value if isinstance(value, str) else number(value)))


def is_numeric(column: Sequence[Any]) -> bool:
    """Whether all values of a column are numbers or strings that look like numbers."""
    words = [value for value in column if isinstance(value, str) and value not in ("", "–")]
    return len(column) > 0 and all(not isinstance(word, Html) and NUMERIC.fullmatch(word) for word in words)
