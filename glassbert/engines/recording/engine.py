"""The recording engine: a model runs on symbols, and what it computes is written down.

    graph = Graph()
    engine = RecordingEngine(graph)
    ids = graph.input("input_ids", "int64", ("batch", "length"))

The operations are the plain functions of `glassbert.ops`, which record themselves over the namespace of symbols. With
`kernels="fast"` an operation that is one operator of ONNX is recorded as such.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Gradients, Layout
from glassbert.engines.kernels import KERNEL_SETS, Kernels, Operations
from glassbert.engines.recording import quantized  # noqa: F401 (enters its kernels)
from glassbert.engines.recording.functions import Functions
from glassbert.engines.recording.graph import Graph
from glassbert.engines.recording.kernels import FUSED, PLAIN
from glassbert.engines.recording.symbols import Symbol
from glassbert.errors import EngineError


class RecordingEngine:
    """Arrays are symbols of one graph; a batch is never split."""

    many = None
    name = "recording"
    compiles = True
    bytes_kept = 4
    threads = 1
    limits_blas = False

    def __init__(self, graph: Graph, kernels: str = "fast"):
        if kernels not in KERNEL_SETS:
            raise EngineError(f"unknown kernels {kernels!r}; choose one of {', '.join(KERNEL_SETS)}")
        self.graph, self.kernels = graph, kernels
        self.xp = Functions(graph)
        self.dtype = graph.float_type
        self.dtype_name = str(graph.float_type)
        self.ops = Operations(FUSED if kernels == "fast" else PLAIN)

    def with_kernels(self, kernels: str) -> RecordingEngine:
        """This engine with other kernels."""
        return self if kernels == self.kernels else RecordingEngine(self.graph, kernels)

    def with_operations(self, replaced: Kernels) -> RecordingEngine:
        """This engine with single functions replaced, by the names of operations or their backwards."""
        engine = copy.copy(self)
        engine.ops = Operations(FUSED if self.kernels == "fast" else PLAIN, replaced)
        return engine

    def array(self, values: Any) -> Symbol:
        return self.xp.symbol(values, self.dtype)

    def integers(self, values: Any) -> Symbol:
        return self.xp.symbol(values, np.int64)

    def to_numpy(self, array: Any) -> np.ndarray:
        if isinstance(array, Symbol):
            raise EngineError(f"{array.name} is a symbol of a recorded graph and has no values; run the graph")
        return np.asarray(array)

    def parameters(self, layout: Layout) -> dict[str, Symbol]:
        return {name: self.xp.zeros(shape) for name, shape in layout.shapes.items()}

    def gradients(self, layout: Layout) -> Gradients:
        return Gradients(layout.shapes)

    def for_computing(self, parameters: Mapping[str, Symbol]) -> Mapping[str, Symbol]:
        return parameters

    def dropout(self, seed: Any) -> Any:
        raise EngineError("a recorded graph has no random numbers; record a model that is not in training")

    def split(self, batch: int, tokens: np.ndarray | None = None) -> list[slice]:
        return [slice(0, batch)]
