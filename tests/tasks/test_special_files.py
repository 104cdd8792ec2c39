"""Devices, pipes and files that swell are refused or read in bounded memory."""

import gzip
import os
import threading
from pathlib import Path

import pytest

from glassbert.errors import TextError
from glassbert.reading import streams
from glassbert.tasks import read_table


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.xlsx", "t.parquet", "t.conll"])
def test_devices_are_refused(name, tmp_path):
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(TextError, match="device"):
        read_table(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_read(tmp_path):
    path = tmp_path / "t.csv"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"text,label\ngood,1\n",))
    writer.start()
    assert read_table(path, header=True).columns == {"text": ["good"], "label": ["1"]}
    writer.join()


def test_a_small_file_with_an_enormous_text(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "ORDINARY", 1 << 20)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"0,0\n" * (1 << 23)))
    with pytest.raises(TextError, match="too much to read at once; split the file"):
        read_table(tmp_path / "t.csv.gz")


def test_no_permission_and_folders(tmp_path):
    for name in ("t.csv", "t.xlsx", "t.parquet", "t.jsonl"):
        (tmp_path / name).mkdir()
        with pytest.raises(TextError, match="is a folder"):
            read_table(tmp_path / name)
