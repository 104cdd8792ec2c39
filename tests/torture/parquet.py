"""Parquet files of every type of column, and damage where it hurts: in the footer, its length, the pages, the end.

PAR1 | pages | footer (Thrift) | length of the footer: 4 bytes | PAR1
"""

from __future__ import annotations

import datetime
import decimal
import functools
import importlib.util
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassbert.errors import GlassBertError
from glassbert.tasks import Series, TaskData, check_data, read_table
from glassbert.text.corpus import Settings, read_documents

MARK = b"PAR1"
ROWS = 8
# Large numbers, the end of a structure, odd types and deep nesting in the encoding of the footer.
THRIFT = [b"\xff" * 4 + b"\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\x00", b"\xfe", b"\x7f", b"\x1c" * 200]
COMPRESSIONS = ("none", "snappy", "gzip", "zstd")


def columns() -> dict[str, Any]:
    """Arrays of every type that a column can have."""
    import pyarrow as pa

    day, hour = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 30)
    return {
        "review": pa.array([f"a {word} film" for word in ("good", "bad")] * 4),
        "verdict": pa.array(["good", "bad"] * 4).dictionary_encode(),
        "nothing": pa.nulls(ROWS),
        "holes": pa.array([None, 1, None, 2, 3, None, 4, 5]),
        "struct": pa.array([{"text": "a", "n": i, "inner": {"x": [i, None]}} for i in range(ROWS)]),
        "list": pa.array([[["a", None], []], None, [], [["b"]]] * 2),
        "map": pa.array([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
        "stamps": pa.array([hour] * ROWS, pa.timestamp("us", "UTC")),
        "nanoseconds": pa.array([2**62 + i for i in range(ROWS)], pa.timestamp("ns")),
        "years": pa.array([2**53 + i for i in range(ROWS)], pa.timestamp("us")),
        "dates": pa.array([day] * ROWS, pa.date32()),
        "times": pa.array([datetime.time(1, 2, 3)] * ROWS, pa.time64("us")),
        "durations": pa.array([i * 10**9 for i in range(ROWS)], pa.duration("ns")),
        "decimals": pa.array([decimal.Decimal("1.25")] * ROWS, pa.decimal128(38, 10)),
        "bytes": pa.array([b"\xff\xfe\x00"] * ROWS),
        "fixed": pa.array([b"1234"] * ROWS, pa.binary(4)),
        "truth": pa.array([True, None] * 4),
        "huge": pa.array([2**64 - 1] * ROWS, pa.uint64()),
        "halves": pa.array([1.5, float("nan"), float("inf"), None] * 2, pa.float32()),
        "\ufeff odd\nname": pa.array(["\x00", "\x1b[2J", "", "é" * 3_000] * 2),
    }


@functools.cache
def variants() -> list[bytes]:
    """A file with all columns in two row groups, and one for each type beside a text and a target."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    every = columns()
    found = [_written(pq, pa.table(every), row_group_size=5)]
    for number, (name, array) in enumerate(every.items()):
        table = pa.table({"review": every["review"], "verdict": every["verdict"], name: array})
        how = {"compression": COMPRESSIONS[number % len(COMPRESSIONS)], "write_page_checksum": number % 3 == 0,
               "version": ("1.0", "2.6")[number % 2 or "nano" in name],
               "data_page_version": ("1.0", "2.0")[number % 2]}  # fmt: skip
        found.append(_written(pq, table, **how))
    return found


def _written(pq: Any, table: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def write_file(folder: Path) -> list[str]:
    """`rows.parquet`, in whose place the bench puts damaged files; its name."""
    if importlib.util.find_spec("pyarrow") is None:
        return []
    (folder / "rows.parquet").write_bytes(variants()[0])
    return ["rows.parquet"]


def mutated_parquet(rng: random.Random) -> bytes:
    """A Parquet file with a damaged footer, length, mark or page, or cut off; sometimes an intact one."""
    content = rng.choice(variants())
    length = int.from_bytes(content[-8:-4], "little")
    begin = max(4, len(content) - 8 - length)  # of the footer
    pages, footer, end = content[:begin], content[begin:-8], content[-8:]
    lengths = [0, 1, length - 1, length + 1, 2**31 - 1, 2**32 - 1]
    acts: list[Callable[[], bytes]] = [
        lambda: pages + flipped(footer, rng, rng.choice([1, 1, 2, 8])) + end,
        lambda: flipped(pages, rng, rng.choice([1, 1, 4, 30])) + footer + end,
        lambda: pages + replaced(footer, rng) + end,
        lambda: pages + footer + rng.choice(lengths).to_bytes(4, "little") + MARK,
        lambda: content[: rng.randrange(len(content))],
        lambda: content[rng.randrange(len(content)) :],
        lambda: MARK + content[begin:],  # pages are missing
        lambda: pages + pages + footer + end,  # pages have moved
        lambda: pages + footer[: rng.randrange(1 + len(footer))] + end,
        lambda: content[:-4] + rng.choice([b"PARE", b"PAR2", b"\0\0\0\0"]),
        lambda: content + b"\n",
        lambda: content,
    ]  # fmt: skip
    return rng.choice(acts)()


def flipped(content: bytes, rng: random.Random, bits: int) -> bytes:
    changed = bytearray(content)
    for _ in range(bits if changed else 0):
        place = rng.randrange(len(changed))
        changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def replaced(content: bytes, rng: random.Random) -> bytes:
    """Put `THRIFT` bytes in, or in the place of others."""
    place = rng.randrange(1 + len(content))
    value = rng.choice(
        [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\x00", b"\xfe", b"\x7f", b"\x1c" * 200]
    )
    return content[:place] + value + content[place + rng.choice([0, len(value)]) :]


def use(folder: Path) -> str:
    """Read the file as a table, as a task of texts and of rows, as a series and as documents."""
    path, refusals = folder / "rows.parquet", []
    ways: list[Callable[[], Any]] = [
        lambda: read_table(path),
        lambda: check_data(TaskData.of(path, text="review", target="verdict")),
        lambda: TaskData.of(path, template="auto", target="verdict").encoded(),
        lambda: Series.of(path),
        lambda: list(read_documents([path], Settings(field="review"))),
    ]
    for way in ways:
        try:
            way()
        except GlassBertError as error:
            refusals.append(error)
    if len(refusals) == len(ways):
        raise refusals[0]
    return ""
