"""The Python blocks of docs/data-files.md are executed, and what their comments say is true."""

import re
from pathlib import Path

import pytest

from glassbert.reading.options import OPTIONS
from glassbert.tasks.reading import ENDINGS, FORMATS

PAGE = Path(__file__).parents[2] / "docs" / "data-files.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_blocks_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    table, data = names["table"], names["data"]
    assert table.columns["Preis"] == ["12.50", "1234.00"] and table.columns["Sorte"] == ["007", "01"]
    assert (data.kind, data.targets) == ("regression", [4.5, 1.0, 3.5])
    assert "Windows-1252" in capsys.readouterr().out


def test_every_option_format_and_ending_is_described():
    for name in OPTIONS:
        assert f"`--{name}" in TEXT
    for name in (*FORMATS, *ENDINGS):
        assert f"`{name}`" in TEXT or name in ("minimal-pairs", ".xls"), name
