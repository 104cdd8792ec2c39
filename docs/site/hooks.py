"""What the documentation needs besides its Markdown files: generated pages, formulas, and links to files outside docs/.

MkDocs calls the functions named on_...; `make docs` runs it.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs.site import commands, formulas, lessons, settings  # noqa: E402

LINK = re.compile(r"(\]\()([^)\s:#]+)(#[^)\s]*)?(\))")
UNIT = re.compile(r"(?<=\| )([\d.,]+) (?=(?:k|M|G|%|x|ms|s|MB|MiB|GB|GiB) \|)")  # a cell of a number and its unit
LINE = re.compile(r"#L(\d+)")

SOURCE = HtmlFormatter(cssclass="highlight source", linenos="inline", lineanchors="L", anchorlinenos=True)
NOT_SEARCHED = "---\nsearch:\n  exclude: true\nhide: [toc]\n---\n"

# Files of the repository that are pages of the documentation.
ROOT_PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
# Pages of the navigation that may be missing.
OPTIONAL = ("data-files.md", "onnx.md", "reliability.md")


def on_config(config: Any) -> Any:
    config.markdown_extensions.append(formulas.FormulaExtension())
    config.nav = _without_missing(config.nav, Path(config.docs_dir))
    return config


def _without_missing(entries: list[Any], folder: Path) -> list[Any]:
    """The navigation without the optional pages that are not there."""
    kept = []
    for entry in entries:
        for title, target in entry.items() if isinstance(entry, dict) else [("", entry)]:
            if isinstance(target, list):
                kept.append({title: _without_missing(target, folder)})
            elif target not in OPTIONAL or (folder / target).exists():
                kept.append(entry)
    return kept


def on_files(files: Any, config: Any) -> Any:
    pages = {"reference/commands.md": commands.page(), "reference/settings.md": settings.page(), **lessons.pages()}
    for source, target in ROOT_PAGES.items():
        pages[target] = (ROOT / source).read_text(encoding="utf-8")
    for path in sorted(_linked_sources(files)):
        shown = highlight((ROOT / path).read_text(encoding="utf-8"), PythonLexer(), SOURCE)
        pages[_source_page(path)] = f"{NOT_SEARCHED}# {path}\n\n{shown}\n"
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    pages["license.md"] = f"{NOT_SEARCHED}# License\n\n```text\n{licence}\n```\n"
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    return files


def _linked_sources(files: Any) -> set[str]:
    """Python files of the repository that pages link to."""
    found = {"minibert.py"}
    for file in files.documentation_pages():
        for match in LINK.finditer(file.content_string):
            target = _from_root(file.src_uri, match[2])
            if target.endswith(".py") and not target.startswith("docs/") and (ROOT / target).is_file():
                found.add(target)
    return found


def _from_root(page: str, target: str) -> str:
    """The path of a link's target in the repository."""
    folder = "" if page in ROOT_PAGES.values() else posixpath.join("docs", posixpath.dirname(page))
    return posixpath.normpath(posixpath.join(folder, target))


def _source_page(path: str) -> str:
    return f"source/{path.removesuffix('.py')}.md"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    uri = page.file.src_uri
    if uri.startswith("derivations/"):
        chapters = {int(f.src_uri.split("/")[1][:2]): posixpath.basename(f.src_uri) for f in files if _is_chapter(f)}
        markdown = formulas.link_references(markdown, chapters)
    if uri.startswith("source/"):
        return markdown
    markdown = UNIT.sub("\\1\u00a0", markdown)
    return LINK.sub(lambda match: _mended(match, uri), markdown)


def _is_chapter(file: Any) -> bool:
    return re.match(r"derivations/\d\d-", file.src_uri) is not None


def _mended(match: re.Match[str], page: str) -> str:
    """A link that leads out of docs/: to the page that shows the file."""
    target = _from_root(page, match[2])
    anchor = match[3] or ""
    if target in ROOT_PAGES:
        uri = ROOT_PAGES[target]
    elif target.startswith("docs/"):
        if page not in ROOT_PAGES.values():
            return match[0]
        uri = target.removeprefix("docs/")
        uri = "derivations/README.md" if uri == "derivations" else uri
    elif target.endswith(".py"):
        uri, anchor = _source_page(target), LINE.sub(r"#L-\1", anchor)
    elif target in ("README.md", "LICENSE"):
        uri = "index.md" if target == "README.md" else "license.md"
    else:
        return match[0]
    return f"{match[1]}{posixpath.relpath(uri, posixpath.dirname(page) or '.')}{anchor}{match[4]}"


def on_post_build(config: Any) -> None:
    """The links of minibert.html, which is copied as it is, lead to pages of the site."""
    path = Path(config.site_dir) / "minibert.html"
    page = path.read_text(encoding="utf-8")
    page = page.replace('href="../minibert.py"', 'href="source/minibert.html"')
    page = page.replace('href="derivations/README.md"', 'href="derivations/index.html"')
    page = re.sub(r'href="((?:derivations/)?[\w-]+)\.md((?:#[^"]*)?)"', r'href="\1.html\2"', page)
    path.write_text(page, encoding="utf-8")
