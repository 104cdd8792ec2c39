"""Adapting a model: new rows, mixtures of two texts, losses before and after, resuming, and refusals."""

import json
import math
import random

import numpy as np
import pytest

import glassbert
from glassbert.errors import GlassBertError, TrainingError
from glassbert.text.corpus import build_corpus, write_corpus
from glassbert.text.kinds import train_tokenizer
from glassbert.text.loading import load_with_tokenizer
from glassbert.text.new_pieces import MIN_FREQUENCY
from glassbert.training.adapting import outcome
from glassbert.training.adapting.adapt import adapt, preset_of
from glassbert.training.adapting.choices import EPOCHS, LEAST_READ, TOKENS, domain_tokens, fitted, least_uses
from glassbert.training.adapting.extension import extend, load_masked
from glassbert.training.adapting.mixing import TRIALS, Rise
from glassbert.training.checkpointing import read_checkpoint
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
    assert domain["after"]["per_word"] < domain["before"]["per_word"]
    assert result.weights_share == content["choice"]["share"]
    assert domain["counts_after"]["tokens"] < domain["counts_before"]["tokens"]
    assert domain["counts_after"]["words"] == domain["counts_before"]["words"]
    assert general["after"]["tokens_per_word"] <= general["before"]["tokens_per_word"]
    for entry in (domain, general):
        after, counts = entry["after"], entry["counts_after"]
        nats = after["loss"] * counts["tokens"]
        assert after["per_old_token"] == pytest.approx(nats / entry["counts_before"]["tokens"])
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Adaptation" in page and "nats per old token" in page and "of the change of the weights was kept" in page
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
    assert content["pieces"] == [] and "--new-pieces 0" in content["why_pieces"]
    assert content["vocabulary"] == 64


def test_without_general_text_it_says_so(trained, tmp_path):
    content = outcome.read(adapted(trained, tmp_path / "run", general="").run)
    assert list(content["parts"]) == ["domain"] and "No general text" in content["general"]
    assert "choice" not in content


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"general": "DOMAIN"}, "general text must be another text"),
        ({"new_pieces": -1}, "at least 0"),
        *(({"general_limit": limit}, "inf for no limit") for limit in (-1, math.nan, None, "0.1", True)),
        ({"objective": "clm"}, "give one with mlm"),
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


def test_a_corpus_of_another_attempt_is_named(trained, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join(f"a thread of number {number} sees a socket" for number in range(60)))
    _, tokenizer = load_with_tokenizer(trained / "run")
    build_corpus([str(other)], tmp_path / "run" / "corpus", tokenizer, validation=0.1)
    with pytest.raises(TrainingError, match=r"corpus was left by another attempt.*choose another folder with --run"):
        adapted(trained, tmp_path / "run")


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


# ---- what is kept of the change ----


def finished(trained, run, **changes):
    own = {"learning_rate": 3e-2, "general_share": 0.3, "final_evaluation_rows": 256}
    trainer = adapted(trained, run, **{**own, **changes})
    result = trainer.train()
    return trainer, result, outcome.read(RunFolder(run))


def test_the_saved_model_has_the_mixed_weights(trained, tmp_path, quick_runs):
    trainer, result, content = finished(trained, tmp_path / "run", general_limit=2)
    share, choice = result.weights_share, content["choice"]
    assert 0 < share < 1 and share == choice["share"] and choice["kept"] and choice["separate"]
    start, saved = (load_masked(str(tmp_path / "run" / name), engine="numpy").parameters for name in ("start", "model"))
    last = adapted(trained, tmp_path / "other").model
    read_checkpoint(trainer.run, trainer.state.step, last)  # checkpoints hold the trained weights
    tables = ["embeddings.token", "head.decoder.bias", "head.decoder.weight"]
    for name, values in saved.items():
        mixed = (1 - share) * start[name] + share * last.parameters[name]
        if name in tables:
            assert len(values) == content["vocabulary"] > 64
            mixed[64:] = last.parameters[name][64:]  # new pieces stay as trained
            assert not np.array_equal(start[name][64:], last.parameters[name][64:])
        np.testing.assert_allclose(values, mixed, rtol=1e-5, atol=1e-7)
    assert set(tables) <= set(saved)
    general = content["parts"]["general"]
    assert general["after"]["per_word"] < general["trained"]["per_word"]
    assert choice["tried"][0]["share"] == 1 and choice["tried"][0]["rise"] > 2
    said = " ".join(outcome.sentences(content))
    assert f"{share:g} of the change of the weights was kept" in said and "With all of the change" in said
    for wanted in (f"{entry['trained']['per_word']:.3f}" for entry in content["parts"].values()):
        assert wanted in said
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert f"{share:g} of the change was kept" in card
    assert json.loads((tmp_path / "run" / "result.json").read_text())["weights_share"] == share


def test_a_run_killed_at_its_end_chooses_again(trained, tmp_path, quick_runs, monkeypatch):
    whole, _, content = finished(trained, tmp_path / "whole", general_limit=2)
    with monkeypatch.context() as patch:
        patch.setattr("glassbert.training.finishing.write_model_card", lambda *rest: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finished(trained, tmp_path / "broken", general_limit=2)
    load_with_tokenizer(tmp_path / "broken" / "model")  # it is there already, and whole
    resumed = Trainer.resume(tmp_path / "broken", display=NoDisplay())
    assert resumed.train().weights_share == content["choice"]["share"] < 1
    for name, values in whole.model.parameters.items():
        assert np.array_equal(values, resumed.model.parameters[name]), name
    again = outcome.read(RunFolder(tmp_path / "broken"))
    assert again["parts"] == content["parts"] and again["choice"] == content["choice"]


def test_with_old_pieces_a_limit_of_0_can_be_kept(trained, tmp_path, quick_runs):
    _, result, content = finished(trained, tmp_path / "run", new_pieces=0, general_limit=0, learning_rate=0.3)
    assert content["choice"]["kept"] and content["parts"]["general"]["old_pieces"] is None
    if result.weights_share == 0:
        assert content["choice"]["tried"][-1] == {"share": 0.0, "rise": 0.0, "error": 0.0}
    else:
        assert next(one for one in content["choice"]["tried"] if one["share"] == result.weights_share)["rise"] <= 0


def test_no_limit_keeps_all_of_the_change(trained, tmp_path, quick_runs):
    trainer, result, content = finished(trained, tmp_path / "run", general_limit=math.inf)
    assert result.weights_share is None and "choice" not in content
    assert "after" in content["parts"]["general"] and "trained" not in content["parts"]["general"]
    saved = load_masked(str(tmp_path / "run" / "model"), engine="numpy").parameters
    last = adapted(trained, tmp_path / "other").model
    read_checkpoint(trainer.run, trainer.state.step, last)
    assert all(np.array_equal(values, saved[name]) for name, values in last.parameters.items())


def test_a_limit_that_is_missed_is_said(trained, tmp_path, quick_runs, monkeypatch):
    monkeypatch.setattr(Rise, "keeps", lambda self, limit: False)
    _, result, content = finished(trained, tmp_path / "run", steps=2)
    assert not content["choice"]["kept"] and result.weights_share is not None
    assert any("but by more than" in sentence and "--new-pieces" in sentence for sentence in outcome.sentences(content))


def test_too_little_general_text_for_two_halves_is_said(trained, tmp_path, quick_runs):
    rng = random.Random(5)
    page = "\n".join(" ".join(rng.choices(["red", "house", "tree", "the", "sings"], k=9)) + "." for _ in range(9))
    (tmp_path / "page.txt").write_text(page)
    _, _, content = finished(trained, tmp_path / "run", steps=2, general=str(tmp_path / "page.txt"))
    assert not content["choice"]["separate"]
    assert any("too little held-out general text" in sentence for sentence in outcome.sentences(content))


def test_a_run_of_an_earlier_version_ends_without_a_choice(trained, tmp_path, quick_runs):
    trainer = adapted(trained, tmp_path / "run", steps=2)
    content = outcome.read(trainer.run)
    outcome.write(trainer.run, {name: value for name, value in content.items() if name not in ("rows", "choice")})
    assert trainer.train().weights_share is None
    assert "after" not in outcome.read(trainer.run)["parts"]["domain"]


def test_a_budget_in_minutes_reserves_time_for_the_choice(trained, tmp_path):
    trainer = adapted(trained, tmp_path / "run", steps=None, minutes=1)
    costs = trainer.components.costs
    costs.seconds["row"] = 1.0
    rows = trainer.data.rows_at_end
    assert rows >= TRIALS * outcome.read(trainer.run)["choice"]["rows"] > 0
    with_choice, costs.rows_at_end = costs.of_ending(trainer.settings), 0
    assert with_choice - costs.of_ending(trainer.settings) == rows


# ---- texts and models of strangers ----


def trained_by_default(trained, run, text, **changes):
    """A short adaptation that chooses pieces, batch and budget itself, and its outcome."""
    small = {name: value for name, value in SMALL.items() if name not in ("steps", "batch")}
    options = {"general": str(trained / "corpus"), "display": NoDisplay(), **small, **changes}
    trainer = adapt(str(trained / "run"), text, run=run, **options)
    result = trainer.train()
    return trainer, result, outcome.read(RunFolder(run))


def test_one_page_is_enough(trained, tmp_path, quick_runs):
    rng = random.Random(4)
    page = "\n".join(" ".join(rng.choices(DOMAIN, k=9)) + "." for _ in range(6))
    (tmp_path / "page.txt").write_text(page)
    trainer, result, content = trained_by_default(trained, tmp_path / "run", str(tmp_path / "page.txt"))
    tokens = trainer.data.corpora[0].split("train").tokens
    assert trainer.settings.batch < 32 and result.steps == trainer.settings.steps
    read = result.tokens * (1 - trainer.settings.general_share)
    assert 0.5 * EPOCHS * tokens < read < 2 * EPOCHS * tokens  # not thousands of times
    assert "after" in content["parts"]["domain"] and "after" in content["parts"]["general"]


def test_a_run_that_is_too_short_for_new_pieces_says_so(trained, tmp_path):
    small = {**SMALL, "steps": 1}
    text = tmp_path / "text.txt"
    text.write_text((trained / "domain.txt").read_text().replace("socket", "house").replace("kernel", "tree"))
    content = outcome.read(adapt(str(trained / "run"), str(text), "", run=tmp_path / "run", **small).run)
    tokens = [piece["token"].removeprefix("##") for piece in content["pieces"]]
    assert all(len(token) == 1 for token in tokens)  # only characters that the vocabulary lacks
    assert "so that this run reads it" in content["why_pieces"]


def test_another_script_gets_its_characters_and_the_outcome_says_so(trained, tmp_path, quick_runs):
    rng = random.Random(5)
    words = ["жук", "лес", "река", "идёт", "дом"]
    lines = ["\n".join(" ".join(rng.choices(words, k=9)) + "." for _ in range(6)) for _ in range(30)]
    (tmp_path / "russian.txt").write_text("\n\n".join(lines), encoding="utf-8")
    trainer, _, content = trained_by_default(trained, tmp_path / "run", str(tmp_path / "russian.txt"), steps=4)
    assert "[UNK]" not in trainer.data.tokenizer.tokenize("жук идёт")
    counts = content["parts"]["domain"]
    assert counts["counts_before"]["unknown"] > 0 == counts["counts_after"]["unknown"]
    assert any("unknown before" in sentence for sentence in outcome.sentences(content))


def test_a_folder_of_files_and_a_corpus_folder_are_texts(trained, tmp_path, quick_runs):
    (tmp_path / "texts").mkdir()
    documents = (trained / "domain.txt").read_text().split("\n\n")
    for number in range(3):
        (tmp_path / "texts" / f"{number}.txt").write_text("\n\n".join(documents[number::3]))
    few = {"steps": 2, "new_pieces": 20}
    folder, _, content = trained_by_default(trained, tmp_path / "a", str(tmp_path / "texts"), **few)
    assert {"domain", "general"} == set(content["parts"])
    tokenizer = load_with_tokenizer(trained / "run", engine="numpy")[1]
    write_corpus(tmp_path / "corpus", tokenizer, documents, validation=0.1)
    corpus, _, content = trained_by_default(trained, tmp_path / "b", str(tmp_path / "corpus"), general="", **few)
    assert set(content["parts"]) == {"domain"} and "kernel" in corpus.data.tokenizer.vocabulary
    assert "kernel" in folder.data.tokenizer.vocabulary


def test_tied_rotary_embeddings_are_extended_as_well(trained, tmp_path, quick_runs):
    shape = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    make_trainer(trained / "corpus", tmp_path / "modern", preset="modernbert-base", **shape).train()
    options = {"general": str(trained / "corpus"), "new_pieces": 9, "display": NoDisplay(), **SMALL}
    trainer = adapt(str(tmp_path / "modern"), str(trained / "domain.txt"), run=tmp_path / "run", **options)
    trainer.train()
    config = trainer.model.config
    assert config.tie_word_embeddings and config.positions == "rotary" and config.num_hidden_layers == 2
    assert config.vocab_size == trainer.data.tokenizer.vocab_size > 64


def test_a_bpe_tokenizer_keeps_its_vocabulary(trained, tmp_path, quick_runs):
    documents = (trained / "domain.txt").read_text().split("\n\n")
    tokenizer = train_tokenizer("bpe", documents, vocab_size=290)
    write_corpus(tmp_path / "corpus", tokenizer, documents, validation=0.1)
    make_trainer(tmp_path / "corpus", tmp_path / "bpe", sentence="").train()
    trainer = adapt(
        str(tmp_path / "bpe"), str(trained / "domain.txt"), "", run=tmp_path / "run", display=NoDisplay(), **SMALL
    )
    trainer.train()
    content = outcome.read(trainer.run)
    assert content["pieces"] == [] and "BPE" in content["why_pieces"]
    assert trainer.data.tokenizer.fingerprint == tokenizer.fingerprint and "after" in content["parts"]["domain"]


# ---- what is chosen ----


def test_a_longer_run_learns_more_pieces():
    settings = TrainingSettings(batch=32, length=128)
    text = 1_000_000
    least = [least_uses(settings.replace(steps=steps), text, 0.3) for steps in (10, 100, 1_000, 10**6)]
    assert least == sorted(least, reverse=True) and least[-1] == MIN_FREQUENCY
    assert least[2] == math.ceil(LEAST_READ * text / (0.7 * 1_000 * 32 * 128))
    minutes, tokens = settings.replace(minutes=10), settings.replace(tokens=4_096_000)
    assert domain_tokens(minutes, text, 0.3) == domain_tokens(tokens, text, 0.3) == 0.7 * 4_096_000


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_a_batch_has_no_more_rows_of_the_domain_than_the_text(share):
    settings = TrainingSettings(batch=32, length=128, general_share=share or 0.3)
    for text in (50, 130, 700, 2_000, 10**7):
        chosen = fitted(settings, text, share, ())
        general = round(share * chosen.batch)
        assert chosen.batch - general <= max(1, text // 128) or chosen.batch == 32
        assert not share or 0 < general < chosen.batch
        assert chosen.steps >= 1 and chosen.steps * chosen.batch * 128 < 1.2 * TOKENS
        assert fitted(settings.replace(steps=7), text, share, ("batch",)) == settings.replace(steps=7)


def test_a_folder_with_a_run_is_refused(trained):
    with pytest.raises(TrainingError, match="already contains a run"):
        adapted(trained, trained / "run")


def test_the_preset_and_the_differences_give_the_config_again():
    config = glassbert.PRESETS["mini"].replace(hidden_size=64, num_attention_heads=2)
    name, changes = preset_of(config)
    assert name == "mini" and json.dumps(changes)
    assert glassbert.PRESETS[name].replace(**changes) == config
    assert WORDS
