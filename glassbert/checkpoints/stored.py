"""The tensors of a safetensors file, checked before any values are read.

The file is eight bytes with the length of the header, the header (JSON: type, shape and offsets of every tensor), then
the values. The `safetensors` package checks it; the values are mapped here, because its NumPy API does not support
bfloat16.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from glassbert.errors import CheckpointError

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
INTEGERS = {"I8": "<i1", "U8": "<u1"}  # the codes of quantised weights
HEADER_LIMIT = 100_000_000  # the limit of the safetensors package itself


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file: its type, shape and offset. The values are read by `read`."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def require_float(self) -> None:
        if self.dtype not in FLOATS:
            raise CheckpointError(
                f"tensor {self.name!r} is stored as {self.dtype}; weights must be one of {', '.join(FLOATS)}"
            )

    def read(self) -> np.ndarray:
        """The values: a view of the file, or float32 if the file has bfloat16."""
        self.require_float()
        values = self._mapped(FLOATS[self.dtype])
        if self.dtype == "BF16":  # bfloat16 is the upper half of a float32
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values

    def read_integers(self) -> np.ndarray:
        """The codes of a quantised weight: a view of the file."""
        return self._mapped(INTEGERS[self.dtype])

    def _mapped(self, dtype: str) -> np.ndarray:
        mapped = np.memmap(self.path, dtype=np.uint8, mode="r")
        return np.ndarray(self.shape, dtype, mapped, self.offset)


def open_safetensors(path: Path) -> dict[str, StoredTensor]:
    """All tensors of a file by name. A truncated or invalid file raises `CheckpointError`."""
    header, start = _header(path)
    try:
        with safe_open(path, framework="np"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a valid safetensors file: {error}") from error
    header.pop("__metadata__", None)
    return {
        name: StoredTensor(name, path, entry["dtype"], tuple(entry["shape"]), start + entry["data_offsets"][0])
        for name, entry in header.items()
    }


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header and the offset of the values. Its errors are more specific than those of the package."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise CheckpointError(f"{path} is not a file")
        size = found.st_size
        with path.open("rb") as file:
            first = file.read(8)
            length = int.from_bytes(first, "little")
            if len(first) < 8 or length > min(size - 8, HEADER_LIMIT):
                raise CheckpointError(
                    f"{path} is truncated or not a safetensors file: it has {size:,} bytes and no complete header"
                )
            raw = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        header = json.loads(raw)
        end = max([0, *(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")])
        missing = 8 + length + end - size
    except (ValueError, RecursionError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"{path} is corrupt: its header is not that of a safetensors file") from error
    if missing > 0:
        raise CheckpointError(f"{path} is truncated: {missing:,} of its {size + missing:,} bytes are missing")
    return header, 8 + length
