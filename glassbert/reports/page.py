"""`Page`: a report as one HTML file, with its styles and figures included."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path

from glassbert.files import atomic_write
from glassbert.reports.drawing import css_variables
from glassbert.reports.section import Section, inline

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="GlassBERT {version}">
<title>{tab}</title>
<style>
{colours}
{style}
</style>
</head>
<body>
<header>
<p class="kicker">GlassBERT</p>
<h1>{title}</h1>
{subtitle}{contents}</header>
<main>
{body}
</main>
<footer>{footer}</footer>
</body>
</html>
"""
# A page runs no script and fetches nothing: its styles are inline, its images are data.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
MIN_HEADINGS = 4  # for a table of contents


class Page(Section):
    """A report: add content with the methods of `Section`, then `write` it."""

    def __init__(self, title: str, subtitle: str = "", footer: str = ""):
        super().__init__()
        self.title, self.subtitle, self.footer = title, subtitle, footer

    def render(self) -> str:
        """The whole page as HTML."""
        from glassbert import __version__

        return TEMPLATE.format(
            version=__version__,
            policy=POLICY,
            tab=escape(self.title),
            colours=css_variables(),
            style=files("glassbert.reports").joinpath("style.css").read_text(encoding="utf-8").strip(),
            title=inline(self.title),
            subtitle=f'<p class="subtitle">{inline(self.subtitle)}</p>\n' if self.subtitle else "",
            contents=self._contents(),
            body=self.body(),
            footer=inline(f"{self.footer} " if self.footer else "") + f"Written by GlassBERT {__version__}.",
        )

    def write(self, path: str | Path) -> Path:
        """Write the page to a file and return its path."""
        path = Path(path)
        with atomic_write(path) as file:
            file.write(self.render())
        return path

    def _contents(self) -> str:
        entries = self._state.contents
        if len(entries) < MIN_HEADINGS:
            return ""
        links = "".join(f'<a href="#{anchor}">{inline(text)}</a>' for anchor, text in entries)
        return f'<nav aria-label="Contents">{links}</nav>\n'
