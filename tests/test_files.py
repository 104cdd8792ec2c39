"""Atomic writing, leftovers of killed writers, and JSON that is read with limits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassbert import files
from glassbert.errors import GlassBertError, TextError
from glassbert.files import (
    CHECKSUMS,
    adding_files,
    atomic_write,
    find_changed,
    new_folder,
    numbers,
    read_checksums,
    read_json,
    remove_parts,
    write_checksums,
    write_json,
)

DEEP = b"[" * 200_000
KILLED = """
import os, sys
from glassbert.files import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write("half")
    file.flush()
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    """As in a process that has written nothing yet."""
    monkeypatch.setattr(files, "_CLEANED", set())


def test_the_file_of_a_killed_writer_is_removed_by_the_next(tmp_path):
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a.json")], cwd=root, check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".part")
    write_json(tmp_path / "b.json", {})
    assert [path.name for path in tmp_path.iterdir()] == ["b.json"]


def test_the_file_of_a_running_writer_stays(tmp_path):
    with atomic_write(tmp_path / "a.txt") as file:
        file.write("x")
        file.flush()
        files._CLEANED.clear()
        remove_parts(tmp_path)
    assert (tmp_path / "a.txt").read_text() == "x"


def test_files_of_others_stay(tmp_path):
    for name in (".film.part", "a.12345678.part", ".part"):
        (tmp_path / name).write_text("mine")
    write_json(tmp_path / "b.json", {})
    assert len(list(tmp_path.iterdir())) == 4


def test_numbers_that_json_does_not_have(tmp_path):
    content = {"a": [float("nan"), float("inf"), -float("inf"), 1.5], "b": {"c": "x"}, 3: "key"}
    write_json(tmp_path / "a.json", content, sealed=True)
    json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    found = numbers(read_json(tmp_path / "a.json"))
    assert str(found["a"]) == "[nan, inf, -inf, 1.5]" and found["b"] == {"c": "x"} and found["3"] == "key"


def test_half_of_a_surrogate_pair_is_written_and_read(tmp_path):
    write_json(tmp_path / "a.json", {"text": "\ud800 é"}, sealed=True)
    assert read_json(tmp_path / "a.json") == {"text": "\ud800 é"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", DEEP, b'{"a": ' + b"9" * 5_000 + b"}", b"null"])
def test_what_is_no_json_object_is_one_sentence(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(TextError, match=r"a\.json (is not JSON|must hold)") as caught:
        read_json(tmp_path / "a.json", TextError)
    assert "\n" not in str(caught.value)


def test_reading_is_bounded(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps({"a": "x" * 1_000}))
    with pytest.raises(GlassBertError, match="larger than the 100 bytes"):
        files.read_bytes(tmp_path / "a.json", limit=100)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GlassBertError, match="is not a file"):
        read_json(tmp_path / "pipe")
    with pytest.raises(GlassBertError, match="there is no file"):
        read_json(tmp_path / "nowhere")


def test_a_changed_seal_is_noticed_and_a_removed_one_is_not_needed(tmp_path):
    write_json(tmp_path / "a.json", {"rate": 0.25}, sealed=True)
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(text.replace("0.25", "0.75"))
    with pytest.raises(GlassBertError, match=r"a\.json has changed since it was written.*glassbert verify"):
        read_json(tmp_path / "a.json")
    assert read_json(tmp_path / "a.json", verify=False) == {"rate": 0.75}
    (tmp_path / "a.json").write_text('{"rate": 0.75}')
    assert read_json(tmp_path / "a.json") == {"rate": 0.75}


def test_a_seal_under_another_name_is_noticed(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"steps": 3}, sealed=True)
    path.write_text(path.read_text().replace('"checksum"', '"checksul"'))  # one bit
    with pytest.raises(GlassBertError, match="has changed since it was written"):
        read_json(path)


def test_a_new_folder_is_whole_or_absent_and_removes_what_killed_processes_left(tmp_path):
    target = tmp_path / "published"
    left = tmp_path / ".published.abcdefgh.part"
    left.mkdir()
    (left / "half").write_text("x")
    with new_folder(target) as folder:
        (folder / "file").write_text("whole")
        assert not target.exists() and not left.exists()
    assert (target / "file").read_text() == "whole" and [path.name for path in tmp_path.iterdir()] == ["published"]
    with pytest.raises(GlassBertError, match="exists and is not empty"), new_folder(target):
        pass
    with pytest.raises(ValueError), new_folder(tmp_path / "other") as folder:
        raise ValueError
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


def test_two_writers_of_one_new_folder(tmp_path):
    """The second does not remove what the first is writing; the one that ends first wins, the other gets a sentence."""
    with pytest.raises(GlassBertError, match="cannot write"), new_folder(tmp_path / "published") as first:
        with new_folder(tmp_path / "published") as second:
            (second / "file").write_text("second")
            assert first.exists() and first != second
        (first / "file").write_text("first")
    assert (tmp_path / "published" / "file").read_text() == "second" and len(list(tmp_path.iterdir())) == 1


def test_checksums_after_an_error(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    write_checksums(tmp_path, ["a", "b", "c"])
    with pytest.raises(KeyboardInterrupt), adding_files(tmp_path, ["b", "c", "d"]):
        (tmp_path / "c").write_text("changed")
        (tmp_path / "d").write_text("new")
        raise KeyboardInterrupt
    assert sorted(read_checksums(tmp_path)) == ["a", "b"]
    assert find_changed(tmp_path) is None
    (tmp_path / CHECKSUMS).unlink()
    with pytest.raises(KeyError), adding_files(tmp_path, ["b"]):
        raise KeyError
    assert not (tmp_path / CHECKSUMS).exists()
