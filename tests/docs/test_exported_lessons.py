"""Lessons as Jupyter notebooks and as marimo's pages. The documentation has all of them (test_site.py)."""

import pytest

from glassbert.learn.course import LESSONS, export_lesson

pytestmark = pytest.mark.docs


@pytest.mark.parametrize("number", [1, 6])
def test_a_notebook_of_jupyter_has_results_and_no_error(number, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("marimo")
    notebook = nbformat.read(export_lesson(LESSONS[number - 1], tmp_path, "ipynb"), 4)
    nbformat.validate(notebook)
    outputs = [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]
    assert len(outputs) >= 10 and not [one for one in outputs if one.output_type == "error"]


def test_a_page_of_marimo_has_results(tmp_path):
    pytest.importorskip("marimo")
    path = export_lesson(LESSONS[0], tmp_path, "html")
    assert path.suffix == ".html" and path.stat().st_size > 10_000
