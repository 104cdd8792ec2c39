"""The lessons of the course as pages: text, code and the results of a real run. Controls show where they stand.

`glassbert learn export --format ipynb` runs the lessons; a page is made from each notebook. The notebooks are kept in
build/lessons and made again when a file of the package is newer.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from docs.site.formulas import mathml
from glassbert.learn.course import LESSONS, Lesson, export_lesson

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "lessons"
DISPLAYED = re.compile(r"^\s*\$\$(.+?)\$\$\s*$", re.M)  # on one line, as notebooks have it
TAGS = re.compile(r"<[^>]+>")


def uri(lesson: Lesson) -> str:
    return f"learn/lesson-{lesson.number:02}.md"


def pages() -> dict[str, str]:
    """The page of every lesson by its address."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        notebooks = list(threads.map(notebook_of, LESSONS))
    return {uri(lesson): page(lesson, notebook) for lesson, notebook in zip(LESSONS, notebooks, strict=True)}


def notebook_of(lesson: Lesson) -> dict[str, Any]:
    """The notebook of a lesson with its results."""
    path = KEPT / f"{lesson.path.stem}.ipynb"
    newest = max(file.stat().st_mtime for file in (ROOT / "glassbert").rglob("*.py"))
    if not path.exists() or path.stat().st_mtime < newest:
        KEPT.mkdir(parents=True, exist_ok=True)
        path = export_lesson(lesson, KEPT, "ipynb")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if output["output_type"] == "error":
                path.unlink()
                raise RuntimeError(f"lesson {lesson.number} ends in an error: {output.get('evalue')}")
    return notebook


def page(lesson: Lesson, notebook: dict[str, Any]) -> str:
    """A notebook as Markdown."""
    note = (
        '!!! note "This page shows one run"\n    In the notebook you move the controls and write the functions '
        f"yourself: `glassbert learn {lesson.number}`. [All lessons](../learn.md#lessons)."
    )
    parts = list(_cells(notebook))
    return "\n\n".join([parts[0], note, *parts[1:]]) + "\n"


def _cells(notebook: dict[str, Any]) -> Iterator[str]:
    """Markdown of every cell; the imports of the first one come last, where nobody stumbles over them."""
    late = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            yield _formulas(source)
            continue
        outputs = [_output(output["data"]) for output in cell.get("outputs", ()) if output.get("data")]
        code = f"```python\n{source}\n```"
        if not cell["metadata"].get("marimo", {}).get("config", {}).get("hide_code"):
            yield code
            yield from outputs
        elif outputs:
            yield from outputs
            yield _folded("Code of this cell", code)
        elif source:
            late.append(_folded("Imports", code))
    yield from late


def _folded(title: str, code: str) -> str:
    return f'<details class="lesson-code" markdown="1"><summary>{title}</summary>\n\n{code}\n\n</details>'


def _formulas(text: str) -> str:
    """Displayed formulas on lines of their own, as the other pages have them."""
    return DISPLAYED.sub(lambda match: f"\n$$\n{match[1].strip()}\n$$\n", text)


def _output(data: dict[str, Any]) -> str:
    text = data.get("text/markdown") or data.get("text/html") or data.get("text/plain", "")
    text = "".join(text) if isinstance(text, list) else text
    if text.startswith("&lt;marimo"):  # a control, which marimo stores escaped
        text = html.unescape(text)
    elif "text/markdown" in data:
        return _formulas(text)
    shown = Shown()
    shown.feed(text)
    shown.close()
    return f'<div class="lesson-output" markdown="0">{"".join(shown.parts)}</div>'


class Shown(HTMLParser):
    """HTML of a result, with the elements of marimo, which need its scripts, as elements that every browser has."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self._formula: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "marimo-tex":
            self._formula = []
        elif tag == "marimo-accordion":
            titles = _data(attrs, "labels")
            self.parts.append(f"<details><summary>{_words(titles[0])}</summary>")
        elif tag.startswith("marimo-"):
            self.parts.append(CONTROLS.get(tag.removeprefix("marimo-"), lambda attrs: "")(attrs))
        else:
            self.parts.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "marimo-tex":
            formula = html.unescape("".join(self._formula or ()))
            self.parts.append(mathml(re.sub(r"^\|\|[(\[]|\|\|[)\]]$", "", formula.strip()), False))
            self._formula = None
        elif tag == "marimo-accordion":
            self.parts.append("</details>")
        elif not tag.startswith("marimo-"):
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        (self.parts if self._formula is None else self._formula).append(data)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")


def _data(attrs: list[tuple[str, str | None]], name: str) -> Any:
    """The value of data-NAME, which is JSON."""
    found = dict(attrs).get(f"data-{name}")
    return None if found is None else json.loads(html.unescape(found))


def _words(label: str) -> str:
    """A label without its markup."""
    return html.escape(html.unescape(TAGS.sub("", label or "")).strip())


def _slider(attrs: list[tuple[str, str | None]]) -> str:
    low, high, step, value, steps = (_data(attrs, name) for name in ("start", "stop", "step", "initial-value", "steps"))
    shown = steps[int(value)] if steps else value
    shown = f"{shown:g}" if isinstance(shown, float) else shown
    range_ = f'<input type="range" min="{low}" max="{high}" step="{step or "any"}" value="{value}" disabled>'
    return f'<label class="lesson-control">{_words(_data(attrs, "label"))} {range_} <output>{shown}</output></label>'


def _radio(attrs: list[tuple[str, str | None]]) -> str:
    options = "".join(
        f'<label><input type="radio" disabled> {html.escape(option)}</label>' for option in _data(attrs, "options")
    )
    return f'<fieldset class="lesson-control"><legend>{_words(_data(attrs, "label"))}</legend>{options}</fieldset>'


def _dropdown(attrs: list[tuple[str, str | None]]) -> str:
    chosen = "".join(f"<option>{html.escape(value)}</option>" for value in _data(attrs, "initial-value") or ())
    return f'<label class="lesson-control">{_words(_data(attrs, "label"))} <select disabled>{chosen}</select></label>'


def _checkbox(attrs: list[tuple[str, str | None]]) -> str:
    checked = " checked" if _data(attrs, "initial-value") else ""
    label = _words(_data(attrs, "label"))
    return f'<label class="lesson-control"><input type="checkbox"{checked} disabled> {label}</label>'


def _button(attrs: list[tuple[str, str | None]]) -> str:
    return f'<button class="lesson-control" disabled>{_words(_data(attrs, "label"))}</button>'


CONTROLS = {"slider": _slider, "radio": _radio, "dropdown": _dropdown, "checkbox": _checkbox, "button": _button}
