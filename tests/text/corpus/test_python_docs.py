"""The documentation of this Python as a source: enough text, deterministic, and prose."""

from __future__ import annotations

import re
import sys

from glassbert.text.corpus import python_docs
from glassbert.text.corpus.python_docs import prose, python_documents


def test_what_is_prose() -> None:
    text = """Return the *larger* of two values, see :func:`min` and ``sorted``.

    larger(a, b) -> value

    For example::

        if a > b:
            return a

    It goes on here, and a list follows this paragraph:

    - the first item of the list is a whole sentence.
    - no

    >>> larger(1, 2)
    2

    :param a: the first value that should be compared.
    -------
    name        what it does
    other       what that does
    """
    assert list(prose(text)) == [
        "Return the larger of two values, see min and sorted.",
        "It goes on here, and a list follows this paragraph:",
    ]


def test_there_is_enough_and_it_reads_as_english() -> None:
    before = set(sys.modules)
    documents = list(python_documents())
    words = [word for document in documents for word in document.split()]
    assert len(documents) > 200 and len(words) > 150_000
    common = {"the", "of", "a", "to", "is", "and", "in", "that", "for", "if"}
    assert sum(word.lower() in common for word in words) > 0.18 * len(words)
    assert not any(re.search(r"^(>>>|\.\.\. |def |class .*:$)", document, re.MULTILINE) for document in documents)
    imported = set(sys.modules) - before - set(sys.builtin_module_names)
    assert not any(name in imported for name in ("turtle", "antigravity", "this", "tkinter", "idlelib"))


def test_it_is_the_same_every_time() -> None:
    again = python_docs._read_all()
    for document in list(python_documents())[:150]:
        assert next(again) == document
