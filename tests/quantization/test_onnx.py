"""Quantised models as ONNX: the runtime's integer operators give our numbers."""

import json

import numpy as np
import pytest

import glassbert
from glassbert.errors import CheckpointError, ConfigError
from glassbert.export import compare_with_model, export_onnx, open_onnx, record_gradients, record_model
from glassbert.files import CHECKSUMS
from glassbert.finetuning.predictor import Predictor
from glassbert.quantization import QuantizationSettings, quantize, quantize_model
from glassbert.text.loading import load_with_tokenizer

IDS = np.array([[2, 20, 30, 25, 3], [2, 40, 3, 0, 0]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
KINDS = {
    "8 bits, dynamic": ({"bits": 8}, {"DynamicQuantizeMatMul"}, 0.03),
    "8 bits, static": ({"bits": 8, "method": "static"}, {"QuantizeLinear", "MatMulIntegerToFloat"}, 0.01),
    "8 bits, groups": ({"bits": 8, "group": 32}, set(), 0.03),
    "4 bits, groups": ({"bits": 4}, {"MatMulNBits", "BitShift"}, 1e-4),
    "4 bits, rows": ({"bits": 4, "group": 0}, {"BitShift"}, 1e-4),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_has_integer_operators_and_our_numbers(kind, toy, texts, tmp_path):
    options, operators, tolerance = KINDS[kind]
    quantize(toy, tmp_path / "q", QuantizationSettings(**options), data=texts, sensitivity=False, threads=1)
    written = export_onnx(tmp_path / "q")
    graph = next(iter(written.graphs.values()))
    assert operators <= {node.operator for node in graph.nodes}
    expected, found = written.model.predict(IDS, MASK), open_onnx(tmp_path / "q", threads=1).predict(IDS, MASK)
    assert np.abs(expected - found)[MASK == 1].max() < tolerance * np.abs(expected).max()
    assert compare_with_model(written) is not None


def test_the_file_is_small_and_the_predictor_opens_it(toy, texts, tmp_path):
    with pytest.warns(UserWarning):
        model, tokenizer = load_with_tokenizer(toy, engine="numpy", head="embedding", pooling="attention")
    model.save(tmp_path / "vectors", tokenizer=tokenizer)
    quantize(tmp_path / "vectors", tmp_path / "q", data=texts, sensitivity=False, threads=1)
    export_onnx(tmp_path / "q", tmp_path / "graph")
    export_onnx(tmp_path / "vectors", tmp_path / "floats")
    sizes = [(tmp_path / name / "onnx" / "model.onnx").stat().st_size for name in ("graph", "floats")]
    codes = sum(weight.size for weight in glassbert.load(tmp_path / "q", engine="numpy").quantized.values())
    assert sizes[1] - sizes[0] > 2 * codes
    graph = Predictor.load(tmp_path / "graph", engine="onnxruntime", threads=1)
    ours = Predictor.load(tmp_path / "q", engine="numpy", threads=1)
    one, two = (each.predict(["the bird sings", "a stone"]).vectors for each in (graph, ours))
    assert (one * two).sum(1) == pytest.approx(np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1), rel=0.01)


def test_what_a_quantised_model_cannot_be_exported_as(toy):
    model = quantize_model(glassbert.load(toy, engine="numpy"))
    for record in (lambda: record_model(model, "float16"), lambda: record_gradients(model)):
        with pytest.raises(ConfigError, match="a quantised model is exported in float32 and without gradients"):
            record()


def test_a_graph_beside_another_config_is_refused(toy, texts, tmp_path):
    quantize(toy, tmp_path / "q", data=texts, sensitivity=False, threads=1)
    export_onnx(tmp_path / "q", tmp_path / "graph")
    (tmp_path / "graph" / CHECKSUMS).unlink()
    path = tmp_path / "graph" / "config.json"
    fields = json.loads(path.read_text())
    del fields["quantization"]
    path.write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match="quantised in different ways; export the model again"):
        open_onnx(tmp_path / "graph")
