"""Section: the pieces a page is made of, appended one after the other.

Whatever comes in as text is escaped, so that a corpus full of HTML cannot change the page that describes it. The one
way around is `Html`, a string that says of itself that it is markup. In running text, `backticks` mean code.
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

# Each level has a word and a sign of its own: colour alone would not reach everyone.
LEVELS = {"problem": ("✕", "Problem"), "warning": ("!", "Warning"), "note": ("i", "Note"), "good": ("✓", "Good")}
NUMERIC = re.compile(r"[-+−±<>≈~ ]*\d[\d.,]*(e[-+]?\d+)?( ?[±–] ?[\d.,]+)?( ?(%|×|[kMGT]?B?|ms|s|min|h))?")


class Html(str):
    """Markup that goes into the page as it is. Never make one from a user's text."""


class Counter:
    """Numbers for what must be told apart in one file: figures and headings."""

    def __init__(self) -> None:
        self.figures = itertools.count(1)
        self.headings = itertools.count(1)
        self.contents: list[tuple[str, str]] = []
        self.missing_plots_told = False


class Section:
    """A part of a page; every method appends one piece to it."""

    def __init__(self, counter: Counter | None = None):
        self._parts: list[str] = []
        self._counter = counter or Counter()

    def heading(self, text: str, level: int = 2) -> None:
        """A heading; those of level 2 make up the table of contents."""
        anchor = f"section-{next(self._counter.headings)}"
        if level == 2:
            self._counter.contents.append((anchor, text))
        self._parts.append(f'<h{level} id="{anchor}">{inline(text)}</h{level}>')

    def text(self, paragraph: str) -> None:
        self._parts.append(f"<p>{inline(paragraph)}</p>")

    def facts(self, facts: Iterable[Sequence[Any]]) -> None:
        """A row of cards: (label, value) or (label, value, note)."""
        cards = []
        for label, value, *note in facts:
            below = f'<dd class="note">{inline(str(note[0]))}</dd>' if note and note[0] else ""
            cards.append(f'<div class="fact"><dt>{inline(label)}</dt><dd class="value">{cell(value)}</dd>{below}</div>')
        self._parts.append(f'<dl class="facts">{"".join(cards)}</dl>')

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> None:
        """A table whose first column names its rows. Columns of numbers stand right-aligned."""
        rows = [list(row) for row in rows]
        for row in rows:
            if len(row) != len(headers):
                raise InputError(f"a table with {len(headers)} headers cannot hold a row of {len(row)}: {row}")
        sides = [' class="number"' if is_numeric([row[i] for row in rows]) else "" for i in range(len(headers))]
        head = "".join(f'<th scope="col"{side}>{inline(text)}</th>' for text, side in zip(headers, sides, strict=True))
        body = []
        for row in rows:
            tags = ['th scope="row"', *["td"] * (len(row) - 1)]
            parts = zip(tags, sides, row, strict=True)
            body.append("".join(f"<{tag}{side}>{cell(value)}</{tag[:2]}>" for tag, side, value in parts))
        title = f"<caption>{inline(caption)}</caption>" if caption else ""
        lines = "".join(f"<tr>{line}</tr>\n" for line in body)
        self._parts.append(
            '<div class="wide" tabindex="0" role="group" aria-label="table">'
            f"<table>{title}<thead><tr>{head}</tr></thead>\n<tbody>{lines}</tbody></table></div>"
        )

    def compare(self, names: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> None:
        """Two or more things side by side: a row is (what, value of the first, value of the second, ...)."""
        self.table(["", *names], rows, caption)

    def message(self, level: str, text: str, remedy: str = "", evidence: str = "", samples: Sequence[str] = ()) -> None:
        """A finding: what is the matter, how we know (with samples of it), and what to do about it."""
        sign, word = LEVELS[level]
        parts = [f'<p class="what"><b>{word}.</b> {inline(text)}</p>']
        if evidence:
            parts.append(f'<p class="evidence">{inline(evidence)}</p>')
        if samples:
            parts.append(f"<ul>{''.join(f'<li><q>{escape(sample)}</q></li>' for sample in samples)}</ul>")
        if remedy:
            parts.append(f'<p class="remedy"><b>What to do:</b> {inline(remedy)}</p>')
        mark = f'<span class="sign" aria-hidden="true">{sign}</span>'
        self._parts.append(f'<div class="message {level}" role="note">{mark}<div>{"".join(parts)}</div></div>')

    def warning(self, text: str, remedy: str = "", evidence: str = "", samples: Sequence[str] = ()) -> None:
        self.message("warning", text, remedy, evidence, samples)

    def good(self, text: str) -> None:
        self.message("good", text)

    def figure(self, figure: Figure | Callable[[], Figure], caption: str, alt: str = "") -> None:
        """A picture. Given as a function it is drawn here, and only if matplotlib is installed."""
        if not callable(figure):
            drawn = figure
        elif figures.available():
            drawn = figure()
        else:
            if not self._counter.missing_plots_told:
                self.message("note", f"The pictures are left out: {figures.MISSING}")
                self._counter.missing_plots_told = True
            return
        svg = figures.to_svg(drawn, alt or caption, prefix=f"figure-{next(self._counter.figures)}-")
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
        """A text whose tokens are shaded by their values, orange below zero, each written underneath by `write`.

        Pieces such as "##ing" are joined to the piece before. `largest` is the value of the darkest shade, at least.
        """
        top = max(largest, *(abs(value) for value in values)) or 1.0
        parts = []
        for place, (token, value) in enumerate(zip(tokens, values, strict=True)):
            classes = "token" + " joined" * token.startswith("##") + " marked" * (place == marked)
            hue = "36, 120, 196" if value >= 0 else "217, 102, 26"
            below = f"<small>{escape(write(value))}</small>" if write else ""
            shade = f"background: rgba({hue}, {0.7 * abs(value) / top:.3f})"
            parts.append(
                f'<span class="{classes}"><b style="{shade}">{escape(token.removeprefix("##"))}</b>{below}</span>'
            )
        self._parts.append(f'<p class="tokens">{"".join(parts)}</p>')

    def code(self, text: str) -> None:
        self._parts.append(f'<pre tabindex="0"><code>{escape(text)}</code></pre>')

    def html(self, raw: str) -> None:
        """Markup as it is; for text use anything else."""
        self._parts.append(raw)

    @contextmanager
    def details(self, summary: str, open: bool = False) -> Iterator[Section]:
        """A part that opens on a click."""
        inside = Section(self._counter)
        yield inside
        state = " open" if open else ""
        self._parts.append(f"<details{state}><summary>{inline(summary)}</summary>{inside.body()}</details>")

    @contextmanager
    def columns(self, count: int = 2) -> Iterator[list[Section]]:
        """Parts side by side where the screen is wide enough, below each other where it is not."""
        parts = [Section(self._counter) for _ in range(count)]
        yield parts
        self._parts.append(f'<div class="columns">{"".join(f"<div>{part.body()}</div>" for part in parts)}</div>')

    def body(self) -> str:
        return "\n".join(self._parts)


def inline(text: str) -> str:
    """Escaped text in which `backticks` mark code."""
    if isinstance(text, Html):
        return text
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escape(text))


def cell(value: Any) -> str:
    if isinstance(value, Html):
        return value
    return escape(value if isinstance(value, str) else number(value))


def is_numeric(column: Sequence[Any]) -> bool:
    """Whether a column holds numbers, written out or not."""
    words = [value for value in column if isinstance(value, str) and value not in ("", "–")]
    return len(column) > 0 and all(not isinstance(word, Html) and NUMERIC.fullmatch(word) for word in words)
