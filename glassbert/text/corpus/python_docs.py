"""The source `python:`: English text from the documentation of the Python installation.

Python contains more than 150,000 words of documentation: the help topics of `help("topics")`, and the docstrings
and long comments of the standard library. They are read at run time; nothing is downloaded. Modules are parsed, not
imported. Each topic and each module is a document.

What is not prose is left out: prompts and their output, signatures, tables, lists of options, indented code, and the
markup of reStructuredText.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path

SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "__pycache__"}
COMMENT = re.compile(r"(?:^[ \t]*#[^\n]*\n){2,}", re.MULTILINE)
PARAGRAPH = re.compile(r"\n[ \t]*\n")
RULED = re.compile(r"[-=~^*#+._|\s]{3,}")
BULLET = re.compile(r"^(?:[-*•+]|\(?\d+[.)]|[a-z]\))\s+")
FIELD = re.compile(r"^(?::[\w ]+:|@\w+|\.\. )")
ROLE = re.compile(r":(?:[a-z]+:)?[a-z]+:`~?([^`<]+?)(?:\s*<[^`>]*>)?`")
LINK = re.compile(r"`([^`<]+?)\s*<[^`>]+>`_*")
QUOTED = re.compile(r"``?([^`\n]+?)'?`?`_*")
EMPHASIS = re.compile(r"(?<!\w)(\*{1,2})(?=\S)([^*\n]+?)(?<=\S)\1(?!\w)")
SIGNATURE = re.compile(r"^[\w.*\[\], ]*\w\(.*?\)\s*(?:->|--|:|=)[^.]*?(?:\s|$)")
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*[a-z]|\b[aAI]\b")
SYMBOL = re.compile(r"[=<>{}\[\]|\\_@#$%^~/+]|\(\)")
MIN_SENTENCE_WORDS = 6
MIN_DOCUMENT_WORDS = 40


def python_documents() -> Iterator[str]:
    """The documents, one paragraph per line: help topics, built-in modules, other modules, each sorted by name."""
    yield from _documents()


@cache
def _documents() -> tuple[str, ...]:
    """Cached: two megabytes that take seconds to read, and a build reads them twice."""
    return tuple(_read_all())


def _read_all() -> Iterator[str]:
    seen: set[str] = set()
    for texts in chain(_topics(), _builtins(), _modules()):
        paragraphs = []
        for text in texts:
            for paragraph in prose(text):
                if paragraph not in seen:  # many methods inherit their docstring
                    seen.add(paragraph)
                    paragraphs.append(paragraph)
        document = "\n".join(paragraphs)
        if len(document.split()) >= MIN_DOCUMENT_WORDS:
            yield document


def _topics() -> Iterator[list[str]]:
    """The help topics: a dictionary of strings in a module of the standard library."""
    spec = importlib.util.find_spec("pydoc_data.topics")
    if spec is None or not spec.origin or not Path(spec.origin).exists():
        return
    for node in ast.walk(_parsed(Path(spec.origin).read_bytes())):
        if isinstance(node, ast.Dict):
            topics = {ast.literal_eval(key): value for key, value in zip(node.keys, node.values, strict=True) if key}
            for name in sorted(topics):
                yield [ast.literal_eval(topics[name])]


def _modules() -> Iterator[list[str]]:
    root = Path(sysconfig.get_path("stdlib"))
    paths = (path for path in root.rglob("*.py") if not SKIPPED_FOLDERS & set(path.relative_to(root).parts))
    for path in sorted(paths, key=lambda path: path.relative_to(root).as_posix()):
        with suppress(OSError):
            source = path.read_bytes()
            yield [text for _, text in sorted([*_docstrings(_parsed(source)), *_comments(source)])]


def _builtins() -> Iterator[list[str]]:
    """Built-in modules have no source to parse; they are imported, which runs no Python code."""
    for name in sorted(sys.builtin_module_names):
        module = importlib.import_module(name)
        owners = [module, *(value for _, value in sorted(vars(module).items()) if isinstance(value, type))]
        members = [member for owner in owners for _, member in sorted(vars(owner).items())]
        yield [text for item in (*owners, *members) if isinstance(text := getattr(item, "__doc__", None), str)]


def _parsed(source: bytes) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError):  # the library contains samples of invalid source
        return ast.Module([], [])


def _docstrings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Docstrings with their line. Only statements are visited, because only they contain definitions."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node, clean=True)
        if text:
            yield getattr(node, "lineno", 0), text
    for part in ("body", "orelse", "handlers", "finalbody"):
        for statement in getattr(node, part, ()):
            if hasattr(statement, "body"):
                yield from _docstrings(statement)


def _comments(source: bytes) -> Iterator[tuple[int, str]]:
    """Comments of several lines, with their first line."""
    text = source.decode(errors="replace")
    for block in COMMENT.finditer(text):
        lines = (line.strip().lstrip("#").removeprefix(" ") for line in block[0].split("\n"))
        yield text.count("\n", 0, block.start()) + 1, "\n".join(lines)


# ---- prose -----------------------------------------------------------------------------------------------------------


def prose(text: str) -> Iterator[str]:
    """The English paragraphs of a docstring or topic, unwrapped and without markup."""
    code_follows = False
    for paragraph in PARAGRAPH.split(inspect.cleandoc(text.expandtabs())):
        lines = [line for line in paragraph.split("\n") if line.strip() and not RULED.fullmatch(line)]
        if not lines:
            continue
        indent = min(len(line) - len(line.lstrip()) for line in lines)
        if code_follows and indent > 0:
            continue
        code_follows = paragraph.rstrip().endswith("::")
        for item in _items(lines):
            sentence = _plain(item)
            if is_english_prose(sentence):
                yield sentence


def _items(lines: list[str]) -> Iterator[str]:
    """A paragraph as one text, a list as one text per item. Prompts, fields and tables end the text before them."""
    if any(line.lstrip().startswith((">>>", "...", "$ ", "+-", "|")) for line in lines):
        lines = list(_before_prompt(lines))
    if sum("  " in line.strip().replace(".  ", ". ") for line in lines) * 2 > len(lines):  # columns
        return
    gathered: list[str] = []
    for line in lines:
        stripped = line.strip()
        if BULLET.match(stripped) or FIELD.match(stripped):
            if gathered:
                yield " ".join(gathered)
            gathered = [] if FIELD.match(stripped) else [BULLET.sub("", stripped)]
        else:
            gathered.append(stripped)
    if gathered:
        yield " ".join(gathered)


def _before_prompt(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.lstrip().startswith((">>>", "...", "$ ", "+-", "|")):
            return
        yield line


def _plain(text: str) -> str:
    text = ROLE.sub(r"\1", text)
    text = LINK.sub(r"\1", text)
    text = QUOTED.sub(r"\1", text)
    text = EMPHASIS.sub(r"\2", text)
    text = SIGNATURE.sub("", text) if SIGNATURE.match(text) else text
    text = " ".join(text.split())
    return text.removesuffix("::") + ":" if text.endswith("::") else text


def is_english_prose(text: str) -> bool:
    """Whether a text has a minimum length, starts and ends like a sentence, and has more words than symbols."""
    words = WORD.findall(text)
    tokens = text.split()
    if len(words) < MIN_SENTENCE_WORDS or not tokens:
        return False
    if not (text[0].isupper() or text[0] in "\"'“("):
        return False
    letters = sum(map(len, words))
    if len(SYMBOL.findall(text)) * 12 > len(tokens) * 2 or letters * 10 < len(text.replace(" ", "")) * 7:
        return False
    return text[-1] in ".!?:)\"'"
