"""Mapped files: no descriptor each, and a sentence instead of SIGBUS."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.text.corpus import Corpus
from glassbert.text.corpus.mapping import MappedFile, map_array, require_whole
from tests.text.corpus.sample_corpora import build, stories, write

OPEN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from glassbert.text.corpus import Corpus
corpus = Corpus.open(sys.argv[1])
print(len(corpus.split("train").shards), sum(int(shard.tokens.sum()) for shard in corpus.split("train").shards))
"""


@pytest.mark.parametrize("array", [np.arange(7, dtype="<u2"), np.zeros((0, 2), "<u4"), np.ones((3, 2), "<u4")])
def test_a_mapped_array_is_the_saved_one(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    found = map_array(tmp_path / "a.npy")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype and not found.flags.writeable


def test_a_mapping_outlives_its_file_and_ends_with_its_last_view(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100_000))
    view = map_array(tmp_path / "a.npy")[5:10]
    (tmp_path / "a.npy").unlink()
    assert view.tolist() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff", b"PK\x03\x04", b"\x00" * 200])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match="header"):
        map_array(tmp_path / "a.npy")


def test_objects_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="object"):
        map_array(tmp_path / "a.npy")


def test_a_truncated_file_is_named(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(1000))
    file = MappedFile(tmp_path / "a.npy", (tmp_path / "a.npy").stat().st_size)
    require_whole([file])
    os.truncate(file.path, 100)
    with pytest.raises(TextError, match=r"a\.npy was truncated while it was in use"):
        require_whole([file])


def test_a_corpus_of_many_shards_needs_few_descriptors(tmp_path):
    source = write(tmp_path / "stories.txt", stories(300))
    corpus = build([source], tmp_path / "out", shard_tokens=120)
    shards = len(corpus.split("train").shards)
    assert shards > 100
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", OPEN, str(tmp_path / "out")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole = Corpus.open(tmp_path / "out").split("train").shards
    assert done.stdout.split() == [str(shards), str(sum(int(shard.tokens.sum()) for shard in whole))]
