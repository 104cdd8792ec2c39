"""Adapting a model: new rows, mixtures of two texts, losses before and after, resuming, and refusals."""

import json
import random

import numpy as np
import pytest

import glassbert
from glassbert.errors import GlassBertError, TrainingError
from glassbert.text.loading import load_with_tokenizer
from glassbert.training.adapting import outcome
from glassbert.training.adapting.adapt import adapt, preset_of
from glassbert.training.adapting.extension import extend, load_masked
from glassbert.training.data import Mixture, open_data
from glassbert.training.display import NoDisplay
from glassbert.training.run_folder import RunFolder
from glassbert.training.settings import TrainingSettings
from glassbert.training.trainer import Trainer
from tests.training.toy import WORDS, make_corpus, make_trainer

DOMAIN = ["kernel", "socket", "thread", "buffer", "the", "of", "runs", "a"]
SMALL = {
    "steps": 16, "batch": 8, "length": 16, "threads": 1, "evaluate_every": 100, "checkpoint_every": 6,
    "evaluation_rows": 16, "final_evaluation_rows": 32, "sentence": "", "optimizer": "adamw", "learning_rate": 3e-3,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A toy model, its corpus, and a text of another domain."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
        corpus = make_corpus(folder / "corpus")
        make_trainer(corpus, folder / "run", steps=20).train()
    rng = random.Random(2)
    documents = ["\n".join(" ".join(rng.choices(DOMAIN, k=12)) + "." for _ in range(8)) for _ in range(60)]
    (folder / "domain.txt").write_text("\n\n".join(documents))
    return folder


def adapted(trained, run, **changes):
    options = {"general": str(trained / "corpus"), "new_pieces": 20, "display": NoDisplay(), **SMALL, **changes}
    return adapt(str(trained / "run"), str(trained / "domain.txt"), run=run, **options)


def test_the_whole_way(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    trainer = adapted(trained, tmp_path / "run")
    result = trainer.train()
    content = outcome.read(RunFolder(tmp_path / "run"))
    tokens = [piece["token"] for piece in content["pieces"]]
    assert {"kernel", "socket", "thread", "buffer"} <= set(tokens)
    domain, general = content["parts"]["domain"], content["parts"]["general"]
    assert domain["after"]["loss"] == result.loss
    assert domain["after"]["per_word"] < domain["before"]["per_word"]
    assert domain["counts_after"]["tokens"] < domain["counts_before"]["tokens"]
    assert domain["counts_after"]["words"] == domain["counts_before"]["words"]
    assert general["after"]["tokens_per_word"] <= general["before"]["tokens_per_word"]
    for entry in (domain, general):
        after, counts = entry["after"], entry["counts_after"]
        nats = after["loss"] * counts["tokens"]
        assert after["per_word"] == pytest.approx(nats / counts["words"])
        assert after["per_old_token"] == pytest.approx(nats / entry["counts_before"]["tokens"])
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Adaptation" in page and "nats per old token" in page
    model, tokenizer = load_with_tokenizer(tmp_path / "run")
    assert model.config.vocab_size == tokenizer.vocab_size == content["vocabulary"] == 64 + len(tokens)
    assert tokenizer.tokenize("kernel") == ["kernel"]


def test_a_killed_adaptation_ends_with_the_same_weights(trained, tmp_path, quick_runs):
    whole = adapted(trained, tmp_path / "whole")
    whole.train()
    broken = adapted(trained, tmp_path / "broken")
    with broken.prepared():
        for _ in range(9):
            broken.one_step()
    resumed = Trainer.resume(tmp_path / "broken", display=NoDisplay())
    resumed.train()
    for name, values in whole.model.parameters.items():
        assert np.array_equal(values, resumed.model.parameters[name]), name
    assert "after" in outcome.read(RunFolder(tmp_path / "broken"))["parts"]["general"]


def test_new_rows_begin_as_the_mean_of_those_they_replace(trained):
    model = load_masked(str(trained / "run"), engine="numpy")
    new = extend(model, 64, [(7, 9), (3,)])
    table, bias = "embeddings.token", "head.decoder.bias"
    old = model.parameters
    assert new.parameters[table].shape[0] == 66
    np.testing.assert_allclose(new.parameters[table][64], (old[table][7] + old[table][9]) / 2, rtol=1e-6)
    np.testing.assert_allclose(new.parameters["head.decoder.weight"][65], old["head.decoder.weight"][3], rtol=1e-6)
    np.testing.assert_allclose(new.parameters[bias][64], old[bias][[7, 9]].mean(), atol=1e-7)
    ids = np.arange(10, 22)[None]
    np.testing.assert_allclose(new.predict(ids)[..., :64], model.predict(ids), atol=1e-5)  # old words are as before


def test_rows_that_belong_to_no_token_are_left_out(trained):
    model = load_masked(str(trained / "run"), engine="numpy")
    assert extend(model, 60, []).config.vocab_size == 60


def test_a_model_without_a_head_for_masked_words_is_refused(tmp_path):
    config = glassbert.MINI_BERT_CONFIG.replace(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    glassbert.BertCore(config).save(tmp_path / "bare")
    glassbert.BertWithHead(config, "binary").save(tmp_path / "binary")
    for name, said in (("bare", "no head"), ("binary", "a head")):
        with pytest.raises(TrainingError, match=said):
            load_masked(str(tmp_path / name))


# ---- mixtures ----


def mixture(trained, run, share=0.25):
    settings = TrainingSettings.from_dict(
        {**SMALL, "corpus": str(trained / "corpus"), "general": str(trained / "domain.txt"), "general_share": share}
    )
    return open_data(settings, run)


def test_a_mixture_has_its_share_of_every_batch(trained, tmp_path):
    data = mixture(trained, tmp_path / "run")
    source = data.sources[16]
    assert (
        isinstance(source, Mixture) and data.rows == {16: 8} and set(data.validation_by_source) == {"domain", "general"}
    )
    whole = source.batch(1, 0)
    assert whole.input_ids.shape == (8, 16)
    assert np.array_equal(whole.input_ids[:6], source.first.batch(1, 0).input_ids)
    parts = [source.batch(1, 0, rows=slice(a, a + 4)).labels for a in (0, 4)]
    assert np.array_equal(np.concatenate(parts), whole.labels)


def test_the_second_text_goes_on_where_it_stopped(trained, tmp_path):
    source = mixture(trained, tmp_path / "run").sources[16]
    length = len(source.second)
    place = divmod(len(source) + 0, length)
    assert np.array_equal(source.batch(1, 0).input_ids[6:], source.second.batch(*place).input_ids)


def test_a_share_without_a_row_is_refused(trained, tmp_path):
    with pytest.raises(TrainingError, match="at least one"):
        mixture(trained, tmp_path / "run", share=0.01)


# ---- what is refused, and what is said ----


def test_pieces_may_stay(trained, tmp_path, quick_runs):
    trainer = adapted(trained, tmp_path / "run", new_pieces=0)
    content = outcome.read(trainer.run)
    assert content["pieces"] == [] and "--new-pieces 0" in content["why_no_pieces"]
    assert content["vocabulary"] == 64


def test_without_general_text_it_says_so(trained, tmp_path):
    content = outcome.read(adapted(trained, tmp_path / "run", general="").run)
    assert list(content["parts"]) == ["domain"] and "No general text" in content["general"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"general": "DOMAIN"}, "general text must be another text"),
        ({"new_pieces": -1}, "at least 0"),
        ({"steps": 1, "minutes": 1}, "one budget"),
        ({"general": "nowhere.txt"}, "there is no file or folder"),
    ],
)
def test_refusals(trained, tmp_path, changes, said):
    changes = {name: str(trained / "domain.txt") if value == "DOMAIN" else value for name, value in changes.items()}
    with pytest.raises(GlassBertError, match=said):
        adapted(trained, tmp_path / "run", **changes)
    assert not (tmp_path / "run" / "settings.json").exists()


def test_the_same_text_under_two_names_is_refused(trained, tmp_path):
    (tmp_path / "copy.txt").write_text((trained / "domain.txt").read_text())
    with pytest.raises(TrainingError, match="share a source"):
        adapted(trained, tmp_path / "run", general=str(tmp_path / "copy.txt"))


def test_an_empty_text_is_refused(trained, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(GlassBertError, match="is empty"):
        adapt(str(trained / "run"), str(tmp_path / "empty.txt"), run=tmp_path / "run", general="")
    with pytest.raises(TrainingError, match="needs a text"):
        adapt(str(trained / "run"), [], run=tmp_path / "run")


def test_a_text_of_one_document_is_refused(trained, tmp_path):
    (tmp_path / "one.txt").write_text("the kernel runs a thread of the buffer and more of it. " * 30)
    with pytest.raises(TrainingError, match="no held-out documents"):
        adapt(str(trained / "run"), str(tmp_path / "one.txt"), run=tmp_path / "run", general="")


def test_a_bpe_tokenizer_keeps_its_vocabulary(trained):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from glassbert.text import FastTokenizer
    from glassbert.training.adapting.adapt import _pieces

    rust = Tokenizer(models.BPE(unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    rust.train_from_iterator(["the kernel runs"] * 3, trainers.BpeTrainer(vocab_size=300, special_tokens=special))
    names = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    pieces, description, why = _pieces(
        [str(trained / "domain.txt")], FastTokenizer(json.loads(rust.to_str()), names), 9
    )
    assert pieces == [] and description is None and "BPE" in why


def test_a_folder_with_a_run_is_refused(trained):
    with pytest.raises(TrainingError, match="already contains a run"):
        adapted(trained, trained / "run")


def test_the_preset_and_the_differences_give_the_config_again():
    config = glassbert.PRESETS["mini"].replace(hidden_size=64, num_attention_heads=2)
    name, changes = preset_of(config)
    assert name == "mini" and json.dumps(changes)
    assert glassbert.PRESETS[name].replace(**changes) == config
    assert WORDS
