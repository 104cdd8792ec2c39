"""Exported folders: layout, external data, the command line, ONNX Runtime in the predictor, and errors."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import glassbert
from glassbert.cli import main
from glassbert.errors import CheckpointError, ConfigError, EngineError, InputError
from glassbert.export import export_onnx, open_onnx
from glassbert.export.writing import OPSET
from glassbert.families.bert import BertConfig, BertWithHead
from glassbert.files import CHECKSUMS
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.predictor import Predictor
from tests.export.small import make_model
from tests.export.test_gradients import train_here
from tests.finetuning.test_predictor import HEADS, TOKENIZER, save

TEXTS = {
    "token": [["the", "king", "sings"], ["a", "house"]],
    "span": [("who sings", "the king sings"), ("what falls", "the night falls " * 6)],
}
PLAIN = ["the bird sings", "a bitter night", "king " * 40]
SIZES = {
    "vocab_size": TOKENIZER.vocab_size, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32,
    "num_hidden_layers": 1, "max_position_embeddings": 24, "initializer_range": 0.5,
}  # fmt: skip


@pytest.fixture
def classes(tmp_path):
    """A folder in the layout of transformers, with names of labels."""
    folder = tmp_path / "classes"
    model = BertWithHead(BertConfig(**SIZES), "multiclass", 3, engine="numpy", seed=1)
    model.save(folder, tokenizer=TOKENIZER, labels=["a", "b", "c"])
    return folder


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_a_new_folder_has_config_and_tokenizer_and_no_weights_but_the_graph(classes, tmp_path):
    written = export_onnx(classes, tmp_path / "new", with_gradients=True)
    graphs = {f"onnx/{name}.onnx" for name in ("model", "parameters", "forward", "gradients", "sgd", "adamw")}
    assert files_in(tmp_path / "new") >= {"config.json", "tokenizer.json", *graphs}
    assert not list((tmp_path / "new").rglob("*.safetensors"))
    assert {path.relative_to(tmp_path / "new").as_posix() for path in written.files} == graphs
    assert json.loads((tmp_path / "new/config.json").read_text())["id2label"] == {"0": "a", "1": "b", "2": "c"}
    for path in written.files:
        onnx.checker.check_model(onnx.load(path), full_check=True)
    for name in ("forward", "gradients", "sgd", "adamw"):  # they hold no weights
        graph = onnx.load(tmp_path / f"new/onnx/{name}.onnx").graph
        assert all(len(tensor.raw_data) < 400 for tensor in graph.initializer), name


def test_without_a_folder_the_graph_is_written_beside_the_weights(classes):
    before = {name: (classes / name).read_bytes() for name in files_in(classes)}
    del before[CHECKSUMS]  # it lists the graph afterwards
    export_onnx(classes)
    assert files_in(classes) == {*before, CHECKSUMS, "onnx/model.onnx"}
    assert all((classes / name).read_bytes() == content for name, content in before.items())
    export_onnx(classes, dtype="float16")  # again, with another precision
    assert files_in(classes) == {*before, CHECKSUMS, "onnx/model.onnx", "onnx/model_fp16.onnx"}


def test_a_changed_graph_is_noticed(classes, tmp_path):
    export_onnx(classes)
    export_onnx(classes, tmp_path / "new")
    for folder in (classes, tmp_path / "new"):
        for name in ("onnx/model.onnx", "config.json"):
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            with pytest.raises(CheckpointError, match=f"{name} has changed since it was written"):
                open_onnx(folder)
            (folder / name).write_bytes(content)
        open_onnx(folder)


def test_the_graph_says_what_it_is(classes):
    (path,) = export_onnx(classes).files
    model = onnx.load(path)
    assert model.opset_import[0].version == OPSET and model.producer_name == "glassbert"
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    row = ["batch", "length"]
    assert shapes == {"input_ids": row, "attention_mask": row, "token_type_ids": row, "logits": ["batch", 3]}


@pytest.mark.parametrize("opset", [20, 21, 26])
def test_opsets(classes, opset):
    (path,) = export_onnx(classes, opset=opset).files
    assert onnx.load(path).opset_import[0].version == opset
    ids = np.array([[2, 9, 11, 3]])
    expected = glassbert.load(classes, engine="numpy").predict(ids)
    np.testing.assert_allclose(open_onnx(classes).predict(ids), expected, rtol=1e-5, atol=1e-5)


def test_weights_beyond_the_limit_are_stored_beside_the_graph(classes, tmp_path):
    written = export_onnx(classes, tmp_path / "new", largest=10_000, with_gradients=True)
    names = {path.name for path in written.files}
    assert {"model.onnx", "model.onnx_data", "parameters.onnx_data", "gradients.onnx"} <= names
    assert (tmp_path / "new/onnx/model.onnx").stat().st_size < (
        tmp_path / "new/onnx/model.onnx_data"
    ).stat().st_size * 3
    assert "gradients.onnx_data" not in names
    onnx.checker.check_model(str(tmp_path / "new/onnx/model.onnx"))
    ids = np.array([[2, 9, 11, 3]])
    expected = glassbert.load(classes, engine="numpy").predict(ids)
    np.testing.assert_allclose(open_onnx(tmp_path / "new").predict(ids), expected, rtol=1e-5, atol=1e-5)


def test_old_external_data_is_removed(classes):
    export_onnx(classes, largest=10_000)
    assert (classes / "onnx/model.onnx_data").exists()
    export_onnx(classes)
    assert files_in(classes / "onnx") == {"model.onnx"}


def test_a_folder_of_sentence_transformers(tmp_path):
    """Pooling and norm are inside the graph, and the modules beside it."""
    source = tmp_path / "sentences"
    BertWithHead(BertConfig(**SIZES, classifier_pooling="mean", pooler=False), "embedding", engine="numpy").save(
        source, tokenizer=TOKENIZER
    )
    export_onnx(source, tmp_path / "new")
    assert files_in(tmp_path / "new") >= {"modules.json", "1_Pooling/config.json", "onnx/model.onnx"}
    vectors = open_onnx(tmp_path / "new").run_graph(np.array([[2, 9, 3], [2, 3, 0]]), np.array([[1, 1, 1], [1, 1, 0]]))
    np.testing.assert_allclose(np.linalg.norm(vectors["sentence_embedding"], axis=1), 1.0, rtol=1e-5)
    assert vectors["last_hidden_state"].shape == (2, 3, 16)


def test_another_head(classes, tmp_path):
    export_onnx(classes, tmp_path / "core", head="core")
    found = open_onnx(tmp_path / "core").run_graph(np.array([[2, 9, 3]]))
    assert set(found) == {"last_hidden_state", "pooler_output"}


def test_the_loop_of_the_page_trains(classes, tmp_path, monkeypatch, capsys):
    """docs/onnx.md: ONNX Runtime alone, with the losses of our SGD."""
    page = (Path(__file__).parents[2] / "docs/onnx.md").read_text(encoding="utf-8")
    (loop,) = (block for block in re.findall(r"```python\n(.*?)```", page, flags=re.S) if "def opened" in block)
    export_onnx(classes, tmp_path / "stars-training", with_gradients=True)
    monkeypatch.chdir(tmp_path)
    model = glassbert.load(classes, engine="numpy", threads=1)
    ids = np.array([[2, 9, 11, 3], [2, 30, 3, 0]])
    batch = {"input_ids": ids, "attention_mask": (ids > 0).astype(int), "token_type_ids": np.zeros_like(ids),
             "labels": np.array([2, 0])}  # fmt: skip
    exec(compile(loop, "docs/onnx.md", "exec"), {"batch": batch})
    found = [float(line) for line in capsys.readouterr().out.split()]
    np.testing.assert_allclose(found, train_here(model, "sgd", {}, batch, 0.02, 20), atol=1e-4)
    assert len(found) == 20 and found[-1] < found[0]


# ---- the predictor ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
def test_the_predictor_has_the_same_numbers(tmp_path, head):
    """Every head, with texts of several windows; also where only the exported folder is left."""
    source = save(tmp_path / "model", head, **({"pair": "other"} if head == "embedding" else {}))
    here = Predictor.load(source, engine="numpy", threads=1).predict(TEXTS.get(head, PLAIN))
    export_onnx(source, tmp_path / "exported")
    shutil.rmtree(source)
    there = Predictor.load(tmp_path / "exported", engine="onnxruntime", threads=1).predict(TEXTS.get(head, PLAIN))
    if head == "embedding":
        np.testing.assert_allclose(there.outputs, here.outputs, rtol=1e-4, atol=1e-5)
        return
    if head == "regression":
        np.testing.assert_allclose(there.answers(), here.answers(), rtol=1e-5)
        return
    assert there.answers() == here.answers()
    if head in ("binary", "multiclass", "multilabel", "ordinal"):
        np.testing.assert_allclose(there.probabilities(), here.probabilities(), atol=1e-5)


def test_the_predictor_finds_the_graph_of_a_run(tmp_path):
    run = tmp_path / "run"
    save(run / "model", "multiclass")
    (run / "settings.json").write_text("{}")
    export_onnx(run)
    found = Predictor.load(run, engine="onnxruntime").predict(PLAIN).answers()
    assert found == Predictor.load(run, engine="numpy").predict(PLAIN).answers()


def test_a_folder_with_a_graph_in_float16_alone_is_opened(classes, tmp_path):
    written = export_onnx(classes, tmp_path / "half", dtype="float16")
    ids = np.array([[2, 9, 11, 3]])
    expected = glassbert.load(classes, engine="numpy").predict(ids)
    np.testing.assert_allclose(open_onnx(written.folder).predict(ids), expected, rtol=0.01, atol=0.01)


def test_two_sessions_at_once(classes):
    """Sessions share nothing: threads may predict with two models of one folder."""
    export_onnx(classes)
    models = [open_onnx(classes, threads=1) for _ in range(2)]
    ids = np.array([[2, 9, 11, 3]])
    np.testing.assert_array_equal(models[0].predict(ids), models[1].predict(ids))


# ---- errors ----------------------------------------------------------------------------------------------------------


def change_config(folder, **changes):
    """As in a folder whose checksums were removed, or that another program wrote."""
    (folder / CHECKSUMS).unlink(missing_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_graph_that_does_not_match_its_config(classes):
    export_onnx(classes)
    change_config(classes, hidden_act="relu")
    with pytest.raises(CheckpointError, match=r"config.json has hidden_act = 'relu', and the graph in onnx/ .* 'gelu'"):
        open_onnx(classes)
    change_config(classes, hidden_act="gelu", id2label={"0": "x", "1": "y"})
    with pytest.raises(CheckpointError, match="names 2 labels, and the graph in onnx/ has 3"):
        open_onnx(classes)
    change_config(classes, id2label={"0": "x", "1": "y", "2": "z"})  # labels may have other names
    open_onnx(classes)
    change_config(classes, num_hidden_layers=5)
    with pytest.raises(CheckpointError, match="num_hidden_layers = 5"):
        open_onnx(classes)


def test_a_graph_whose_config_has_a_field_of_several_values(tmp_path):
    make_model("deberta", "discriminator").save(tmp_path, tokenizer=TOKENIZER)
    export_onnx(tmp_path)
    open_onnx(tmp_path)
    change_config(tmp_path, pos_att_type=["c2p"])
    with pytest.raises(CheckpointError, match=r"pos_att_type = \['c2p'\], and the graph .* \['c2p', 'p2c'\]"):
        open_onnx(tmp_path)


def test_a_card_that_does_not_match_the_graph(tmp_path):
    source = save(tmp_path / "model", "multiclass")
    export_onnx(source)
    TaskCard(title="toy", head="multiclass", labels=("a", "b"), text="text", target="y").save(source)
    with pytest.raises(CheckpointError, match="do not belong together"):
        Predictor.load(source, engine="onnxruntime")


def test_folders_without_a_usable_graph(classes, tmp_path):
    with pytest.raises(
        CheckpointError, match=r"there is no .*model.onnx; write it with: glassbert export .* --format onnx$"
    ):
        open_onnx(classes)
    with pytest.raises(CheckpointError, match="--dtype float16"):
        open_onnx(classes, "float16")
    with pytest.raises(ConfigError, match="exported graphs are float32 or float16, not 'float64'"):
        open_onnx(classes, "float64")
    (classes / "onnx").mkdir()
    (classes / "onnx/model.onnx").write_bytes(b"no graph")
    with pytest.raises(CheckpointError, match="ONNX Runtime cannot open"):
        open_onnx(classes)
    x = onnx.helper.make_tensor_value_info("x", 1, [1])
    y = onnx.helper.make_tensor_value_info("y", 1, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    opset = [onnx.helper.make_opsetid("", 21)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), classes / "onnx/model.onnx")
    with pytest.raises(CheckpointError, match="was not written by GlassBERT"):
        open_onnx(classes)


def test_an_exported_folder_has_no_weights_to_load(classes, tmp_path):
    export_onnx(classes, tmp_path / "new")
    with pytest.raises(CheckpointError, match=r"only an exported graph.* --engine onnxruntime"):
        glassbert.load(tmp_path / "new")


def test_external_data_that_is_missing(classes):
    export_onnx(classes, largest=10_000)
    (classes / "onnx/model.onnx_data").unlink()
    with pytest.raises(CheckpointError, match=r"model\.onnx_data is missing"):
        open_onnx(classes)
    (classes / CHECKSUMS).unlink()
    with pytest.raises(CheckpointError, match="ONNX Runtime cannot open"):
        open_onnx(classes)


def test_the_target_must_be_new(classes, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    with pytest.raises(CheckpointError, match="exists and is not empty"):
        export_onnx(classes, tmp_path / "full")
    assert files_in(tmp_path / "full") == {"file"} and not list(tmp_path.glob(".full-*"))
    (tmp_path / "empty").mkdir()
    export_onnx(classes, tmp_path / "empty")
    with pytest.raises(CheckpointError, match="mini ships with GlassBERT, and its folder is not changed"):
        export_onnx("mini")


def test_inputs_that_the_graph_does_not_read(classes):
    export_onnx(classes)
    model = open_onnx(classes)
    with pytest.raises(InputError, match="takes no segment_ids"):
        model.predict(np.array([[2, 9, 3]]), segment_ids=np.array([[1, 1, 2]]))
    with pytest.raises(InputError, match="takes no position_ids"):
        model.predict(np.array([[2, 9, 3]]), position_ids=np.array([[3, 4, 5]]))
    with pytest.raises(InputError, match="not one of pairs"):
        model.predict(np.array([[2, 9, 3]]), np.ones((1, 3, 3)))
    with pytest.raises(InputError, match="outside the vocabulary"):
        model.predict(np.array([[2, 90_000, 3]]))
    with pytest.raises(InputError, match="longer than the 24 positions"):
        model.predict(np.full((1, 25), 5))
    with pytest.raises(InputError, match="runs in ONNX Runtime"):
        model.forward(np.array([[2, 9, 3]]))


def test_without_the_extra(classes, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("onnx") else real(name))
    with pytest.raises(EngineError, match=r"ONNX needs onnx: pip install onnx"):
        export_onnx(classes)
    with pytest.raises(EngineError, match="ONNX needs onnxruntime"):
        open_onnx(classes)


def test_importing_the_package_needs_no_onnx():
    code = (
        "import sys, glassbert.finetuning, glassbert.export; print('onnx' in sys.modules, 'onnxruntime' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


# ---- the command -----------------------------------------------------------------------------------------------------


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["export", *map(str, arguments)])
    return ended.value.code


def test_the_command(classes, tmp_path, capsys):
    assert command(classes, "--format", "onnx", "-o", tmp_path / "new", "--with-gradients") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "inputs input_ids, attention_mask, token_type_ids outputs logits" in printed
    assert "ONNX Runtime and NumPy differ by at most" in printed and "adamw.onnx" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "torch"), "there is no format 'torch'"),
        (("--format", "onnx", "--name", "x"), "--name and --notes belong to the model card"),
        (("--with-gradients", "-o", "x"), "--with-gradients belongs to --format onnx"),
        (("--head", "core", "-o", "x"), "--head belongs to --format onnx"),
        ((), "name the new folder: -o DIR"),
        (("--format", "onnx", "--dtype", "int8"), "ONNX is written in float32 or float16, not 'int8'"),
        (("--format", "onnx", "--opset", "12"), "an opset from 20 to 26, not 12"),
        (("--opset", "21", "-o", "x"), "--opset belongs to --format onnx"),
        (("--format", "onnx", "--head", "forecast"), "this encoder reads texts"),
        (("--format", "onnx", "--head", "span"), "has no weights for head.classifier"),
        (("--format", "onnx", "--head", "causal"), "a causal head predicts the next token"),
    ],
)
def test_errors_of_the_command(classes, arguments, message, capsys):
    assert command(classes, *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_gradients_of_a_model_without_a_head(tmp_path, capsys):
    glassbert.BertCore(BertConfig(**SIZES), engine="numpy").save(tmp_path / "core", tokenizer=TOKENIZER)
    assert command(tmp_path / "core", "--format", "onnx", "--with-gradients") == 2
    assert "no gradients to export" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "core/onnx").exists()
