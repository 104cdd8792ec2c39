"""All lessons as Jupyter notebooks and as static pages, with their results and without an error."""

import pytest

from glassbert.learn.course import LESSONS, export

pytestmark = pytest.mark.docs


@pytest.mark.parametrize("kind", ["ipynb", "html"])
def test_all_lessons_are_exported(kind, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("marimo")
    written = export(tmp_path, kind)
    assert len(written) == len(LESSONS) == 18 and all(path.suffix == f".{kind}" for path in written)
    for path in written:
        assert path.stat().st_size > 10_000
        if kind == "ipynb":
            notebook = nbformat.read(path, 4)
            nbformat.validate(notebook)
            outputs = [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]
            assert len(outputs) >= 10 and not [one for one in outputs if one.output_type == "error"], path.name
