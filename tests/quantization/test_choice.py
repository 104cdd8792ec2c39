"""Calibration, the cost of every matrix, and the choice of bits for an allowed loss; the report and the command."""

import json

import numpy as np
import pytest

import glassbert
from glassbert.cli import main
from glassbert.errors import InputError
from glassbert.ops.quantized import TOKEN
from glassbert.quantization import Cost, QuantizationSettings, choose_bits, quantize
from glassbert.quantization.calibration import observe, text_batches
from glassbert.quantization.folder import halves
from glassbert.quantization.settings import quantizable
from glassbert.quantization.source import open_source, own_task, own_texts, read_texts
from glassbert.quantization.task import Words
from glassbert.text.loading import load_with_tokenizer

COSTS = [Cost("a", (4, 4), {8: 0.01, 4: 0.9}, 16), Cost("b", (4, 4), {8: 0.01, 4: 0.2}, 16),
         Cost("c", (40, 4), {8: 0.01, 4: 0.3}, 160)]  # fmt: skip


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["quantize", *map(str, arguments)])
    return ended.value.code or 0


def test_all_matrices_of_blocks_and_tables_are_quantised_and_no_classifier(toy):
    model = glassbert.load(toy, engine="numpy")
    names = quantizable(model)
    blocks = {"attention.qkv", "attention.output", "ffn.up", "ffn.down"}
    assert {f"layers.{i}.{one}.weight" for i in (0, 1) for one in blocks} < set(names)
    assert "embeddings.token" in names and not any("norm" in name or "bias" in name for name in names)


def test_calibration_sees_what_reaches_a_matrix(toy, texts):
    model, tokenizer = load_with_tokenizer(toy, engine="numpy", threads=2)
    seen = observe(model, text_batches(model, tokenizer, read_texts(texts), 128))
    assert {name for name in quantizable(model) if name.startswith("layers.")} <= set(seen)
    down = seen["layers.0.ffn.down.weight"]  # its input is that of a ReLU
    assert down.range[0] == 0.0 < down.range[1] and down.mean_square.shape == (128,)
    ids, mask = np.array([[2, 20, 30, 3]]), np.ones((1, 4), np.int64)
    assert np.array_equal(model.predict(ids, mask), glassbert.load(toy, engine="numpy").predict(ids, mask))
    with pytest.raises(InputError, match="calibration needs real text"):
        text_batches(model, tokenizer, ["", "  "], 128)


def test_static_ranges_are_in_the_file_and_dynamic_ones_are_not(toy, texts, tmp_path, folders):
    static = quantize(toy, tmp_path / "s", QuantizationSettings(8, method="static"), data=texts, sensitivity=False)
    opened = glassbert.load(tmp_path / "s", engine="numpy")
    name = "layers.1.ffn.up.weight"
    low, high = opened.quantized[name].rounding
    assert low < 0 < high and opened.quantized[name].rounding == static.model.quantized[name].rounding
    assert folders[8].model.quantized[name].rounding == TOKEN
    assert folders[4].model.quantized[name].rounding is None
    assert opened.quantized["embeddings.token"].rounding is None


def test_costs_are_larger_in_fewer_bits(folders):
    for one in folders[4].costs:
        assert 0 <= one.cost[8] < one.cost[4] < 1.5
    assert [one.name for one in folders[4].costs] == quantizable(folders[4].model)


def test_bits_are_the_fewest_that_keep_the_loss(tmp_path):
    tried = []

    def loss(bits):
        tried.append(dict(bits))
        return sum({"a": 0.5, "b": 0.3, "c": 0.1}[name] for name, number in bits.items() if number == 4)

    assert choose_bits(COSTS, 4, 0.95, loss).bits == {"a": 4, "b": 4, "c": 4} and len(tried) == 1
    found = choose_bits(COSTS, 4, 0.45, loss)
    assert found.bits == {"a": 8, "b": 4, "c": 4} and found.allowed and found.loss == pytest.approx(0.4)
    assert choose_bits(COSTS, 4, 0.15, loss).bits == {"a": 8, "b": 8, "c": 4}


def test_where_eight_bits_lose_too_much_floats_stay():
    found = choose_bits(COSTS, 4, 0.0, lambda bits: sum(number != 32 for number in bits.values()) / 10)
    assert set(found.bits.values()) == {32} and found.allowed
    impossible = choose_bits(COSTS, 8, 0.0, lambda bits: 1.0)
    assert not impossible.allowed and impossible.loss == 1.0


def test_an_allowed_loss_is_kept(toy, texts, tmp_path):
    free, strict = (
        quantize(toy, tmp_path / name, QuantizationSettings(4), data=texts, max_loss=loss, threads=1)
        for name, loss in (("free", 1.0), ("strict", 0.0))
    )
    assert set(free.bits.values()) == {4} and free.compared[0].loss <= 1.0
    assert strict.choice.loss <= 0.0 and strict.bytes_after >= free.bytes_after
    assert "the half that did not choose the bits" in strict.task


def test_bits_are_chosen_on_other_examples_than_the_reported_ones(toy, texts):
    whole = own_task(open_source(toy, 1), texts)
    first, second = halves(whole, glassbert.load(toy, engine="numpy"))
    assert not set(first.texts) & set(second.texts) - {text for text in whole.texts if whole.texts.count(text) > 1}
    assert sorted([*first.texts, *second.texts]) == sorted(whole.texts)


def test_too_few_examples_are_not_halved(toy, tmp_path):
    (tmp_path / "one.txt").write_text("the bird sings\n", encoding="utf-8")
    found = quantize(toy, None, data=tmp_path / "one.txt", max_loss=1.0, threads=1)
    assert any("too few examples to choose the bits" in note for note in found.notes)
    assert all(0 <= one.cost[8] < 1 for one in found.costs)


def test_a_model_that_stays_in_floats_is_noted(toy, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(Words, "loss", lambda *given: 1.0)
    found = quantize(toy, tmp_path / "q", data=texts, max_loss=0.0, threads=1)
    assert not found.model.quantized and glassbert.load(tmp_path / "q", engine="numpy").get_parameter_count()
    assert any("every matrix stays in floats" in note for note in found.notes)


def test_groups_that_do_not_divide_a_row_are_noted(toy, texts):
    found = quantize(toy, None, QuantizationSettings(8, group=7), data=texts, sensitivity=False, threads=1)
    assert len(found.notes) == 1 and "groups of 7 do not divide the rows of" in found.notes[0]
    assert not quantize(toy, None, QuantizationSettings(8, group=32), data=texts, sensitivity=False, threads=1).notes


def test_the_report_has_scores_with_intervals_costs_and_sizes(folders):
    found = json.loads((folders[4].folder / "quantization.json").read_text())
    assert found["smaller"] > 4 and found["bytes"]["file"] < found["bytes"]["float"] / 4
    assert [one["metric"] for one in found["scores"]] == ["accuracy of words", "loss"]
    low, high = found["scores"][1]["loss"]["interval"]
    assert low <= found["scores"][1]["loss"]["value"] <= high
    assert all(set(one["cost"]) == {"8", "4"} for one in found["matrices"])
    page = (folders[4].folder / "quantization.html").read_text()
    assert "<svg" in page and "layers.0.attention.qkv.weight" in page


def test_a_model_of_vectors_is_measured_by_its_similarities(toy, tmp_path):
    with pytest.warns(UserWarning):
        model, tokenizer = load_with_tokenizer(toy, engine="numpy", head="embedding", pooling="attention")
    model.save(tmp_path / "vectors", tokenizer=tokenizer)
    found = quantize(tmp_path / "vectors", tmp_path / "small", sensitivity=False, threads=1)
    assert found.compared[0].name == "agreement of similarities" and found.compared[0].after > 0.97
    assert "Python's documentation" in found.task


def test_texts_of_a_table_and_of_python(tmp_path):
    (tmp_path / "t.csv").write_text("text,other\nA bird sings.,1\n,2\nA stone.,3\n", encoding="utf-8")
    assert read_texts(tmp_path / "t.csv") == ["A bird sings.", "A stone."]
    (tmp_path / "o.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no column 'text'"):
        read_texts(tmp_path / "o.csv")
    assert len(own_texts()) > 100


def test_the_command_writes_shows_and_explains(toy, texts, tmp_path, capsys):
    assert run(toy, "--bits", 4, "--data", texts, "-o", tmp_path / "q") == 0
    shown = capsys.readouterr().out
    assert "x smaller" in shown and "embeddings.token" in shown
    assert (tmp_path / "q" / "quantization.html").exists()
    for wrong, said in ((["--bits", "3"], "8 or 4 bits"), (["--method", "slow"], "no method"),
                        (["--max-loss", "0.1", "--no-sensitivity"], "--no-sensitivity")):  # fmt: skip
        assert run(toy, *wrong, "-o", tmp_path / "no") == 2
        assert said in " ".join(capsys.readouterr().err.split())
