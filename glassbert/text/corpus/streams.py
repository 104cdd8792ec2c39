"""Files as streams of bytes, decompressed on the way, with their checksum taken as they pass.

Compression is recognised by a file's first bytes. A stream that breaks off is an error: half a text that looks whole is
the worst kind of input.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from glassbert.errors import TextError

MAGIC = {b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zst"}
SUFFIXES = {".gz": "gz", ".xz": "xz", ".bz2": "bz2", ".zst": "zst", ".zstd": "zst"}
CHUNK = 1 << 16


class Tally:
    """What has been taken from a source so far: bytes as they lie in the file, and their checksum."""

    def __init__(self) -> None:
        self.bytes = 0
        self.digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        self.bytes += len(data)
        self.digest.update(data)


class _Counted(io.RawIOBase):
    """The file itself, told to the tally in the order it is read."""

    def __init__(self, file: BinaryIO, tally: Tally) -> None:
        self.file, self.tally = file, tally

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        self.tally.add(data)
        return len(data)


class _Zstandard(io.RawIOBase):
    """Zstandard frames one after the other. The package's own reader takes a stream that breaks off for a whole one."""

    def __init__(self, file: Any) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise TextError('reading .zst files needs one more package: pip install "glassbert[data]"') from error
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
                    raise EOFError("the stream breaks off")
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
def open_stream(path: Path, name: str, tally: Tally) -> Iterator[Any]:
    """The bytes of a file, decompressed. Whatever goes wrong while reading it is told with its name and place."""
    with readable(name, tally), open(path, "rb") as file:
        counted = io.BufferedReader(_Counted(file, tally), 1 << 18)
        start = counted.peek(6)[:6]
        found = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
        claimed = SUFFIXES.get(path.suffix.lower())
        if claimed and start and found != claimed:
            raise TextError(f"{name} is not {claimed}-compressed, though its name says so")
        if found is None:
            yield counted
        elif found == "gz":
            yield gzip.GzipFile(fileobj=counted)
        elif found == "zst":
            yield io.BufferedReader(_Zstandard(counted), 1 << 20)
        else:
            yield {"xz": lzma.LZMAFile, "bz2": bz2.BZ2File}[found](counted)


@contextmanager
def readable(name: str, tally: Tally) -> Iterator[None]:
    """Errors of files and of compressed streams as a sentence."""
    try:
        yield
    except TextError:
        raise
    except FileNotFoundError:
        raise TextError(f"there is no file {name}") from None
    except (lzma.LZMAError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TextError(
            f"{name} cannot be decompressed: {error} (near byte {tally.bytes:,} of the file); "
            "it is damaged or cut short"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise TextError(f"{name} cannot be read: {reason} (near byte {tally.bytes:,} of the file)") from error
