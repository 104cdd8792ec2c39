"""The names of the text room."""

import subprocess
import sys

import pytest

import glassbert.text


@pytest.mark.parametrize("name", glassbert.text.__all__)
def test_every_name_is_there(name):
    assert getattr(glassbert.text, name).__name__ == name


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no 'Nothing'"):
        _ = glassbert.text.Nothing


def test_entering_loads_nothing():
    code = (
        "import sys, glassbert.text; print([n for n in sys.modules if n.startswith(('tokenizers', 'glassbert.text.'))])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "[]"
