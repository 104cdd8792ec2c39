"""A model is calibrated and measured on its own task: tables with numbers, pairs, questions; all activations count."""

import json
import random

import numpy as np
import pytest

import glassbert
from glassbert.errors import InputError
from glassbert.finetuning.predictor import Predictor
from glassbert.quantization import QuantizationSettings, quantize
from glassbert.quantization.calibration import Observer, observe, text_batches
from glassbert.quantization.sensitivity import distance, outputs_of
from glassbert.quantization.source import open_source, own_task, read_texts
from glassbert.text.loading import load_with_tokenizer
from tests.finetuning.toy import QUICK, WORDS, sentences, write_csv


def fine_tuned(toy, folder, columns, rows, **options):
    """A run and its training file."""
    data = write_csv(folder / "data.csv", columns, rows)
    glassbert.finetune(
        run=folder / "run", model=str(toy), train=str(data), epochs=1, batch=8, seeds=1, **QUICK, **options
    )
    return folder / "run", data


@pytest.fixture(scope="module")
def pairs(toy, tmp_path_factory):
    texts = [text for text, _ in sentences(60)]
    rows = [(text, texts[i * 7 % 60], i % 9 / 2) for i, text in enumerate(texts)]
    folder = tmp_path_factory.mktemp("pairs")
    return fine_tuned(toy, folder, ["a", "b", "y"], rows, text="a", pair="b", target="y", head="embedding")


# ---- calibration -----------------------------------------------------------------------------------------------------


def test_a_range_sees_every_column():
    model = type("Model", (), {"parameters": {"w": np.zeros((4, 768), np.float32)}})
    x = np.random.default_rng(0).standard_normal((512, 768)).astype(np.float32)
    x[:, 308] = 40
    seen = Observer(model)
    seen.linear(x, model.parameters["w"])
    low, high = seen.found()["w"].range
    assert low < -2 and high == pytest.approx(40)


def test_a_range_is_smaller_where_that_lowers_the_squared_error():
    model = type("Model", (), {"parameters": {"w": np.zeros((4, 64), np.float32)}})
    x = np.random.default_rng(0).standard_normal((2_000, 64)).astype(np.float32)
    x[0, 0] = 12
    seen = Observer(model)
    seen.linear(x, model.parameters["w"])
    assert 3 < seen.found()["w"].range[1] < 10


def test_ranges_do_not_depend_on_the_number_of_threads(toy, texts):
    found = []
    for threads in (1, 3):
        model, tokenizer = load_with_tokenizer(toy, engine="numpy", threads=threads)
        found.append(observe(model, text_batches(model, tokenizer, read_texts(texts), 128)))
    for name in found[0]:
        assert found[0][name].range == pytest.approx(found[1][name].range, rel=2e-3), name
        assert np.allclose(found[0][name].mean_square, found[1][name].mean_square, rtol=1e-4, atol=1e-6)


def test_activations_that_are_all_zero_have_a_range():
    model = type("Model", (), {"parameters": {"w": np.zeros((4, 8), np.float32)}})
    seen = Observer(model)
    seen.linear(np.zeros((3, 8), np.float32), model.parameters["w"])
    assert seen.found()["w"].range == (0.0, 1.0)


# ---- costs -----------------------------------------------------------------------------------------------------------


def test_the_change_of_a_single_output_is_relative_to_its_size():
    assert distance(np.array([[3.0, 4.0]]), np.array([[3.0, 3.5]])) == pytest.approx(0.1)
    assert distance(np.zeros((1, 2)), np.zeros((1, 2))) == 0


def test_outputs_are_those_of_real_tokens_and_their_number_is_bounded(toy, monkeypatch):
    model = glassbert.load(toy, engine="numpy", threads=1)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    batches = [{"input_ids": np.where(mask == 1, 20, 0), "attention_mask": mask}] * 2
    found = outputs_of(model, batches)
    assert found.shape == (16, model.config.vocab_size) and found.dtype == np.float32
    monkeypatch.setattr("glassbert.quantization.sensitivity.NUMBERS", 8 * model.config.vocab_size)
    assert outputs_of(model, batches).shape == (8, model.config.vocab_size)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def test_a_table_with_numbers_is_calibrated_with_its_numbers(toy, tmp_path):
    rng = random.Random(0)
    rows = [(rng.randint(0, 1000), rng.randint(1, 90), rng.choice(WORDS), rng.choice(["yes", "no"])) for _ in range(60)]
    run, data = fine_tuned(toy, tmp_path, ["size", "age", "kind", "y"], rows, target="y")
    batches = own_task(open_source(run, 1), data).batches(16, 64)
    assert all({"fields", "values"} <= inputs.keys() and "labels" not in inputs for inputs in batches)
    assert sum(len(inputs["input_ids"]) for inputs in batches) == 16
    settings = QuantizationSettings(8, method="static")
    quantize(run, tmp_path / "q", settings, data=data, sensitivity=False, threads=1)
    exact, small = (
        Predictor.load(path, engine="numpy", threads=1).predict(data).outputs for path in (run, tmp_path / "q")
    )
    assert np.corrcoef(exact, small)[0, 1] > 0.9999


def test_long_examples_are_fewer(toy, tmp_path, texts):
    run, data = fine_tuned(toy, tmp_path, ["text", "label"], sentences(40), target="label")
    task = own_task(open_source(run, 1), data)
    assert sum(len(inputs["input_ids"]) for inputs in task.batches(32, 4)) < 20


def test_a_model_of_scored_pairs_is_measured_on_them(pairs, texts, tmp_path):
    run, data = pairs
    for given, where in ((None, "the held-out examples of the run"), (data, "data.csv")):
        task = own_task(open_source(run, 1), given)
        assert task.name == "spearman" and where in task.what
    assert own_task(open_source(run, 1), texts).name == "agreement of similarities"
    found = quantize(run, tmp_path / "q", data=data, sensitivity=False, threads=1)
    assert found.compared[0].name == "spearman" and abs(found.compared[0].loss) < 0.1
    assert "Python's documentation" in own_task(open_source(run / "model", 1)).what


def test_questions_of_a_folder_without_a_card(toy, texts, tmp_path):
    with pytest.warns(UserWarning):
        model, tokenizer = load_with_tokenizer(toy, engine="numpy", head="span")
    model.save(tmp_path / "qa", tokenizer=tokenizer)
    rows = [json.dumps({"question": "who sings", "context": text}) for text, _ in sentences(20)]
    (tmp_path / "qa.jsonl").write_text("\n".join(rows), encoding="utf-8")
    found = quantize(tmp_path / "qa", tmp_path / "q", data=tmp_path / "qa.jsonl", threads=1)
    assert found.compared[0].name == "same answers" and found.compared[0].examples == 20
    assert all(0 <= one.cost[8] < 1 for one in found.costs)
    with pytest.raises(InputError, match=r"reads rows of a table with the columns question, context; .* with --data"):
        own_task(open_source(tmp_path / "qa", 1))
    with pytest.raises(InputError, match=r"--data needs rows of a table with the columns question, context$"):
        own_task(open_source(tmp_path / "qa", 1), texts)


def test_errors_of_a_data_file_name_no_flags_of_other_commands(pairs, toy, tmp_path):
    (tmp_path / "other.csv").write_text("x,y\nthe bird,1\na stone,2\n", encoding="utf-8")
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{\n', encoding="utf-8")
    (tmp_path / "odd.bin").write_bytes(bytes(range(256)))
    for name in ("other.csv", "bad.jsonl", "odd.bin"):
        with pytest.raises(InputError, match="; --data needs a file like that of the training") as error:
            own_task(open_source(pairs[0], 1), tmp_path / name)
        assert str(error.value).count("--") == 1
    with pytest.raises(InputError, match="does not show the format; --data needs one text per line, or a column"):
        own_task(open_source(toy, 1), tmp_path / "odd.bin")
