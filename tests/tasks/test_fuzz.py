"""A small part of `python -m tests.fuzz_files`: damaged files and hostile strings give no traceback."""

from tests.fuzz_files import fuzz_files, fuzz_strings


def test_damaged_files(tmp_path):
    for kind, found, _ in fuzz_files(300, seed=1, failures=tmp_path / "failures"):
        assert not found["traceback"] and not found["no sentence"], (kind, found)


def test_hostile_strings():
    found = fuzz_strings(2_000, seed=1)
    assert not found["traceback"] and found["read"] > 1_000
