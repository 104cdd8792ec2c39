"""Locks: one process at a time, on systems with `fcntl` and, as documented, with `msvcrt`."""

import os
import sys
import types

from glassbert import locks
from glassbert.locks import LOCKED_BYTE, try_lock


def test_a_second_lock_is_refused_until_the_first_file_is_closed(tmp_path):
    with open(tmp_path / "lock", "a+") as first, open(tmp_path / "lock", "a+") as second:
        assert try_lock(first)
        assert not try_lock(second)
        first.close()
        assert try_lock(second)


def test_windows_locks_one_byte_beyond_the_text(tmp_path, monkeypatch):
    """There is no Windows here: a stand-in for `msvcrt` checks what it is called with."""
    held = set()

    def locking(descriptor, mode, count):
        assert (mode, count) == (2, 1)
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert position == LOCKED_BYTE
        if position in held:
            raise PermissionError
        held.add(position)

    monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(LK_NBLCK=2, locking=locking))
    monkeypatch.setattr(locks.os, "name", "nt")
    with open(tmp_path / "lock", "w+") as file:
        file.write("process 1")
        file.flush()
        assert try_lock(file)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == len("process 1")
        assert not try_lock(file)
        monkeypatch.undo()
