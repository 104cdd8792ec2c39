"""Memory-mapped .npy files that need no open file each, and a check that they are still as long as they were.

Python's own `mmap` keeps a descriptor for every mapping, and a corpus of some hundred shards would reach the limit of
open files. Reading a mapped page beyond the end of a file that was truncated later kills the process (SIGBUS), so
readers call `require_whole` before they read.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from glassbert.errors import TextError


class MappedFile(NamedTuple):
    """A mapped file and its size when it was mapped."""

    path: Path
    size: int


def require_whole(files: Iterable[MappedFile]) -> None:
    """Raise if a file is shorter than it was when it was mapped."""
    for path, size in files:
        try:
            now = os.stat(path).st_size
        except OSError:
            continue  # a removed file stays readable while it is mapped
        if now < size:
            raise TextError(
                f"{path} was truncated while it was in use: it has {now:,} bytes and had {size:,}; restore it or build "
                f"the corpus again, then continue with `glassbert resume`"
            )


def map_array(path: Path) -> np.ndarray:
    """The read-only array of a .npy file, mapped into memory; a file with anything else raises ValueError."""
    if os.name == "nt":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    with open(path, "rb") as file:
        try:
            shape, fortran, dtype = _header(file)
        except Exception as error:  # the header is parsed as Python text, which fails in many ways
            raise ValueError(f"its header is damaged: {error}") from error
        start, size = file.tell(), os.fstat(file.fileno()).st_size
        count = int(np.prod(shape, dtype=np.int64))
        if dtype.hasobject or fortran or start + count * dtype.itemsize > size:
            raise ValueError(f"an array of {dtype} {shape} is not in a file of {size:,} bytes")
        buffer = _mapped(file.fileno(), size)
    array = np.frombuffer(buffer, dtype, count, start).reshape(shape)
    array.flags.writeable = False
    return array


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"unknown version {version} of the .npy format")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    if any(not 0 <= size < 2**62 for size in shape):
        raise ValueError(f"an array cannot have the shape {shape}")
    return shape, fortran, dtype


def _mapped(descriptor: int, size: int) -> Any:
    """The content of an open file as a buffer that is unmapped when nothing refers to it."""
    library = _library()
    address = library.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    buffer = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(buffer, library.munmap, address, size).atexit = False
    return buffer


@cache
def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    integer = ctypes.c_int
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, integer, integer, integer, ctypes.c_longlong)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library
