"""Quantised parameters in files.

    NAME.codes      [R, C] int8, or [R, ceil(C / 2)] uint8 with two codes of 4 bits in a byte, the lower half first
    NAME.scales     [R, G] float32 or float16
    NAME.offsets    [R, G], where the codes are not symmetric

config.json has the rest under "quantization": for every parameter its bits, its shape, and how activations are rounded.
The other parameters are floats under their own names. Such a folder is in our own format (`NativeFormat`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.checkpoints.stored import StoredTensor
from glassbert.errors import CheckpointError
from glassbert.models.quantized import on_host
from glassbert.ops.quantized import TOKEN, QuantizedArray, dequantize

SECTION = "quantization"
VERSION = 1
CODES, SCALES, OFFSETS = "codes", "scales", "offsets"
ZERO = {8: 0, 4: 8}  # the code of 0, by the number of bits
STORED_AS = {8: "I8", 4: "U8"}


def tensors_of(name: str, weight: QuantizedArray) -> dict[str, np.ndarray]:
    """The tensors of a quantised parameter by their names in the file."""
    weight = on_host(weight)
    found = {f"{name}.{CODES}": weight.codes, f"{name}.{SCALES}": weight.scales}
    return found if weight.offsets is None else {**found, f"{name}.{OFFSETS}": weight.offsets}


def section_of(quantized: Mapping[str, QuantizedArray]) -> dict[str, Any]:
    """What config.json says of the quantised parameters."""
    weights = {
        name: {
            "bits": weight.bits,
            "shape": list(weight.shape),
            "activations": list(weight.rounding) if isinstance(weight.rounding, tuple) else weight.rounding,
        }
        for name, weight in quantized.items()
    }
    return {"version": VERSION, "weights": weights}


@dataclass(frozen=True)
class StoredQuantized:
    """A quantised parameter of a file, with the interface of `StoredTensor`: it is read as floats."""

    name: str
    shape: tuple[int, int]
    bits: int
    rounding: Any
    codes: StoredTensor
    scales: StoredTensor
    offsets: StoredTensor | None

    @property
    def dtype(self) -> str:
        return f"{self.bits} bits"

    def require_float(self) -> None:
        """It is read as floats."""

    def read(self) -> np.ndarray:
        return dequantize(self.read_quantized())

    def read_quantized(self) -> QuantizedArray:
        """The parameter with its own copy of codes, scales and offsets."""
        scales = np.array(self.scales.read())
        offsets = None if self.offsets is None else np.array(self.offsets.read())
        for values in (scales, offsets):
            if values is not None and not np.isfinite(values).all():
                raise CheckpointError(
                    f"{self.scales.path}: the scales of {self.name} are not finite; the file is damaged"
                )
        codes = np.array(self.codes.read_integers())
        zero = ZERO[self.bits] if offsets is None else 0
        return QuantizedArray(
            codes, scales, offsets, self.bits, self.shape, zero, np.dtype(np.float32), self.rounding
        )  # fmt: skip


def joined(fields: Mapping[str, Any], tensors: dict[str, StoredTensor]) -> dict[str, Any]:
    """The tensors of a file, in which those of a quantised parameter are one under its own name."""
    section = fields.get(SECTION)
    if section is None:
        return tensors
    weights = section.get("weights") if isinstance(section, dict) else None
    if not isinstance(weights, dict) or section.get("version") != VERSION:
        raise CheckpointError(
            f"config.json has a section {SECTION!r} that this version does not know; it knows version {VERSION}"
        )
    left, found = dict(tensors), {}
    for name, entry in weights.items():
        found[name] = _join(name, entry, left)
    return {**left, **found}


def _join(name: str, entry: Any, left: dict[str, StoredTensor]) -> StoredQuantized:
    """One quantised parameter, whose tensors are taken out of `left`."""
    try:
        bits, (rows, width), rounding = int(entry["bits"]), map(int, entry["shape"]), entry["activations"]
        rounding = tuple(map(float, rounding)) if isinstance(rounding, list) else rounding
        known = bits in ZERO and rows > 0 and width > 0 and (rounding in (None, TOKEN) or _is_range(rounding))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"config.json does not describe how {name} is quantised: {error}") from error
    if not known:
        raise CheckpointError(f"config.json describes {name} as quantised in a way that does not exist: {entry}")
    parts = {part: left.pop(f"{name}.{part}", None) for part in (CODES, SCALES, OFFSETS)}
    codes, scales, offsets = parts.values()
    if codes is None or scales is None:
        missing = CODES if codes is None else SCALES
        raise CheckpointError(f"tensors are missing from the file: {name}.{missing}, which config.json needs")
    wanted = (rows, width if bits == 8 else (width + 1) // 2)
    if codes.shape != wanted or codes.dtype != STORED_AS[bits]:
        raise CheckpointError(
            f"{name}.{CODES} is {codes.dtype} {list(codes.shape)}, but config.json makes it {STORED_AS[bits]} "
            f"{list(wanted)}"
        )
    for part, tensor in ((SCALES, scales), (OFFSETS, offsets)):
        if tensor is None:
            continue
        tensor.require_float()
        fits = len(tensor.shape) == 2 and tensor.shape[0] == rows and tensor.shape == scales.shape
        if not fits or not tensor.shape[1] or width % tensor.shape[1]:
            raise CheckpointError(f"{name}.{part} has the shape {list(tensor.shape)}, which does not fit its codes")
    return StoredQuantized(name, (rows, width), bits, rounding, codes, scales, offsets)


def _is_range(rounding: Any) -> bool:
    return isinstance(rounding, tuple) and len(rounding) == 2 and -np.inf < rounding[0] < rounding[1] < np.inf
