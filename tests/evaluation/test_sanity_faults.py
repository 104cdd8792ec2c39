"""Faults injected into models, batches, corpora and runs: each must be found and named."""

import dataclasses

import numpy as np
import pytest

from glassbert.errors import TrainingError
from glassbert.evaluation import Subject
from glassbert.evaluation.sanity import check_batches, check_log, check_text, checks
from glassbert.evaluation.sanity.learning import check_learning
from glassbert.models.model import Model
from glassbert.text.corpus import Corpus, write_corpus
from glassbert.text.generator import MLMDataGenerator
from glassbert.training.history import History
from glassbert.training.run_folder import RunFolder
from tests.evaluation.subjects import config, subject, tokenizer
from tests.training.toy import make_trainer, texts

pytestmark = [
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),  # ruined runs overflow
]


def problems(found):
    return {check.finding.problem: check.finding for check in found if check.finding is not None}


def wrapped(model, name, change):
    """Wrap a method of this model: `change` is applied to its result."""
    whole = getattr(type(model), name)

    def planted(self, *given, **options):
        return change(whole(self, *given, **options), *given)

    class Planted(type(model)):
        pass

    setattr(Planted, name, planted)
    model.__class__ = Planted


def with_batches(change):
    found = subject()

    def planted(run, *_):
        run.batch = change(run.batch)
        for part in run.parts:
            part.batch = change(part.batch)
        return run

    wrapped(found.model, "run", planted)
    return found


def inverted_mask():
    return with_batches(lambda b: b if b.mask is None else dataclasses.replace(b, mask=1 - b.mask))


def mask_lost():
    return with_batches(lambda b: dataclasses.replace(b, mask=None))


def segments_lost():
    return with_batches(lambda b: dataclasses.replace(b, segments=None))


def dropout_left_on():
    found = subject(hidden_dropout=0.1)
    found.model.set_training(True)
    return found


def noise_in_every_pass():
    found = subject()
    generator = np.random.default_rng(0)

    def noisy(run, *_):
        hidden = run.encode()
        run.hidden = hidden + 1e-4 * generator.standard_normal(hidden.shape).astype(hidden.dtype)
        return run

    wrapped(found.model, "run", noisy)
    return found


def rows_that_influence_each_other():
    found = subject()

    def mixed(run, *_):
        run.hidden = run.encode() - run.encode().mean(0)
        return run

    wrapped(found.model, "run", mixed)
    return found


def words_without_attention():
    found = subject()
    for i in range(3):
        found.model.parameters[f"layers.{i}.attention.output.weight"] = 0.0
    return found


def nan_in_one_row():
    found = subject()
    found.model.parameters["embeddings.token"][7] = np.nan
    return found


def dead_layer():
    found = subject()
    for name in ("attention.qkv", "attention.output", "ffn.up", "ffn.down"):
        found.model.parameters[f"layers.1.{name}.weight"] = 0.0
    return found


def exploding_layer():
    found = subject(norm_position="pre", final_norm=True)
    found.model.parameters["layers.1.ffn.down.weight"] = 1e6 * found.model.parameters["layers.1.ffn.down.weight"]
    return found


def foreign_tokenizer():
    found = subject()
    return dataclasses.replace(found, tokenizer=tokenizer(99))


def with_gradients(change, **options):
    """The model and its untrained copies have a backward pass with changed gradients."""

    def plant(model):
        def tamper(gradients, *_):
            change(gradients)
            return gradients

        wrapped(model, "backward", tamper)
        return model

    found = subject(**options)
    plant(found.model)
    return dataclasses.replace(
        found, fresh=lambda seed: plant(Model(config(**options), "mlm", engine="numpy", threads=2, seed=seed))
    )


def scale(name, factor):
    def change(gradients):
        gradients[name][...] = factor * gradients[name]

    return change


def untrained_embedding():
    return with_gradients(scale("embeddings.token", 0.0))


def forgotten_half_of_a_tied_gradient():
    return with_gradients(scale("embeddings.token", 0.5), tie_word_embeddings=True)


def wrong_factor_in_a_gradient():
    return with_gradients(scale("layers.1.ffn.up.weight", 1.5))


def initial_weights_too_large():
    wild = config(initializer_range=3.0)
    return dataclasses.replace(subject(), fresh=lambda seed: Model(wild, "mlm", engine="numpy", threads=2, seed=seed))


MODELS = {
    inverted_mask: ("The attention mask is inverted.", "with the inverted mask"),
    mask_lost: ("The attention mask is ignored.", "padding"),
    segments_lost: ("Documents packed into one row influence each other.", "packed into its row"),
    dropout_left_on: ("Dropout is on.", "in training mode"),
    noise_in_every_pass: ("The model is not deterministic.", "dropout off"),
    rows_that_influence_each_other: ("Rows of a batch influence each other.", "in its batch"),
    words_without_attention: ("No word influences another.", "position 2"),
    nan_in_one_row: (
        "A weight is not finite.",
        "embeddings.token has 24 values that are NaN or infinite, first in row 7",
    ),
    dead_layer: ("A layer is dead.", "layers.1"),
    exploding_layer: ("A layer explodes.", "layers.1"),
    foreign_tokenizer: ("The tokenizer belongs to another model.", "99 entries and the model 96"),
    untrained_embedding: ("Some weights get no gradient and will not be trained.", "embeddings.token"),
    forgotten_half_of_a_tied_gradient: ("A gradient is wrong.", "embeddings.token"),
    wrong_factor_in_a_gradient: ("A gradient is wrong.", "layers.1.ffn.up.weight"),
    initial_weights_too_large: ("The loss of the untrained model is not that of uniform guessing.", "ln V = 4.56"),
}


# These faults also fail other checks.
CASCADES = (untrained_embedding, rows_that_influence_each_other)


@pytest.mark.parametrize("plant", MODELS, ids=lambda plant: plant.__name__)
def test_a_fault_in_the_model_is_found(plant):
    problem, evidence = MODELS[plant]
    found = problems(checks(plant()))
    assert problem in found, f"found instead: {list(found)}"
    assert evidence in found[problem].evidence
    assert found[problem].remedy.startswith("Likely cause: ") and "Remedy: " in found[problem].remedy
    assert len(found) == 1 or plant in CASCADES


def test_a_model_that_cannot_overfit_one_batch_is_found():
    def uphill(gradients):
        for name in gradients:
            gradients[name][...] = -gradients[name]

    found = with_gradients(uphill)
    wrapped_steps = problems(check_learning(found))
    assert "A gradient is wrong." in wrapped_steps

    wrong = dataclasses.replace(subject(), fresh=_frozen)
    assert "The model cannot overfit one batch." in problems(check_learning(wrong))


def _frozen(seed):
    """A model whose training step changes nothing: no gradient from the encoder, and a zero head."""
    model = Model(config(), "mlm", engine="numpy", threads=1, seed=seed)
    for name in list(model.parameters):
        if name.startswith("head."):
            model.parameters[name] = 0.0
    return model


# ---- batches ----


@pytest.fixture(scope="module")
def batches(corpus):
    generator = MLMDataGenerator(corpus, tokenizer_of(corpus), 16, 32)
    return [generator.batch(0, index).as_inputs() for index in range(3)]


def tokenizer_of(corpus):
    return Corpus.open(corpus).tokenizer


def answers_visible(batch):
    labels = batch["labels"]
    return {**batch, "input_ids": np.where(labels == -100, batch["input_ids"], labels)}


def mask_turned_around(batch):
    return {**batch, "attention_mask": (batch["segment_ids"] == 0).astype(int)}


def no_mask_at_all(batch):
    padded = batch["input_ids"].copy()
    padded[:, -4:] = 0
    return {"input_ids": padded, "labels": batch["labels"]}


def nothing_asked(batch):
    return {**batch, "labels": np.full_like(batch["labels"], -100)}


def everything_asked(batch):
    return {**batch, "labels": batch["input_ids"]}


def half_the_rows_twice(batch):
    half = len(batch["input_ids"]) // 2
    return {name: np.concatenate([array[:half], array[:half]]) for name, array in batch.items()}


def another_script(batch):
    return {**batch, "input_ids": np.where(batch["input_ids"] > 4, 1, batch["input_ids"])}


BATCHES = {
    answers_visible: "The labels leak into the inputs.",
    mask_turned_around: "The attention mask is inverted.",
    no_mask_at_all: "The attention mask does not fit the tokens.",
    nothing_asked: "Hardly any word is a target.",
    everything_asked: "Most words are targets.",
    half_the_rows_twice: "Many rows are repeated.",
    another_script: "Many tokens are unknown.",
}


@pytest.mark.parametrize("plant", BATCHES, ids=lambda plant: plant.__name__)
def test_a_fault_in_the_batches_is_found(plant, batches, corpus):
    assert not problems(check_batches(batches, tokenizer_of(corpus)))
    assert BATCHES[plant] in problems(check_batches([plant(batch) for batch in batches], tokenizer_of(corpus)))


# ---- text and runs ----


def test_duplicated_data_is_found(tmp_path):
    documents = texts(40)
    doubled = write_corpus(tmp_path / "doubled", tokenizer(), [*documents, *documents[:38]], validation=0.05)
    assert list(problems(check_text(doubled))) == ["Much of the training text is repeated."]
    assert not problems(check_text(write_corpus(tmp_path / "once", tokenizer(), documents, validation=0.1)))


def test_held_out_text_in_the_training_text_is_found(corpus):
    opened = Corpus.open(corpus)
    mixed = dataclasses.replace(opened, splits={**opened.splits, "validation": opened.splits["train"]})
    assert not problems(check_text(opened))
    assert list(problems(check_text(mixed))) == ["Held-out text is also in the training text."]


def history(run):
    return History.read(RunFolder(run))


def test_a_learning_rate_a_hundred_times_too_high_is_found(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "good", steps=60, learning_rate=3e-3).train()
    make_trainer(corpus, tmp_path / "bad", steps=60, learning_rate=0.3).train()
    assert not problems(check_log(history(tmp_path / "good")))
    found = problems(check_log(history(tmp_path / "bad")))
    assert "The learning rate is too high." in found
    assert "0.3" in found["The learning rate is too high."].evidence


def test_steps_that_are_not_finite_are_found(corpus, tmp_path):
    with pytest.raises(TrainingError, match="no finite gradient"):
        make_trainer(corpus, tmp_path / "run", steps=60, learning_rate=1e30, clip=0).train()
    found = problems(check_log(history(tmp_path / "run")))
    assert "Some steps had a loss or gradient that is not finite." in found


def test_without_a_log_the_checks_are_skipped(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "run", steps=20).train()
    log = history(tmp_path / "run")
    log.lines.clear()
    assert [check.verdict for check in check_log(log)] == ["not checked", "not checked"]


def test_a_run_without_progress_is_found(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "run", steps=120, learning_rate=1e-9).train()
    found = problems(check_log(history(tmp_path / "run")))
    assert list(found) == ["The model hardly learns."]


def test_a_first_loss_below_uniform_guessing_is_found(corpus, tmp_path):
    """A log whose first loss is far below ln V."""
    make_trainer(corpus, tmp_path / "one", steps=60).train()
    log = history(tmp_path / "one")
    for line in log.kind("train"):
        line["loss"] *= 0.3
    assert "The first loss is not that of uniform guessing." in problems(check_log(log))


def test_a_diverged_run_is_found(corpus, tmp_path):
    """A log whose last losses are as high as the first."""
    make_trainer(corpus, tmp_path / "run", steps=120).train()
    log = history(tmp_path / "run")
    assert not problems(check_log(log))
    for line in log.kind("train")[-30:]:
        line["loss"] = 4.1
    assert list(problems(check_log(log))) == ["The training diverged."]


def test_an_overfitted_run_gives_a_warning(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "run", steps=60, evaluate_every=10).train()
    log = history(tmp_path / "run")
    for number, line in enumerate(log.kind("evaluation")):
        line["loss"] = 3.0 + 0.2 * abs(number - 2)
    assert [f.severity for p, f in problems(check_log(log)).items() if "overfits" in p] == ["warning"]


def test_weights_that_are_not_finite_skip_the_other_checks():
    found = list(checks(nan_in_one_row()))
    assert [check.skipped for check in found if check.name.startswith("all other checks")] == ["see above"]


def test_models_without_a_loss_skip_the_checks_of_learning():
    found = {check.name: check for check in checks(Subject("core", subject(None).model, tokenizer()))}
    assert "no loss" in found["gradients are right"].skipped
    assert found["padding changes nothing"].passed
