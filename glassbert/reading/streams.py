"""Open files as byte streams: decompress them, and count and hash the bytes read.

Compression is detected from the first bytes of a file. A truncated stream raises TextError; it is never read as a
complete text.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from glassbert.errors import TextError, needs

MAGIC = {b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zst"}
SUFFIXES = {".gz": "gz", ".xz": "xz", ".bz2": "bz2", ".zst": "zst", ".zstd": "zst"}
CHUNK = 1 << 16
WHOLE_FILE = 1 << 32  # bytes of the largest file that is read into memory
ORDINARY, SWELLING = 256 << 20, 100  # a smaller text may come from any file; a larger one grew at most so many times


class ByteCounter:
    """The number of bytes read from a source (compressed, as in the file), their SHA-256, and the encoding."""

    def __init__(self) -> None:
        self.bytes = 0
        self.digest = hashlib.sha256()
        self.encoding = ""  # set when the text is decoded

    def add(self, data: bytes) -> None:
        self.bytes += len(data)
        self.digest.update(data)


class _Counted(io.RawIOBase):
    """A file whose bytes are added to the counter as they are read."""

    def __init__(self, file: BinaryIO, counter: ByteCounter) -> None:
        self.file, self.counter = file, counter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        self.counter.add(data)
        return len(data)


class _Zstandard(io.RawIOBase):
    """Decompresses consecutive Zstandard frames. (The reader of `zstandard` does not detect truncated streams.)"""

    def __init__(self, file: Any) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise TextError(needs("reading .zst files", "zstandard")) from error
        self.file, self.error = file, zstandard.ZstdError
        self.new_frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj
        self.frame = self.new_frame()
        self.inside = False
        self.ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            rest = self.frame.unused_data if self.frame.eof else b""
            if self.frame.eof:
                self.frame, self.inside = self.new_frame(), False
            data = rest or self.file.read(CHUNK // 8)
            if not data:
                if self.inside:
                    raise EOFError("the stream is truncated")
                return 0
            self.inside = True
            try:
                self.ready = self.frame.decompress(data)
            except self.error as error:
                raise OSError(str(error)) from error
        size = min(len(buffer), len(self.ready))
        buffer[:size], self.ready = self.ready[:size], self.ready[size:]
        return size


@contextmanager
def open_stream(path: Path, name: str, counter: ByteCounter) -> Iterator[Any]:
    """The decompressed bytes of a file. Read errors become a TextError with the file name and the byte offset."""
    with readable(name, counter), open(path, "rb") as file:
        if stat.S_ISCHR(os.fstat(file.fileno()).st_mode) or stat.S_ISBLK(os.fstat(file.fileno()).st_mode):
            raise TextError(f"{name} is a device, not a file; give the path of a file")
        counted = io.BufferedReader(_Counted(file, counter), 1 << 18)
        start = counted.peek(6)[:6]
        found = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
        claimed = SUFFIXES.get(path.suffix.lower())
        if claimed and start and found != claimed:
            raise TextError(f"{name} is not {claimed}-compressed, although its name ends in {path.suffix}")
        if found is None:
            yield counted
        elif found == "gz":
            yield gzip.GzipFile(fileobj=counted)
        elif found == "zst":
            yield io.BufferedReader(_Zstandard(counted), 1 << 20)
        else:
            yield {"xz": lzma.LZMAFile, "bz2": bz2.BZ2File}[found](counted)


def read_bytes(path: str | Path) -> bytes:
    """The whole content of a file, decompressed. A file that is far larger than its kind can be is refused."""
    path = Path(path)
    if path.is_dir():
        raise TextError(f"{path} is a folder; give the path of a file")
    counter = ByteCounter()
    pieces, size = [], 0
    with open_stream(path, str(path), counter) as stream:
        while piece := stream.read(1 << 24):
            pieces.append(piece)
            size += len(piece)
            if size > min(WHOLE_FILE, max(ORDINARY, SWELLING * counter.bytes)):
                raise TextError(
                    f"{path} holds over {size >> 20:,} MiB of text in {counter.bytes:,} bytes of the file: too much to "
                    "read at once; split the file"
                )
    return b"".join(pieces)


@contextmanager
def readable(name: str, counter: ByteCounter) -> Iterator[None]:
    """Convert errors of files and compressed streams to TextError."""
    try:
        yield
    except TextError:
        raise
    except FileNotFoundError:
        raise TextError(f"there is no file {name}") from None
    except (lzma.LZMAError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TextError(
            f"{name} cannot be decompressed: {error} (near byte {counter.bytes:,} of the file); "
            "it is damaged or truncated"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise TextError(f"{name} cannot be read: {reason} (near byte {counter.bytes:,} of the file)") from error
