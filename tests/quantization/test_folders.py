"""Quantised folders: what they hold, that they open everywhere, and what a damaged one says."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import glassbert
from glassbert.errors import CheckpointError, ConfigError, InputError
from glassbert.finetuning.embedding import embedder
from glassbert.finetuning.low_rank import LowRank
from glassbert.finetuning.predictor import Predictor
from glassbert.models.quantized import QuantizedModel, bytes_of
from glassbert.ops import QuantizedArray
from glassbert.proof.proof import mlx_in_words
from glassbert.quantization import QuantizationSettings, quantize, quantize_model
from tests.finetuning.toy import QUICK, sentences, write_csv

IDS = np.array([[2, 20, 30, 25, 3], [2, 40, 3, 0, 0]])
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.mark.parametrize("bits", [8, 4])
def test_a_folder_opens_with_the_same_numbers_and_small_in_memory(folders, toy, bits):
    found = folders[bits]
    opened = glassbert.load(found.folder, engine="numpy", threads=1)
    assert isinstance(opened, QuantizedModel) and opened.quantized.keys() == found.model.quantized.keys()
    assert np.array_equal(opened.predict(IDS, MASK), found.model.predict(IDS, MASK))
    assert isinstance(opened.parameters["embeddings.token"], QuantizedArray)
    assert bytes_of(opened) < bytes_of(glassbert.load(toy, engine="numpy")) / {8: 3, 4: 4}[bits]
    exact = glassbert.load(toy, engine="numpy").predict(IDS, MASK)
    assert np.abs(opened.predict(IDS, MASK) - exact)[MASK == 1].max() < {8: 0.05, 4: 0.3}[bits] * np.abs(exact).max()


def test_tensors_are_codes_with_scales_and_have_checksums(folders):
    folder = folders[4].folder
    tensors = load_file(folder / "model.safetensors")
    name = "layers.0.ffn.up.weight"
    assert tensors[f"{name}.codes"].dtype == np.uint8 and tensors[f"{name}.codes"].shape == (128, 32)
    assert tensors[f"{name}.scales"].shape == tensors[f"{name}.offsets"].shape == (128, 2)
    assert json.loads((folder / "config.json").read_text())["quantization"]["weights"][name]["bits"] == 4
    assert "model.safetensors" in json.loads((folder / "checksums.json").read_text())["files"]


def test_saving_it_again_gives_the_same_file(folders, tmp_path):
    glassbert.load(folders[4].folder, engine="numpy").save(tmp_path)
    again, first = (load_file(where / "model.safetensors") for where in (tmp_path, folders[4].folder))
    assert again.keys() == first.keys() and all(np.array_equal(again[name], first[name]) for name in first)


@pytest.mark.skipif(mlx_in_words() is None, reason="MLX is not installed")
@pytest.mark.parametrize("bits", [8, 4])
def test_mlx_opens_it_with_the_same_numbers_and_saves_the_same(folders, bits, tmp_path):
    opened = glassbert.load(folders[bits].folder, engine="mlx")
    expected = folders[bits].model.predict(IDS, MASK, skip_padding=False)
    assert np.allclose(opened.engine.to_numpy(opened.predict(IDS, MASK)), expected, atol=2e-2)
    opened.save(tmp_path)
    again, first = (load_file(where / "model.safetensors") for where in (tmp_path, folders[bits].folder))
    name = "layers.0.attention.qkv.weight.codes"
    assert np.array_equal(again[name], first[name])


def test_words_vectors_and_heads_work_on_it(folders):
    vectors = embedder(folders[8].folder, engine="numpy").predict(["the bird sings", "a stone falls"]).vectors
    assert vectors.shape == (2, 64) and np.isfinite(vectors).all()
    with pytest.warns(UserWarning, match="initialised at random"):
        model = glassbert.load(folders[8].folder, head="multiclass", num_labels=3, engine="numpy")
    assert model.predict(IDS, MASK).shape == (2, 3) and isinstance(model, QuantizedModel)


def test_biases_and_norms_have_the_gradients_of_the_same_model_in_floats(toy):
    model = glassbert.load(toy, engine="numpy", dtype="float64", threads=2)
    found = quantize_model(model, QuantizationSettings(8, group=32, symmetric=False))
    found = QuantizedModel(model, {k: type(v)(**{**v.__dict__, "rounding": None}) for k, v in found.quantized.items()})
    labels = np.where(MASK == 1, IDS, -100)
    results = []
    for one in (found, found.in_floats()):
        loss, cache = one.loss(IDS, labels, MASK)
        results.append((loss, one.backward(cache)))
    (loss, gradients), (other, expected) = results
    assert np.isclose(loss, other) and not set(gradients) & set(found.quantized)
    for name in gradients:
        assert np.allclose(gradients[name], expected[name], atol=1e-10), name


def test_adapters_train_over_frozen_codes_and_merge_into_floats(folders):
    base = glassbert.load(folders[4].folder, engine="numpy", threads=1)
    model = LowRank(base, rank=2, targets=("query", "value", "ffn"))
    name = next(name for name in model.parameters if name.endswith(".b"))
    model.parameters[name] = np.full(model.layout.shapes[name], 0.05)
    labels = np.where(MASK == 1, IDS, -100)
    _, cache = model.loss(IDS, labels, MASK)
    gradients = model.backward(cache)
    assert all(np.isfinite(gradients[one]).all() for one in gradients) and gradients[name].any()
    merged = model.merge()
    assert not isinstance(merged, QuantizedModel)
    assert np.allclose(merged.predict(IDS, MASK), model.predict(IDS, MASK), atol=1e-4)


def test_all_weights_of_a_quantised_model_cannot_be_trained(folders):
    model = glassbert.load(folders[8].folder, engine="numpy")
    with pytest.raises(ConfigError, match="quantised weights are frozen; train a change of low rank"):
        model.set_training(True)
    with pytest.raises(ConfigError, match="quantised weights are frozen"):
        _ = model.parameters.flat
    with pytest.raises(ConfigError, match=r"embeddings\.token is quantised"):
        model.parameters["embeddings.token"] = np.zeros((3, 3))


def test_finetuning_goes_on_from_it_with_adapters_and_its_run_can_be_quantised(folders, tmp_path):
    examples = write_csv(tmp_path / "train.csv", ["text", "label"], sentences(40))
    run = tmp_path / "run"
    options = {**QUICK, "model": str(folders[8].folder), "train": str(examples), "target": "label", "epochs": 1}
    glassbert.finetune(run=run, **options, low_rank=2, seeds=1)
    found = quantize(run, tmp_path / "small", QuantizationSettings(8), sensitivity=False, threads=1)
    assert "held-out examples of the run" in found.task
    assert [one.name for one in found.compared] == ["auc", "accuracy"]
    predictor = Predictor.load(tmp_path / "small", engine="numpy")
    assert isinstance(predictor.model, QuantizedModel)
    assert predictor.predict("a lovely house").answers()[0] in ("good", "bad")
    agreed = quantize(run, None, data=write_lines(tmp_path / "t.txt"), sensitivity=False, threads=1)
    assert agreed.compared[0].name == "same answers" and agreed.compared[0].after > 0.9


def test_a_cross_validation_is_measured_on_what_its_model_has_not_learned(folders, tmp_path, monkeypatch):
    examples = write_csv(tmp_path / "train.csv", ["text", "label"], sentences(40))
    options = {**QUICK, "model": str(folders[8].folder), "train": "train.csv", "target": "label", "epochs": 1}
    monkeypatch.chdir(tmp_path)
    glassbert.finetune(run="run", **options, low_rank=2, seeds=1, folds=2)
    found = quantize("run", None, sensitivity=False, threads=1)
    assert found.compared[0].examples == len((tmp_path / "run/final/predictions.jsonl").read_text().splitlines()) < 20
    examples.rename(tmp_path / "moved.csv")
    with pytest.raises(InputError, match=r"are read from train\.csv, and there is no such file here; .* with --data"):
        quantize("run", None, sensitivity=False, threads=1)


def write_lines(path):
    path.write_text("".join(f"{text}\n" for text, _ in sentences(20, seed=5)), encoding="utf-8")
    return path


# ---- bad input -----------------------------------------------------------------------------------------------------


def test_quantising_twice_is_refused(folders, tmp_path):
    with pytest.raises(InputError, match="is quantised already; quantise the model that it was made from"):
        quantize(folders[8].folder, tmp_path / "again")


@pytest.mark.parametrize("content", ["", "\n\n  \n", "... --- !!!\n"])
def test_a_calibration_file_without_text_is_refused(toy, tmp_path, content):
    path = tmp_path / "empty.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(glassbert.GlassBertError, match=r"no text|empty"):
        quantize(toy, tmp_path / "out", QuantizationSettings(8, method="static"), data=path)
    assert not (tmp_path / "out").exists()


def test_static_needs_text_and_settings_are_checked(toy, texts, tmp_path):
    with pytest.raises(InputError, match="calibrated with real text; name a file of texts with --data"):
        quantize(toy, tmp_path / "out", QuantizationSettings(method="static"))
    with pytest.raises(InputError, match="there is no file"):
        quantize(toy, tmp_path / "out", data=tmp_path / "missing.txt")
    with pytest.raises(InputError, match="there is no method 'fast'"):
        QuantizationSettings(method="fast")
    with pytest.raises(InputError, match="allowed loss"):
        quantize(toy, tmp_path / "out", data=texts, max_loss=-1.0)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    with pytest.raises(CheckpointError, match="exists and is not empty"):
        quantize(toy, tmp_path / "full", data=texts)


def test_heads_that_have_no_text_or_a_generator_are_refused():
    from glassbert.families.electra import ElectraConfig
    from glassbert.models.model import Model
    from glassbert.quantization.settings import check_quantizable
    from tests.export.small import toy as small

    config: ElectraConfig = small("electra")
    with pytest.raises(InputError, match="generator that is only used in training"):
        check_quantizable(Model(config, "rtd", engine="numpy"), "runs/electra")


@pytest.fixture
def damaged(folders, tmp_path, without_checksums):
    """A copy of a folder, and a function that changes its tensors and the fields of its config."""
    folder = tmp_path / "damaged"
    shutil.copytree(folders[8].folder, folder)

    def change(tensors=lambda found: None, fields=lambda found: None):
        found = load_file(folder / "model.safetensors")
        tensors(found)
        save_file(found, folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        fields(config)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return change


NAME = "layers.0.ffn.up.weight"


@pytest.mark.parametrize(
    ("tensors", "fields", "problem"),
    [
        (lambda t: t.pop(f"{NAME}.scales"), None, f"missing from the file: {NAME}.scales"),
        (lambda t: t.pop(f"{NAME}.codes"), None, f"missing from the file: {NAME}.codes"),
        (lambda t: t.update({f"{NAME}.codes": t[f"{NAME}.codes"][:5]}), None, "but config.json makes it I8"),
        (lambda t: t.update({f"{NAME}.codes": t[f"{NAME}.codes"].astype(np.int32)}), None, "is I32"),
        (lambda t: t.update({f"{NAME}.scales": t[f"{NAME}.scales"][:3]}), None, "does not fit its codes"),
        (lambda t: t.update({f"{NAME}.scales": t[f"{NAME}.scales"] * np.nan}), None, "not finite"),
        (None, lambda f: f["quantization"]["weights"][NAME].update(bits=3), "in a way that does not exist"),
        (None, lambda f: f["quantization"]["weights"][NAME].pop("shape"), "does not describe how"),
        (None, lambda f: f["quantization"]["weights"][NAME].update(bits=float("inf")), "does not describe how"),
        (None, lambda f: f["quantization"]["weights"][NAME].update(activations=[2.0, 1.0]), "does not exist"),
        (None, lambda f: f["quantization"].update(version=9), "it knows version 1"),
        (None, lambda f: f.update(quantization=7), "it knows version 1"),
        (None, lambda f: f["quantization"]["weights"].pop(NAME), "tensors are missing"),
        (None, lambda f: f.update(hidden_size=32), "shape"),
    ],
)
def test_a_damaged_folder_names_what_is_wrong(damaged, tensors, fields, problem):
    nothing = lambda found: None  # noqa: E731
    folder = damaged(tensors or nothing, fields or nothing)
    with pytest.raises(CheckpointError, match=problem) as error:
        glassbert.load(folder, engine="numpy")
    assert str(folder) in str(error.value)


def test_a_changed_file_is_noticed_by_its_checksum(folders, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(folders[8].folder, folder)
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum"):
        glassbert.load(folder, engine="numpy")
