"""Generating text: the cache changes nothing, prompts of different lengths, sampling, and clear errors."""

import json

import numpy as np
import pytest

import glassbert
from glassbert.cli import main
from glassbert.errors import InputError, TextError
from glassbert.families.gpt2 import GPT2_MINI
from glassbert.generation import Sampling, generate, stream
from glassbert.generation.continuation import next_scores
from glassbert.text import FastTokenizer
from tests.training.toy import make_corpus, make_trainer, texts

TINY = GPT2_MINI.replace(
    vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=24, initializer_range=0.4,
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return FastTokenizer.train(texts(), vocab_size=64, min_frequency=1)


def make(engine="numpy", **changes):
    return glassbert.Model(TINY.replace(**changes), "causal", engine=engine, seed=3)


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_scores_with_the_cache_are_those_without_it(engine, positions):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    model = make(engine, positions=positions)
    rng = np.random.default_rng(0)
    pad = np.array([3, 0, 5])  # prompts of 4, 7 and 2 tokens, padded on the left
    ids = np.where(np.arange(20) >= pad[:, None], rng.integers(5, 64, (3, 20)), 0)
    scores, memory = next_scores(model, ids[:, :7], pad)
    for length in range(8, 21):
        whole, _ = next_scores(model, ids[:, : length - 1], pad)
        np.testing.assert_allclose(scores, whole, atol=1e-5, rtol=0)
        scores, memory = next_scores(model, ids[:, length - 1 : length], pad, memory)
    alone, _ = next_scores(model, ids[:1, 3:], np.zeros(1, int))
    np.testing.assert_allclose(scores[:1], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_texts_with_the_cache_are_those_without_it(engine, tokenizer):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    model, prompts = make(engine), ["the old bird", "a", "the king and the road"]
    fast = generate(model, tokenizer, prompts, tokens=12, seed=5)
    slow = generate(model, tokenizer, prompts, tokens=12, seed=5, cache=False)
    assert fast == slow and any(one.ids for one in fast)
    assert [generate(model, tokenizer, prompt, tokens=12, seed=5) for prompt in prompts] == fast


def test_the_end_of_text_ends_a_text(tokenizer):
    model = make()
    table = np.array(model.parameters["embeddings.token"])
    table[tokenizer.sep_id] = 0.0
    model.parameters["embeddings.token"] = table
    ended = [generate(model, tokenizer, "the old", tokens=18, seed=seed) for seed in range(40)]
    assert any(one.ended for one in ended) and any(not one.ended for one in ended)
    for one in ended:
        assert tokenizer.sep_id not in one.ids and (one.ended or len(one.ids) == 18)
        assert not set(one.ids) & set(tokenizer.special_ids)


def test_pieces_of_a_stream_are_the_text(tokenizer):
    model = make()
    whole = generate(model, tokenizer, "the small", tokens=10, temperature=0.7, top_k=9, top_p=0.8, seed=2)
    pieces = list(stream(model, tokenizer, "the small", tokens=10, temperature=0.7, top_k=9, top_p=0.8, seed=2))
    assert "".join(pieces) == whole.text and len(pieces) > 5


def test_without_a_number_of_tokens_the_positions_are_filled(tokenizer):
    model = make()
    found = [generate(model, tokenizer, "the old", top_k=30, seed=seed) for seed in range(8)]
    longest = max(len(one.ids) for one in found)
    assert longest == 24 - len(tokenizer.tokenize("the old"))  # after [CLS]; the last token needs no position


def test_sampling_follows_its_formulas():
    scores = np.log([[0.5, 0.2, 0.2, 0.1]])
    np.testing.assert_allclose(Sampling().probabilities(scores), [[0.5, 0.2, 0.2, 0.1]])
    squares = np.array([0.25, 0.04, 0.04, 0.01])
    np.testing.assert_allclose(Sampling(temperature=0.5).probabilities(scores)[0], squares / squares.sum())
    np.testing.assert_allclose(Sampling(top_k=1).probabilities(scores), [[1, 0, 0, 0]])
    np.testing.assert_allclose(Sampling(top_k=2).probabilities(scores)[0], [5 / 7, 2 / 7, 0, 0])
    np.testing.assert_allclose(Sampling(top_p=0.5).probabilities(scores), [[1, 0, 0, 0]])
    np.testing.assert_allclose(Sampling(top_p=0.69).probabilities(scores)[0], [5 / 7, 2 / 7, 0, 0])
    np.testing.assert_allclose(Sampling(top_p=1.0).probabilities(scores), [[0.5, 0.2, 0.2, 0.1]])
    drawn = Sampling().draw(np.repeat(scores, 4000, 0), [np.random.default_rng(i) for i in range(4000)])
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.5, 0.2, 0.2, 0.1], atol=0.03)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "temperature must be above 0, got 0; for the most probable token give top_k=1"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"tokens": 0}, "tokens must be a whole number of at least 1"),
        ({"tokens": 40}, "40 tokens after a prompt of .* do not fit the 24 positions of this model; ask for at most "),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "   "}, "the prompt is empty"),
        ({"prompt": []}, "there is no prompt"),
        ({"prompt": "the old " * 20}, "the prompt has .* tokens, but this model has 24 positions"),
    ],
)
def test_clear_errors(options, message, tokenizer):
    with pytest.raises(InputError, match=message):
        generate(make(), tokenizer, options.pop("prompt", "the old"), **options)


@pytest.mark.parametrize("head", [None, "mlm", "token"])
def test_a_model_that_does_not_predict_the_next_token(head, tokenizer):
    model = glassbert.Model(TINY.replace(causal=False), head, 3, engine="numpy")
    with pytest.raises(InputError, match="generating needs a causal model with the head 'causal'"):
        generate(model, tokenizer, "the old")


def test_other_inputs_that_do_not_fit(tokenizer):
    with pytest.raises(InputError, match="the tokenizer has 64 tokens, but the model 40"):
        generate(make(vocab_size=40), tokenizer, "the old")
    with pytest.raises(TextError, match="the prompt must be a string, got int"):
        generate(make(), tokenizer, [3])
    with pytest.raises(glassbert.ConfigError, match="a causal head predicts the next token"):
        glassbert.Model(TINY.replace(causal=False), "causal")
    with pytest.raises(InputError, match="fills no mask; glassbert generate"):
        glassbert.fill_mask(make(), tokenizer, "the [MASK] sings")
    memory = [(np.zeros((1, 2, 3, 8)), np.zeros((1, 2, 3, 7)))] * 2
    with pytest.raises(InputError, match=r"k and v of the shape \[1, 2, M, 8\], got an array of \[1, 2, 3, 7\]"):
        make().forward([[5]], memory=memory)
    with pytest.raises(InputError, match="memory must have for each of 2 layers k and v"):
        make().forward([[5]], memory=memory[:1])
    with pytest.raises(InputError, match="1 tokens after 24 in the memory is longer than the 24 positions"):
        make().forward([[5]], memory=[(np.zeros((1, 2, 24, 8)),) * 2] * 2)


def test_a_run_trains_and_the_command_generates(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    corpus = make_corpus(tmp_path / "corpus")
    result = make_trainer(corpus, tmp_path / "run", preset="gpt2-mini", steps=40).train()
    assert result.loss < np.log(64) and result.perplexity == pytest.approx(np.exp(result.loss))
    card = (result.model / "README.md").read_text()
    assert "text-generation" in card and "glassbert generate" in card
    config = json.loads((result.model / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"]
    command = ["generate", str(tmp_path / "run"), "the old", "--tokens", "6", "--seed", "1"]
    with pytest.raises(SystemExit):
        main(command)
    text = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*command, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["prompt"] == "the old" and text.strip() == ("the old" + answer["text"]).strip()
    with pytest.raises(SystemExit):
        main([*command[:3], "--temperature", "0"])
    assert "temperature must be above 0" in capsys.readouterr().err
