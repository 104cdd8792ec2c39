"""The names that the package promises."""

import subprocess
import sys

import pytest

import glassbert


@pytest.mark.parametrize("name", glassbert.__all__)
def test_every_promised_name_is_there(name):
    assert getattr(glassbert, name) is not None


def test_an_unknown_name_is_told():
    with pytest.raises(AttributeError, match="no 'WordPeaceTokenizer'"):
        glassbert.WordPeaceTokenizer  # noqa: B018


def test_importing_the_package_loads_neither_tokenizers_nor_the_trainer():
    code = "import sys, glassbert; print([m for m in ('tokenizers', 'glassbert.training.trainer') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
