"""The mean of models: its values, what it refuses, and the command."""

import json

import numpy as np
import pytest

import glassbert
from glassbert.cli import main
from glassbert.errors import GlassBertError, TrainingError
from glassbert.text import FastTokenizer
from glassbert.training.averaging import average, check_shares
from tests.models.small import BERT, MODERN, make

TEXT = "the old king sees a red bird and the small green tree falls in a river of stones"
TOKENIZER = FastTokenizer.train([TEXT] * 9, vocab_size=45, min_frequency=1)
OTHER = FastTokenizer.train([TEXT.replace("king", "queen")] * 9, vocab_size=45, min_frequency=1)
SHAPE = MODERN.replace(vocab_size=45)


def saved(folder, config=SHAPE, head="mlm", seed=3, tokenizer=TOKENIZER, near=None):
    model = make(config, head, 2 if head == "multiclass" else 0, seed=seed, dtype="float32")
    if near is not None:
        model.parameters.flat[...] = near.parameters.flat + 0.01 * model.parameters.flat
    model.save(folder, tokenizer=tokenizer)
    return model


@pytest.fixture
def pair(tmp_path):
    first = saved(tmp_path / "a")
    return first, saved(tmp_path / "b", seed=4, near=first)


def test_the_mean_is_the_mean(pair, tmp_path):
    a, b = (model.parameters.flat.astype(np.float64) for model in pair)
    found = average([str(tmp_path / "a"), str(tmp_path / "b")], tmp_path / "mean")
    model = glassbert.load(tmp_path / "mean", engine="numpy")
    np.testing.assert_allclose(model.parameters.flat, (a + b) / 2, rtol=1e-6)
    assert model.head.kind == "mlm" and not found.unrelated
    assert glassbert.load_tokenizer(tmp_path / "mean").vocabulary == TOKENIZER.vocabulary
    half = np.linalg.norm(a - b) / 2
    assert found.distances == pytest.approx([half / np.linalg.norm(a), half / np.linalg.norm(b)])


def test_shares_and_float16(pair, tmp_path):
    names = [str(tmp_path / "a"), str(tmp_path / "b")]
    average(names, tmp_path / "all", [0, 2])
    np.testing.assert_array_equal(glassbert.load(tmp_path / "all").parameters.flat, pair[1].parameters.flat)
    average(names, tmp_path / "half", [1, 3], "float16")
    expected = pair[0].parameters.flat / 4 + pair[1].parameters.flat * 3 / 4
    np.testing.assert_allclose(glassbert.load(tmp_path / "half").parameters.flat, expected, atol=1e-3)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "all")]
    assert sizes[0] < 0.6 * sizes[1]


def test_weights_that_have_nothing_in_common_are_told(tmp_path, capsys):
    for seed in (1, 2):
        saved(tmp_path / str(seed), seed=seed)
    assert run(["average", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "mean"]) == 0
    assert "far from each other" in " ".join(capsys.readouterr().out.split())


def test_what_has_no_mean_is_refused_and_nothing_is_written(pair, tmp_path):
    saved(tmp_path / "wide", SHAPE.replace(hidden_size=32))
    saved(tmp_path / "bert", BERT.replace(vocab_size=45, hidden_size=16))
    saved(tmp_path / "classes", head="multiclass")
    saved(tmp_path / "words", tokenizer=OTHER)
    broken = make(SHAPE, dtype="float32")
    broken.parameters.flat[3] = np.nan
    broken.save(tmp_path / "broken", tokenizer=TOKENIZER)
    saved(tmp_path / "tuned")
    (tmp_path / "tuned" / "task.json").write_text("{}")
    wrong = {
        "wide": r"wide has another hidden_size \(16 and 32\)",
        "bert": "only models of one config have a mean",
        "classes": "different heads: mlm and sequence",
        "words": "different vocabularies",
        "broken": "values that are not finite",
        "tuned": r"is fine-tuned.*--seeds 3 --soup",
    }
    for name, message in wrong.items():
        with pytest.raises(GlassBertError, match=message):
            average([str(tmp_path / "a"), str(tmp_path / name)], tmp_path / "mean")
        assert not (tmp_path / "mean").exists()
    with pytest.raises(TrainingError, match="at least two models, got 1"):
        average([str(tmp_path / "a")], tmp_path / "mean")


def test_shares_are_checked():
    assert check_shares(None, 4) == [0.25] * 4
    assert check_shares([1, 3], 2) == [0.25, 0.75]
    for shares in ([1.0], [1, -1], [0, 0], [1, float("nan")], [1, float("inf")]):
        with pytest.raises(TrainingError, match="share"):
            check_shares(shares, 2)


def run(arguments):
    with pytest.raises(SystemExit) as left:
        main([str(one) for one in arguments])
    return left.value.code or 0


def test_the_command(pair, tmp_path, capsys):
    target = tmp_path / "mean"
    assert run(["average", tmp_path / "a", tmp_path / "b", "--shares", "1,3", "-o", target, "--json"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert [one["share"] for one in models] == [0.25, 0.75]
    assert run(["average", tmp_path / "a", tmp_path / "b", "-o", target]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert run(["average", tmp_path / "a", tmp_path / "b", "--shares", "a", "-o", tmp_path / "new"]) == 2
    assert "--shares are numbers such as 0.3,0.7" in " ".join(capsys.readouterr().err.split())
