"""GPT-2, XLNet and Longformer in the rest of the product: evaluation, explanations, fine-tuning, adapters, numbers."""

import numpy as np
import pytest

import glassbert
from glassbert.errors import InputError
from glassbert.evaluation import SUITES, Options, Subject
from glassbert.evaluation.masked import score
from glassbert.finetuning.low_rank import LowRank
from glassbert.finetuning.run import finetune
from glassbert.insight import LoadedModel, explain
from glassbert.insight.attention import attention_maps
from glassbert.models.flops import forward_flops
from glassbert.models.memory import activation_numbers
from glassbert.text.corpus import write_corpus
from tests.evaluation.subjects import tokenizer
from tests.finetuning.toy import QUICK, make_tokenizer, sentences, write_csv
from tests.training.toy import make_corpus, make_trainer, texts

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
HEADS = {"gpt2": "causal", "xlnet": "mlm", "longformer": "mlm"}
FAMILIES = list(HEADS)


def config_of(family, **changes):
    mini = glassbert.PRESETS[glassbert.FAMILIES[family].mini]
    return mini.replace(**{**SIZES, "vocab_size": 96, **changes})


def model_of(family, head=None, labels=0, **changes):
    return glassbert.Model(
        config_of(family, **changes), head or HEADS[family], labels, engine="numpy", threads=1, seed=2
    )


def subject(family, **changes):
    return Subject(family, model_of(family, **changes), tokenizer())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "toy"
    write_corpus(folder, tokenizer(), texts(80), validation=0.3)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_language_of_held_out_text(family, corpus):
    one = subject(family)
    found = SUITES["language"](one, Options(text=corpus, quick=True, resamples=50))
    assert not found.skipped_because
    right = "next words right" if family == "gpt2" else "masked words right"
    assert 0 <= found[right].value <= 1 and found["perplexity"].value == pytest.approx(96, rel=0.5)
    name = "perplexity of a token" if family == "gpt2" else "pseudo-perplexity of a token"
    assert found[name].value == pytest.approx(96, rel=0.5)
    assert ("every word from those before it" in found.notes[1]) == (family == "gpt2")


def test_scores_of_a_causal_model_are_its_likelihoods():
    one = subject("gpt2")
    ids = np.random.default_rng(0).integers(5, 96, (2, 9))
    found = score(one.model, ids, np.array([0, 3, 9]), np.array([ids[0, 1], ids[0, 4], ids[1, 1]]))
    logits = np.asarray(one.model.forward(ids)[0], np.float64)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(
        found.log_probability, [logs[0, 0, ids[0, 1]], logs[0, 3, ids[0, 4]], logs[1, 0, ids[1, 1]]], rtol=1e-4
    )


def test_scores_of_a_query_stream_do_not_depend_on_the_word_itself():
    one = subject("xlnet", initializer_range=0.4)
    ids = np.random.default_rng(0).integers(5, 96, (1, 9))
    other = ids.copy()
    other[0, 4] = 7
    first, second = (score(one.model, some, np.array([4]), ids[0, 4:5]).log_probability for some in (ids, other))
    assert first == pytest.approx(second, rel=1e-6)
    assert first != pytest.approx(score(one.model, other[:, ::-1], np.array([4]), ids[0, 4:5]).log_probability)


@pytest.mark.parametrize("family", FAMILIES)
def test_grammar_by_pairs(family, tmp_path):
    (tmp_path / "pairs.txt").write_text("the old king sings.\nthe old king sing.\n" * 4)
    found = SUITES["grammar"](subject(family), Options(pairs=tmp_path, resamples=20))
    assert not found.skipped_because


@pytest.mark.parametrize("family", FAMILIES)
def test_sanity_of_an_untrained_model(family):
    found = SUITES["sanity"](subject(family), Options(quick=True, resamples=20))
    problems = [finding for finding in found.findings if finding.severity == "problem"]
    assert not problems, problems


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", [None, "token"])
def test_a_suite_that_does_not_apply_says_why(family, head, corpus):
    one = Subject(family, model_of(family, head or "embedding", 3 if head else 0), tokenizer())
    found = SUITES["language"](one, Options(text=corpus, quick=True))
    assert "this suite needs one that predicts words" in found.skipped_because


@pytest.mark.parametrize("family", FAMILIES)
def test_explanations(family):
    classifier = LoadedModel(family, model_of(family, "multiclass", 3), tokenizer(), labels=("a", "b", "c"))
    found = explain(classifier, "the old king sings.")
    assert abs(found.integrated.error) < 0.05 and len(found.heads) == 4
    words = LoadedModel(family, model_of(family), tokenizer())
    if family == "xlnet":
        with pytest.raises(InputError, match="predicts missing words by a query stream"):
            explain(words, "the [MASK] king")
        return
    found = explain(words, "the old [MASK]")
    assert found.answers[0].chance > 0 and found.position == len(found.tokens) - (1 if family == "gpt2" else 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_weights_of_every_layer(family):
    model = model_of(family, "multiclass", 3)
    ids = np.random.default_rng(0).integers(5, 96, (2, 12))
    maps = attention_maps(model, ids)
    assert maps.shape[-2:] == (12, 12)
    np.testing.assert_allclose(maps.sum(-1), 1.0, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_fine_tuning_learns_and_predicts(family, tmp_path):
    words = make_tokenizer()
    model_of(family, vocab_size=words.vocab_size, initializer_range=0.1).save(tmp_path / "model")
    words.save(tmp_path / "model")
    train = write_csv(tmp_path / "train.csv", ["text", "mood"], sentences(160))
    tuned = finetune(
        model=str(tmp_path / "model"), train=str(train), target="mood", run=str(tmp_path / "run"), epochs=6, batch=8,
        learning_rate=3e-3, **QUICK,
    )  # fmt: skip
    assert tuned.scores["accuracy"].value > 0.9
    reopened = glassbert.Predictor.load(tmp_path / "run")
    assert reopened.predict(["the lovely bird", "the awful bird"]).answers() == ["good", "bad"]


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters(family, tmp_path):
    model = model_of(family, "multiclass", 3)
    adapted = LowRank(model, rank=2, targets=("query", "value", "output", "ffn"))
    ids = np.random.default_rng(0).integers(5, 96, (3, 10))
    _, cache = adapted.loss(ids, [0, 1, 2])
    gradients = adapted.backward(cache)
    assert any(np.abs(g).max() > 0 for name, g in gradients.items() if not name.startswith(("head.", "pooler.")))
    adapted.save(tmp_path)
    again = LowRank.load(model, tmp_path)
    np.testing.assert_array_equal(again.forward(ids)[0], adapted.forward(ids)[0])
    np.testing.assert_allclose(adapted.merge().forward(ids)[0], adapted.forward(ids)[0], atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_are_computed_from_the_config(family):
    config = config_of(family)
    short, long = (sum(forward_flops(config, 1, n, head=HEADS[family]).values()) / n for n in (64, 512))
    assert short < long
    if family == "longformer":  # a token costs its window, however long the row is
        longest = sum(forward_flops(config, 1, 1_024, head="mlm").values()) / 1_024
        assert longest == pytest.approx(long, rel=0.02)
    assert sum(activation_numbers(config, 2, 32, head=HEADS[family]).values()) > 0
    text = model_of(family).describe(4, 32)
    assert "forward and backward" in text and ("attention.global" in text) == (family == "longformer")


@pytest.mark.parametrize("family", FAMILIES)
def test_pretraining_by_preset(family, tmp_path, monkeypatch):
    """The preset brings its objective, rows and head; the folder opens in transformers' layout."""
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    monkeypatch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)
    folder = make_corpus(tmp_path / "corpus")
    trainer = make_trainer(
        folder, tmp_path / "run", preset=glassbert.FAMILIES[family].mini, steps=25, max_position_embeddings=17
    )
    assert trainer.settings.objective == glassbert.FAMILIES[family].objective
    result = trainer.train()
    assert result.loss < np.log(64)
    model = glassbert.load(result.model)
    assert model.config.family == family and model.head.kind == HEADS[family]
    assert model.config.pad_token_id == 0 and model.config.sep_token_id in (None, 3)
