"""The progress file and the folders: XDG rules, no home, damaged and read-only files."""

import json

import numpy as np
import pytest

from glassbert.errors import GlassBertError
from glassbert.learn import check
from glassbert.learn.folders import cache_folder, data_folder
from glassbert.learn.progress import Progress


def test_folders_follow_the_variables(monkeypatch, tmp_path):
    assert data_folder() == tmp_path / "data" / "glassbert"
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert tmp_path in data_folder().parents and tmp_path in cache_folder().parents


def test_without_a_home_there_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    with pytest.raises(GlassBertError, match=r"there is no home folder.*XDG_DATA_HOME"):
        data_folder()
    assert "no home folder" in Progress.load().problem


def test_what_was_passed_is_remembered():
    check(relu=lambda x: abs(x))
    check(relu=lambda x: np.maximum(x, 0))
    progress = Progress.load()
    assert progress.has_passed("relu") and progress.exercises["relu"]["tries"] == 2
    assert not progress.has_passed("gelu")


def test_an_empty_function_is_no_try():
    def relu(x): ...

    assert not check(relu=relu).answered and Progress.load().exercises == {}


def test_a_damaged_file_is_put_aside():
    path = data_folder() / "progress.json"
    path.parent.mkdir(parents=True)
    for content in ("{", "[]", '{"version": 99}', '{"version": 1, "exercises": 3, "lessons": {}}'):
        path.write_text(content)
        progress = Progress.load()
        assert "put aside" in progress.problem and progress.exercises == {}
        assert (path.parent / "progress.json.unreadable").read_text() == content
    assert check(relu=lambda x: np.maximum(x, 0)).passed
    assert json.loads(path.read_text())["exercises"]["relu"]["tries"] == 1


def test_a_folder_that_is_a_file_is_a_note(tmp_path):
    (tmp_path / "data").write_text("no folder")
    verdict = check(relu=lambda x: np.maximum(x, 0))
    assert verdict.passed and "Your progress is not kept" in verdict.note
