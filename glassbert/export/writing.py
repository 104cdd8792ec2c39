"""A recorded graph as a file of ONNX. Weights beyond the limit of a file are stored beside it, as external data."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.engines.recording import Finished, Node, Size, Symbol
from glassbert.engines.recording.quantized import OF_RUNTIME
from glassbert.errors import ConfigError, EngineError, needs
from glassbert.files import atomic_write

OPSET = 26  # the newest that ONNX Runtime 1.31 takes
OLDEST = 20  # the first with all operators of our graphs
LARGEST_FILE = 2**31 - 2**25  # a file is one protocol buffer of less than 2 GiB, nodes included
SMALL = 1_024  # bytes: smaller constants stay in the file
EXTERNAL = "_data"  # after the name of a graph: the file with the weights that are stored beside it
PRODUCER = "glassbert"
RUNTIME_DOMAIN = "com.microsoft"  # operators that only ONNX Runtime has, for quantised weights


def require(package: str) -> None:
    """Raise `EngineError` if this package of the extra `onnx` is not installed."""
    if importlib.util.find_spec(package) is None:
        raise EngineError(needs("ONNX", package))


def write_onnx(
    graph: Finished,
    path: str | Path,
    metadata: dict[str, str] | None = None,
    *,
    opset: int = OPSET,
    largest: int = LARGEST_FILE,
) -> list[Path]:
    """Write the graph, and `path` + "_data" if it has more than `largest` bytes of constants; returns the files."""
    require("onnx")
    check_opset(opset)
    path = Path(path)
    graph = with_transposed_weights(graph)
    total = sum(values.nbytes for values in graph.constants.values())
    external = path.with_name(path.name + EXTERNAL) if total > largest else None
    stored: dict[str, tuple[int, int]] = {}
    if external is not None:
        with atomic_write(external, "wb") as file:
            for name, values in graph.constants.items():
                if values.nbytes > SMALL:
                    file.write(b"\0" * (-file.tell() % 64))
                    stored[name] = file.tell(), values.nbytes
                    file.write(_little(values).tobytes())
    model = as_proto(graph, metadata or {}, opset, stored, external.name if external is not None else "")
    with atomic_write(path, "wb") as file:
        file.write(model.SerializeToString())
    if external is None:  # of an earlier, larger model
        path.with_name(path.name + EXTERNAL).unlink(missing_ok=True)
    return [path] if external is None else [path, external]


def check_opset(opset: int) -> None:
    if not OLDEST <= opset <= OPSET:
        raise ConfigError(f"graphs are written with an opset from {OLDEST} to {OPSET}, not {opset}")


def as_proto(
    graph: Finished,
    metadata: dict[str, str],
    opset: int = OPSET,
    stored: dict[str, tuple[int, int]] | None = None,
    location: str = "",
) -> Any:
    """The graph as a ModelProto; `stored` has offset and length of the constants that are in another file."""
    from onnx import helper

    proto = helper.make_graph(
        [_node(node) for node in graph.nodes],
        "glassbert",
        [_value_info(name, symbol) for name, symbol in graph.inputs.items()],
        [_value_info(name, symbol) for name, symbol in graph.outputs.items()],
        [_tensor(name, values, (stored or {}).get(name), location) for name, values in graph.constants.items()],
        value_info=[_value_info(name, one) for name, one in graph.values.items() if name not in graph.outputs],
    )
    operators = [helper.make_opsetid("", opset)]
    version = helper.find_min_ir_version_for(operators)
    if any(node.operator in OF_RUNTIME for node in graph.nodes):
        operators.append(helper.make_opsetid(RUNTIME_DOMAIN, 1))
    model = helper.make_model(proto, producer_name=PRODUCER, opset_imports=operators, ir_version=version)
    helper.set_model_props(model, metadata)
    return model


def with_transposed_weights(graph: Finished) -> Finished:
    """The same with matrices stored as products read them, where nothing else reads them: `NAME.T` in place of NAME."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    constants, replaced, dropped = {}, {}, set()
    for name, values in graph.constants.items():
        users = readers.get(name, [])
        turned = len(users) == 1 and users[0].operator == "Transpose" and values.ndim == 2
        if not turned:
            constants[name] = values
            continue
        constants[f"{name}.T"] = np.ascontiguousarray(values.T)
        replaced[users[0].outputs[0]] = f"{name}.T"
        dropped.add(id(users[0]))
    nodes = [
        node._replace(inputs=tuple(replaced.get(name, name) for name in node.inputs))
        for node in graph.nodes
        if id(node) not in dropped
    ]
    left = {name: symbol for name, symbol in graph.values.items() if name not in replaced}
    return Finished(nodes, constants, graph.inputs, graph.outputs, left)


def _node(node: Node) -> Any:
    from onnx import helper

    attributes: dict[str, Any] = {
        name: _type(value) if name == "to" else value for name, value in node.attributes.items()
    }
    domain = RUNTIME_DOMAIN if node.operator in OF_RUNTIME else None
    return helper.make_node(node.operator, node.inputs, node.outputs, name=f"{node.operator}/{node.outputs[0]}",
                            domain=domain, **attributes)  # fmt: skip


def _value_info(name: str, symbol: Symbol) -> Any:
    from onnx import helper

    shape = [str(size).replace(" ", "") if isinstance(size, Size) else int(size) for size in symbol.shape]
    return helper.make_tensor_value_info(name, _type(symbol.dtype), shape)


def _tensor(name: str, values: np.ndarray, stored: tuple[int, int] | None, location: str) -> Any:
    from onnx import TensorProto, numpy_helper

    if stored is None:
        return numpy_helper.from_array(_little(values), name)
    tensor = TensorProto(name=name, data_type=_type(values.dtype), dims=values.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", stored[0]), ("length", stored[1])):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _type(dtype: Any) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _little(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, values.dtype.newbyteorder("<"), order="C")
