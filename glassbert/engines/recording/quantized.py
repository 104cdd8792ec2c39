"""Quantised weights in a recorded graph: the codes are its constants, and ONNX Runtime's integer operators read them.

8 bits, activations by token   DynamicQuantizeMatMul: the runtime finds one range for all tokens of a batch
8 bits, a fixed range          QuantizeLinear, MatMulIntegerToFloat
4 bits in groups               MatMulNBits
a table that is looked up      Gather of codes and scales, then a product
all others                     codes to floats, then MatMul: a small file, and the speed of floats
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.engines.kernels import register_in
from glassbert.engines.recording.kernels import FUSED
from glassbert.engines.recording.symbols import Symbol
from glassbert.ops.quantized import LEVELS, TOKEN, QuantizedArray, unpack
from glassbert.ops.registry import OPERATIONS

OF_RUNTIME = ("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits")  # operators of "com.microsoft"
BLOCKS = (16, 32, 64, 128, 256)  # the group sizes of MatMulNBits


def symbolic(graph: Any, name: str, weight: QuantizedArray) -> QuantizedArray:
    """A quantised parameter of NumPy as constants of the graph."""
    scales = graph.parameter(f"{name}.scales", np.asarray(weight.scales, np.float32))
    offsets = None
    if weight.offsets is not None:
        offsets = graph.parameter(f"{name}.offsets", np.asarray(weight.offsets, np.float32))
    codes = graph.parameter(f"{name}.codes", np.ascontiguousarray(weight.codes))
    return replace(weight, codes=codes, scales=scales, offsets=offsets, dtype=np.dtype(np.float32))


def values_of(weight: QuantizedArray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Codes, scales and offsets of a symbolic weight."""
    constants = weight.codes.graph.constants
    offsets = None if weight.offsets is None else constants[weight.offsets.name]
    return constants[weight.codes.name], constants[weight.scales.name], offsets


@register_in(FUSED)
def quantized_linear(x: Array, weight: QuantizedArray, bias: Array | None = None) -> tuple[Array, Any]:
    graph, shape = x.graph, (*x.shape[:-1], weight.shape[0])
    per_channel = weight.bits == 8 and weight.groups == 1 and weight.offsets is None
    width = weight.shape[1] // weight.groups
    if weight.rounding is not None and per_channel:
        y = _integers(x, weight, bias, shape)
    elif weight.bits == 4 and width in BLOCKS:
        y = _blocks(x, weight, width, shape)
        y = y if bias is None else y + bias
    else:
        y = x @ _floats(graph, weight).T
        y = y if bias is None else y + bias
    return y, (x.shape, weight, bias is not None)


@register_in(FUSED)
def quantized_linear_backward(dy: Array, state: Any) -> Any:
    return OPERATIONS["quantized_linear_backward"](dy, state)


def _integers(x: Symbol, weight: QuantizedArray, bias: Symbol | None, shape: Any) -> Symbol:
    """x [..., I] by codes [I, O] of 8 bits."""
    graph = x.graph
    codes, scales, _ = values_of(weight)
    turned = graph.constant(np.ascontiguousarray(codes.T))
    scale = graph.constant(np.ascontiguousarray(scales[:, 0]))
    if weight.rounding == TOKEN:
        return graph.add("DynamicQuantizeMatMul", [x, turned, scale, None, bias], x.dtype, shape)
    low, high = weight.rounding
    step = (high - low) / LEVELS
    of_x = graph.constant(np.array(step, np.float32))
    zero = graph.constant(np.array(round(-low / step), np.uint8))
    rounded = graph.add("QuantizeLinear", [x, of_x, zero], np.uint8, x.shape)
    given = [rounded, turned, of_x, scale, zero, None, bias]
    return graph.add("MatMulIntegerToFloat", given, x.dtype, shape)


def _blocks(x: Symbol, weight: QuantizedArray, width: int, shape: Any) -> Symbol:
    """x [..., I] by codes of 4 bits in groups: code - zero point, times scale."""
    graph, (rows, inputs) = x.graph, weight.shape
    codes, scales, offsets = values_of(weight)
    zeros = np.full_like(scales, weight.zero) if offsets is None else -offsets / scales
    given = [
        x,
        graph.constant(codes.reshape(rows, weight.groups, width // 2)),
        graph.constant(np.ascontiguousarray(scales.reshape(-1))),
        graph.constant(np.ascontiguousarray(zeros.reshape(-1), np.float32)),
    ]
    return graph.add("MatMulNBits", given, x.dtype, shape, K=inputs, N=rows, bits=4, block_size=width)


def _floats(graph: Any, weight: QuantizedArray) -> Symbol:
    """The matrix in floats, computed from its codes when the graph is opened."""
    codes = weight.codes if weight.bits == 8 else graph.constant(unpack(values_of(weight)[0], weight.shape[1]))
    cast = codes.astype(np.float32).reshape(weight.shape[0], weight.groups, -1) - float(weight.zero)
    values = cast * weight.scales[:, :, None]
    if weight.offsets is not None:
        values = values + weight.offsets[:, :, None]
    return values.reshape(*weight.shape)


@register_in(FUSED)
def quantized_embedding(table: QuantizedArray, ids: Array, padding_id: int | None = None) -> tuple[Array, Any]:
    codes, scales = table.codes[ids], table.scales[ids]  # [..., C], [..., G]
    if table.bits == 4:
        graph = codes.graph
        four, mask = graph.constant(np.array(4, np.uint8)), graph.constant(np.array(15, np.uint8))
        halves = [
            graph.add("BitwiseAnd", [codes, mask], np.uint8, codes.shape),
            graph.add("BitShift", [codes, four], np.uint8, codes.shape, direction="RIGHT"),
        ]
        both = namespace(ids).stack([half.astype(np.float32) for half in halves], -1)
        values = both.reshape(*codes.shape[:-1], 2 * codes.shape[-1])[..., : table.shape[1]]
    else:
        values = codes.astype(np.float32)
    values = values.reshape(*ids.shape, table.groups, table.shape[1] // table.groups) - float(table.zero)
    values = values * scales[..., None]
    if table.offsets is not None:
        values = values + table.offsets[ids][..., None]
    return values.reshape(*ids.shape, table.shape[1]), (ids, padding_id)


@register_in(FUSED)
def quantized_embedding_backward(dy: Array, state: Any) -> Any:
    return OPERATIONS["quantized_embedding_backward"](dy, state)
