"""Encodings: recognise the encoding of a file by its bytes, and decode it.

    EF BB BF, FF FE, FE FF        a mark at the beginning: UTF-8, UTF-16 or UTF-32
    valid UTF-8                   UTF-8
    bytes of Windows-1252         cp1252, if hardly any character is valid UTF-8 and most letters are ASCII
    anything else                 an error that asks for --encoding

Text in cp1251 or Shift-JIS also consists of bytes that cp1252 has characters for. Such text has mostly letters above
127, which no Western European text has, so it is refused instead of being read as nonsense.
"""

from __future__ import annotations

import codecs
import io
import re
from dataclasses import dataclass
from typing import Any

from glassbert.errors import TextError

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
NAMES = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8 with a byte order mark", "utf-16": "UTF-16", "utf-32": "UTF-32"}
NAMES["cp1252"] = "Windows-1252 (cp1252)"
SAMPLE = 1 << 20  # bytes of a stream that are looked at
UTF8_CHARACTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
NOT_CP1252 = re.compile(
    rb"[\x00-\x08\x0e-\x1a\x81\x8d\x8f\x90\x9d\xff]"
)  # \xff, a rare letter, is common in other data
MOST_HIGH_LETTERS = 0.4  # of all letters, in cp1252
DAMAGED = 10  # characters of UTF-8 for each byte that is none: UTF-8 with an error rather than cp1252
FIRST_LINE = 200


@dataclass(frozen=True)
class Encoding:
    """The name of an encoding for `codecs`, and a note about how it was found; "" for ordinary UTF-8."""

    name: str
    note: str = ""


def recognise(data: bytes, source: str, given: str | None = None, whole: bool = True) -> Encoding:
    """The encoding of a file from its bytes, or from the first of them if not `whole`. `given` is checked and used."""
    mark = next((name for bytes_, name in MARKS if data.startswith(bytes_)), None)
    if given is not None:
        return Encoding(_with_mark(codec_name(given), mark))
    if mark is not None:
        return Encoding(mark, f"it is read as {NAMES[mark]}, by its byte order mark")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
        if b"\0" not in data[:FIRST_LINE]:
            return Encoding("utf-8")
    except UnicodeDecodeError:
        pass
    if data[:FIRST_LINE].count(b"\0") * 3 > len(data[:FIRST_LINE]):
        raise TextError(f"{source} looks like UTF-16 without a byte order mark; set --encoding utf-16-le or utf-16-be")
    characters = len(UTF8_CHARACTER.findall(data))
    others = sum(1 for byte in UTF8_CHARACTER.sub(b"", data) if byte >= 0x80)
    if others and characters * DAMAGED < others and not NOT_CP1252.search(data) and _looks_western(data):
        return Encoding("cp1252", f"it is read as {NAMES['cp1252']}, because it is not UTF-8; --encoding sets another")
    return Encoding("utf-8")  # the decoder names the line


def _looks_western(data: bytes) -> bool:
    """Whether most letters are ASCII, as in all languages that cp1252 is used for."""
    text = data.decode("cp1252")
    letters = [character for character in text if character.isalpha()]
    high = sum(character > "\x7f" for character in letters)
    return high <= MOST_HIGH_LETTERS * len(letters) + 2


def codec_name(given: str) -> str:
    """The name of a text encoding as Python writes it; an unknown one is an error."""
    try:
        found = codecs.lookup(given)
        if not found._is_text_encoding:  # such as "zlib" or "rot13"
            raise LookupError(given)
    except (LookupError, ValueError) as error:
        raise TextError(
            f"there is no encoding {given[:200]!r}; --encoding takes utf-8, utf-16, cp1252, latin-1, cp1251, "
            "shift_jis, gb18030 and other names of Python codecs"
        ) from error
    return found.name


def _with_mark(name: str, mark: str | None) -> str:
    """The codec that removes the mark of the file, if the file has one of this encoding."""
    family = name.replace("-le", "").replace("-be", "").replace("_", "-")
    return mark if mark is not None and mark.removesuffix("-sig") == family else name


def decode(data: bytes, source: str, given: str | None = None) -> tuple[str, Encoding]:
    """The text of a file, and its encoding."""
    encoding = recognise(data, source, given)
    try:
        return data.decode(encoding.name), encoding
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TextError(undecodable(source, line, error, encoding.name)) from None
    except UnicodeError as error:  # other errors of codecs, such as a truncated UTF-16
        raise TextError(f"{source} is not {encoding.name}: {str(error)[:FIRST_LINE]}; set --encoding") from None


def undecodable(source: str, line: int, error: UnicodeDecodeError, encoding: str = "utf-8", also: str = "") -> str:
    """The error text for bytes that do not fit the encoding."""
    bad = bytes(error.object[error.start : error.start + 4]).hex(" ")
    return (
        f"{source}, line {line:,}: bytes that are not {NAMES.get(encoding, encoding)} ({bad}); set the encoding of the "
        f"file with --encoding, such as cp1252, cp1251, shift_jis or gb18030{also}"
    )


# ---- streams ---------------------------------------------------------------------------------------------------------


def utf8_stream(stream: Any, source: str, given: str | None = None) -> tuple[Any, Encoding]:
    """The bytes of a stream in UTF-8 without a mark, and the encoding of the file.

    Bytes that do not fit another encoding than UTF-8 stay as they are, so that they are no UTF-8 either, and are
    found where the text is decoded.
    """
    start = _read_fully(stream, SAMPLE)
    encoding = recognise(start, source, given, whole=len(start) < SAMPLE)
    joined: Any = _Joined(start.removeprefix(codecs.BOM_UTF8), stream)
    if encoding.name not in ("utf-8", "utf-8-sig"):
        joined = _Transcoded(_Joined(start, stream), encoding.name, source)
    return io.BufferedReader(joined, 1 << 18), encoding


def _read_fully(stream: Any, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := stream.read(size - len(data))):
        data += more
    return data


class _Joined(io.RawIOBase):
    """Bytes that were read ahead, and then the rest of a stream."""

    def __init__(self, start: bytes, stream: Any) -> None:
        self.start, self.stream = memoryview(start), stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.start:
            data = self.stream.read(len(buffer))
        else:
            data, self.start = self.start[: len(buffer)], self.start[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


class _Transcoded(io.RawIOBase):
    """A stream of another encoding, in UTF-8."""

    def __init__(self, stream: Any, encoding: str, source: str) -> None:
        self.stream, self.source, self.encoding = stream, source, encoding
        self.decoder = codecs.getincrementaldecoder(encoding)(errors="surrogateescape")
        self.ready = b""
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready and not self.ended:
            data = self.stream.read(1 << 16)
            self.ended = not data
            try:
                text = self.decoder.decode(data, final=self.ended)
                self.ready = text.encode("utf-8", "surrogateescape")
            except UnicodeError as error:
                raise TextError(f"{self.source} is not {self.encoding}: {str(error)[:200]}; set --encoding") from None
        size = min(len(buffer), len(self.ready))
        buffer[:size], self.ready = self.ready[:size], self.ready[size:]
        return size
