"""Tests against PyTorch and transformers: marked here, and looked at only by `pytest -m parity`."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Do not even import these files otherwise: they need packages that `make test` does not install."""
    return None if config.option.markexpr == "parity" else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; the hook is handed those of all folders."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("parity")
