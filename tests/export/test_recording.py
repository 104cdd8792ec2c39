"""The engine that writes down: unknown sizes, symbols, the graph."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.engines.kernels import which
from glassbert.engines.recording import Graph, RecordingEngine, Size
from glassbert.errors import EngineError
from glassbert.export import record_gradients, record_model
from glassbert.export.recording import begin, model_outputs
from tests.export.small import batch, make_model, run, session
from tests.models.small import make
from tests.models.toy_family import TINY

BATCH, LENGTH = Size.of("batch"), Size.of("length")
SHAPE = (3, 4, 5)


def record(function, *arrays):
    """The result of a function over symbols of unknown sizes, computed by ONNX Runtime."""
    graph = Graph()
    names = iter("abcdefghijklmnop")
    symbols = [graph.input(f"x{i}", array.dtype, [next(names) for _ in array.shape]) for i, array in enumerate(arrays)]
    for i, symbol in enumerate(symbols[1:], 1):  # arrays of one shape have the sizes of the first
        if arrays[i].shape == arrays[0].shape:
            symbol.shape = symbols[0].shape
    finished = graph.finished({"y": function(*symbols)})
    return run(session(finished), {f"x{i}": array for i, array in enumerate(arrays)})["y"]


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_sizes_add_and_multiply_like_numbers():
    assert LENGTH + LENGTH == 2 * LENGTH and 2 * LENGTH - LENGTH == LENGTH
    assert (BATCH * LENGTH * 6) // (LENGTH * 2) == 3 * BATCH
    assert LENGTH - LENGTH == 0 and isinstance(LENGTH - LENGTH, int)
    assert str(2 * LENGTH - 1) == "-1 + 2*length" and str(BATCH // 2) == "batch/2"


def test_an_unknown_size_is_no_number_and_larger_than_any():
    assert LENGTH != 1 and BATCH != LENGTH and LENGTH > 100_000 and 2 * LENGTH - 1 > LENGTH
    assert not LENGTH <= 512 and max(0, LENGTH - 64) == LENGTH - 64
    for use in (range, float, np.arange, lambda size: 1 / size, lambda size: [0] * size):
        with pytest.raises(EngineError, match="the size length is not known while a graph is recorded"):
            use(LENGTH)
    with pytest.raises(TypeError, match="is no multiple of"):
        LENGTH // BATCH


@given(st.integers(1, 50), st.integers(1, 50), st.integers(-4, 4), st.integers(-4, 4), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_sizes_are_computed_when_the_graph_runs(rows, length, a, b, c):
    graph = Graph()
    x = graph.input("x", np.float32, ("batch", "length"))
    size = a * x.shape[0] * x.shape[1] + b * x.shape[1] + c
    y = graph.scalar(size) + 0 * graph.scalar(x.shape[0])
    found = run(session(graph.finished({"y": y})), {"x": np.zeros((rows, length), np.float32)})["y"]
    assert found == a * rows * length + b * length + c


# ---- symbols against NumPy -------------------------------------------------------------------------------------------

X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
INDEX = np.random.default_rng(1).integers(0, 3, SHAPE)
FUNCTIONS = {
    "first": lambda x: x[:, 0],
    "last of every axis": lambda x: x[-1, -1, -1],
    "new axes": lambda x: x[:, None, :, None, 1],
    "dots": lambda x: x[..., 2:4],
    "backwards": lambda x: x[:, ::-1],
    "from the right": lambda x: x[:, -2:, :-1],
    "whole": lambda x: x[: x.shape[0], : x.shape[1]],
    "reshape": lambda x: x.reshape(-1, x.shape[-1]),
    "reshape twice unknown": lambda x: x.reshape(x.shape[1], x.shape[0], x.shape[2]),
    "swap": lambda x: x.swapaxes(0, -1),
    "sum of two axes": lambda x: x.sum((0, -1)),
    "mean": lambda x: x.mean(1, keepdims=True),
    "count": lambda x: (x > 0).sum(),
    "any": lambda x: (x > 1).any(1),
    "largest": lambda x: x.max(-1),
    "where": lambda x: np.where(x > 0, x, 0),
    "power": lambda x: (x * x + 1) ** -0.5,
    "mixed types": lambda x: (x > 0) * x + (x > 0).astype(np.int64) / 2,
    "numpy's functions": lambda x: np.concatenate([np.sin(x), np.cos(x)], -1),
    "numpy on the left": lambda x: np.float32(2) * x + np.arange(5, dtype=np.float32),
    "product": lambda x: x @ x.swapaxes(-1, -2),
    "cumulative": lambda x: np.cumsum(x > 0, 1),
    "nothing of itself": lambda x: -abs(x) - (1 - x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_symbols_compute_as_numpy_does(name):
    function = FUNCTIONS[name]
    found, wanted = record(function, X), function(X)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_rows_that_occur_twice_add_up():
    index = np.array([2, 0, 2])
    found = record(lambda table, index, rows: table.at[index].add(rows), X[0], index, X[0][:3])
    wanted = X[0].copy()
    np.add.at(wanted, index, X[0][:3])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_expm1_keeps_its_digits():
    small = np.array([1e-6, -3e-7, 0.5], np.float32)
    np.testing.assert_allclose(record(lambda x: x.functions.expm1(x), small), np.expm1(small), rtol=1e-6)


def test_what_cannot_be_recorded_says_so():
    graph = Graph()
    x = graph.input("x", np.float32, ("batch", 4))
    with pytest.raises(EngineError, match=r"the value of x decides.*choose with xp.where"):
        bool(x)
    with pytest.raises(EngineError, match="the size batch is not known"):
        len(x)
    with pytest.raises(TypeError):
        iter(x)
    with pytest.raises(EngineError, match="do not fit each other"):
        x + graph.input("y", np.float32, ("batch", 5))
    with pytest.raises(EngineError, match="has a value 'x' already"):
        graph.input("x", np.float32, (1,))
    engine = RecordingEngine(graph)
    with pytest.raises(EngineError, match="run the graph"):
        engine.to_numpy(x)
    with pytest.raises(EngineError, match="no random numbers"):
        engine.dropout(0)
    with pytest.raises(EngineError, match="unknown kernels 'quick'"):
        RecordingEngine(graph, "quick")


# ---- graphs ----------------------------------------------------------------------------------------------------------


def test_values_have_our_names():
    """Every named value of a traced pass that is a value of the graph of its own."""
    model = make_model("bert", "multiclass", 3)
    graph = record_gradients(model)
    made = {name for node in graph.nodes for name in node.outputs}
    names = {
        *("layers.0.attention.output", "layers.1.ffn.hidden", "layers.0.attention.q", "head.pooled"),
        *("layers.1.ffn.d_hidden", "layers.0.attention.d_context", "layers.0.attention.qkv.d_weight"),
    }
    assert names <= made
    assert set(model.parameters) <= set(graph.inputs)
    assert set(model.parameters) == set(record_model(model).constants) & set(model.parameters)


def test_a_named_value_is_that_of_the_model():
    model = make_model("modernbert", "multiclass", 3)
    recording = begin(model)
    outputs = model_outputs(recording)
    inside = {name: recording.named_values()[name] for name in ("layers.1.attention.k", "layers.0.ffn.activated")}
    given = batch(model, [7, 4])
    found = run(session(recording.graph.finished(outputs | inside)), given)
    _, cache = model.forward(**given, trace=True)
    for name in inside:
        np.testing.assert_allclose(found[name], cache[name], rtol=1e-5, atol=1e-5)


def test_a_mask_is_computed_once():
    """Every layer asks for it; the graph of six layers has as many comparisons as that of two."""

    def comparisons(layers):
        nodes = record_model(make_model("gpt2", None, num_hidden_layers=layers)).nodes
        return sum(node.operator in ("Equal", "LessOrEqual", "And", "Range") for node in nodes)

    assert comparisons(6) == comparisons(2)


def test_a_graph_without_gradients_has_no_node_of_them():
    nodes = record_model(make_model("distilbert", None)).nodes
    assert not {"Exp", "Erf", "Reciprocal"} & {node.operator for node in nodes}
    assert sum(node.operator == "LayerNormalization" for node in nodes) == 5
    assert sum(node.operator == "Gelu" for node in nodes) == 2


@pytest.mark.parametrize("family", ["distilbert", "modernbert", "longformer", "deberta", "xlnet"])
def test_plain_and_fused_graphs_agree(family):
    model = make_model(family, "multiclass", 3)
    given = batch(model, [7, 1, 4])
    found = []
    for kernels in ("fast", "plain"):
        recording = begin(model, kernels=kernels)
        outputs = model_outputs(recording)
        found.append(run(session(recording.graph.finished(outputs)), given)["logits"])
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-5)


def test_which_code_records_an_operation():
    engine = RecordingEngine(Graph())
    assert [source.kernels for source in which("linear", engine)] == ["plain", "plain"]
    assert [source.kernels for source in which("layer_norm", engine)] == ["fast", "plain"]
    assert which("attention", engine)[0].file == "glassbert/engines/recording/kernels.py"


# ---- parts of one's own ----------------------------------------------------------------------------------------------

OWN = """
import sys
import numpy as np
import onnxruntime
sys.path.insert(0, sys.argv[1])
import ends, previous, swish
from tests.export.small import batch, run, session, toy
from tests.models.small import make
from glassbert.export import record_model
config = toy("bert", attention="previous", activation="swish")
model = make(config, "ends", 3, dtype="float32")
given = batch(model, [7, 4, 1])
found = run(session(record_model(model)), given)["logits"]
print(np.abs(found - model.forward(**given)[0]).max())
"""


def test_the_examples_of_extending_are_exported(tmp_path):
    """An activation, an attention and a head of one's own, as docs/extending.md has them."""
    root = Path(__file__).parents[2]
    page = (root / "docs/extending.md").read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.S):
        if block.startswith("# "):
            (tmp_path / block.split("\n", 1)[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    command = [sys.executable, "-c", OWN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) < 1e-5


def test_a_part_that_asks_for_a_length_as_a_number():
    with pytest.raises(EngineError, match=r"the size length is not known.*namespace\(x\).arange"):
        record_model(make(TINY, None, dtype="float32"))
