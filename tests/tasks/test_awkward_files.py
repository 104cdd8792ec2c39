"""Every file of the collection in `awkward.py` gives what it must give, or the sentence that it must say."""

import re

import pytest

from glassbert.errors import GlassBertError
from glassbert.tasks import TaskData, read_table
from glassbert.text.corpus import Settings, read_documents
from tests.tasks.awkward import CORPORA, DOCUMENTS, TABLES, TASKS


def made(content):
    """The bytes of a file; the test is skipped if the package that writes such files is not installed."""
    try:
        return content if isinstance(content, bytes) else content()
    except ImportError as error:
        pytest.skip(f"{error.name} is not installed")


def test_the_collection_is_large_enough():
    assert len(TABLES) + len(TASKS) + len(CORPORA) >= 60
    for cases in (TABLES, TASKS):
        assert len({case.about for case in cases}) == len(cases)


@pytest.mark.parametrize("case", TABLES, ids=lambda case: case.about)
def test_tables(case, tmp_path):
    path = tmp_path / case.file
    path.write_bytes(made(case.content))
    if case.error:
        with pytest.raises(GlassBertError, match=case.error) as caught:
            read_table(path, **case.options)
        assert len(str(caught.value)) < 500 + len(str(path)) and "\n" not in str(caught.value)
        return
    table = read_table(path, **case.options)
    assert table.columns == case.columns
    assert len(table.lines) == len(next(iter(table.columns.values())))
    assert case.note in "; ".join(table.notes)


@pytest.mark.parametrize("case", TASKS, ids=lambda case: case.about)
def test_tasks(case, tmp_path):
    path = tmp_path / case.file
    path.write_bytes(case.content)
    if case.error:
        with pytest.raises(GlassBertError, match=case.error) as caught:
            TaskData.of(path, **case.options).encoded()
        assert not re.search(r"(.)\1{200}", str(caught.value).replace(str(path), ""))
        return
    data = TaskData.of(path, **case.options)
    assert data.kind == case.kind
    targets = data.encoded()
    if case.labels is not None:
        assert targets.labels.names == case.labels
    if case.values is not None:
        assert targets.values.tolist() == case.values


@pytest.mark.parametrize(("name", "content", "options"), [row[1:] for row in CORPORA], ids=[row[0] for row in CORPORA])
def test_corpora(name, content, options, tmp_path):
    path = tmp_path / name
    path.write_bytes(made(content))
    found = [text.strip() for text in read_documents([path], Settings(**options)) if text.strip()]
    assert found == DOCUMENTS
