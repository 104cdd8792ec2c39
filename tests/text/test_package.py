"""The public names of `glassbert.text`, and its lazy imports."""

import subprocess
import sys

import pytest

import glassbert.text


@pytest.mark.parametrize("name", glassbert.text.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(glassbert.text, name).__name__ == name


def test_an_unknown_name_raises():
    with pytest.raises(AttributeError, match="has no 'Nothing'"):
        _ = glassbert.text.Nothing


def test_importing_the_package_loads_no_module():
    code = (
        "import sys, glassbert.text; print([n for n in sys.modules if n.startswith(('tokenizers', 'glassbert.text.'))])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
