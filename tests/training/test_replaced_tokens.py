"""Replaced-token detection: samples, both losses, resuming, and what a finished run keeps."""

import math
import warnings

import numpy as np
import pytest

import glassbert
from glassbert import AdamW, TrainingStep
from glassbert.errors import InputError, TrainingError
from glassbert.families.deberta import DEBERTA_MINI_CONFIG
from glassbert.families.electra import ELECTRA_MINI_CONFIG
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.training.display import NoDisplay
from glassbert.training.evaluate import evaluate
from glassbert.training.fill_mask import fill_mask, load_masked_model
from glassbert.training.log import read_log
from glassbert.training.objectives import Objectives, rtd
from glassbert.training.trainer import Trainer
from tests.training.test_trainer import Stop, killed_at, weights
from tests.training.toy import make_trainer

SIZES = {"vocab_size": 97, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 24, "max_position_embeddings": 32}  # fmt: skip
ELECTRA = ELECTRA_MINI_CONFIG.replace(**SIZES, embedding_size=8)
DEBERTA = DEBERTA_MINI_CONFIG.replace(**SIZES, position_buckets=8)
CONFIGS = {"electra": ELECTRA, "deberta": DEBERTA, "bert": glassbert.PRESETS["mini"].replace(**SIZES)}


def a_batch(rows=7, length=19, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, 97, (rows, length))
    mask = (np.arange(length) < rng.integers(6, length + 1, rows)[:, None]).astype(int)
    ids *= mask
    chosen = (rng.random(ids.shape) < 0.3) & (mask == 1)
    return {"input_ids": np.where(chosen, 4, ids), "labels": np.where(chosen, ids, -100), "attention_mask": mask}


def step_of(config, engine="numpy", threads=1, rate=0.0, dtype="float32", **options):
    given = {"threads": threads} if engine == "numpy" else {"dtype": dtype}
    model = Model(config, "rtd", engine=engine, **given, seed=3)
    model.set_training(True)
    return TrainingStep(model, AdamW(model, 1e-3 if rate == 0.0 else rate), objective="rtd", **options)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_every_member_can_be_trained_on_it(family, engine):
    """A small batch is learned: the words by heart, and then nothing is replaced any more, or it is found."""
    if engine == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
    step = step_of(CONFIGS[family], engine, rate=1e-2)
    step.detailed = True
    batch = a_batch(4, 12)
    first = step(**batch)
    for _ in range(60):
        last = step(**batch)
    assert set(first.losses) == {"generator", "rtd"}
    assert set(first.metrics) == {"generator_accuracy", "rtd_accuracy"}
    assert float(first.losses["generator"]) == pytest.approx(math.log(97), rel=0.05)
    words, replaced = (float(loss) for loss in first.losses.values())
    assert float(first.loss) == pytest.approx(words + 50 * replaced, rel=1e-5)
    assert float(last.losses["generator"]) < 0.7 * float(first.losses["generator"])
    assert float(last.losses["rtd"]) < 0.7 * float(first.losses["rtd"])


def test_a_generator_of_one_head_compiles(mask_with_several_results):
    """ELECTRA's Mini has one, and short rows in 16 bits are computed side by side, each with a mask of its own."""
    config = ELECTRA.replace(hidden_size=32)
    assert config.generator().num_attention_heads == 1
    step = step_of(config, "mlx", dtype="bfloat16")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a step that cannot be compiled runs uncompiled, with a warning
        assert np.isfinite(float(step(**a_batch(8, 16)).loss))


@pytest.mark.parametrize("family", CONFIGS)
def test_threads_and_micro_batches_change_nothing(family):
    """Samples and dropout masks belong to a row of the logical batch."""
    config = CONFIGS[family].replace(hidden_dropout=0.1, embedding_dropout=0.1)
    losses, moved = [], []
    for threads, physical in ((1, None), (3, None), (2, 3)):
        step = step_of(config, threads=threads, physical_batch=physical)
        results = [step(**a_batch(seed=seed)) for seed in range(3)]
        losses.append([list(result.losses.values()) for result in results])
        moved.append({name: np.array(value) for name, value in step.model.parameters.items()})
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-5)
    np.testing.assert_allclose(losses[2], losses[0], rtol=2e-5)
    for other in moved[1:]:
        for name, value in moved[0].items():
            np.testing.assert_allclose(other[name], value, atol=3e-4, err_msg=name)


def corrupted(model, batch, seed):
    objectives = Objectives.parse("rtd")
    checked = check_inputs(model.config, batch["input_ids"], batch["attention_mask"])
    given = {"labels": batch["labels"], "real_tokens": checked["mask"], "input_ids": checked["ids"]}
    prepared = objectives.prepare(model.head, given, checked["ids"].shape)
    run = model.run(checked, dropout=model.engine.dropout(seed))
    run.loss(objectives, {name: model.on_engine(arrays) for name, arrays in prepared.items()})
    return np.array(run.batch.ids)


def test_samples_take_the_place_of_masks_and_of_nothing_else():
    model, batch = Model(ELECTRA, "rtd", engine="numpy", seed=1), a_batch()
    one, again, other = (corrupted(model, batch, seed) for seed in (5, 5, 6))
    masked = batch["labels"] != -100
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(one[~masked], batch["input_ids"][~masked])
    assert (one != other)[masked].mean() > 0.5 and (one[masked] < 97).all()


def test_rows_that_pad_the_targets_change_no_token():
    ids = np.array([[2, 4, 7], [2, 8, 4]])
    targets = {"rows": np.array([1, 5]), "targets": np.array([9, 10])}
    np.testing.assert_array_equal(rtd.replaced(ids, targets, np.array([30, 31])), [[2, 30, 7], [2, 8, 31]])
    mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
    padded = {"rows": mx.array([1, 5, 0, 0]), "targets": mx.array([9, 10, -100, -100])}
    found = rtd.replaced(mx.array(ids), padded, mx.array([30, 31, 50, 60]))
    np.testing.assert_array_equal(np.array(found), [[2, 30, 7], [2, 8, 31]])


@pytest.mark.parametrize("family", ["electra", "deberta"])
def test_what_is_kept_computes_what_was_trained(family):
    """The discriminator has the words that it was trained with, the difference folded in; so has the generator."""
    step = step_of(CONFIGS[family], rate=1e-2)
    batch = a_batch()
    for _ in range(3):
        step(**batch)
    model = step.model
    model.set_training(False)
    kept = model.head.finished(model)
    assert kept[""].head.kind == "discriminator" and kept["generator"].head.kind == "mlm"
    ids, mask = batch["input_ids"], batch["attention_mask"]
    np.testing.assert_allclose(kept[""].predict(ids, mask), model.predict(ids, mask), atol=1e-6)
    found = evaluate(model, [batch], objective="rtd")
    words = evaluate(kept["generator"], [batch], objective="mlm")
    assert words.loss == pytest.approx(found.losses["generator"], rel=1e-5)
    tables = [np.array(one.parameters["embeddings.token"]) for one in kept.values()]
    assert np.array_equal(*tables) == (family == "electra")


def test_held_out_rows_have_the_same_samples_every_time():
    model = Model(ELECTRA, "rtd", engine="numpy", seed=1)
    batches = [a_batch(seed=seed) for seed in range(2)]
    assert evaluate(model, batches, objective="rtd") == evaluate(model, batches, objective="rtd")


TINY = {"preset": "electra-mini", "embedding_size": 8, "steps": 10, "checkpoint_every": 4, "evaluate_every": 3}


OWN_FIELDS = {"electra-mini": {"embedding_size": 8}, "deberta-mini": {"position_buckets": 8}}


def changes_for(preset, **more):
    shared = {name: value for name, value in TINY.items() if name != "embedding_size"}
    return {**shared, "preset": preset, **OWN_FIELDS[preset], **more}


@pytest.mark.parametrize("preset", OWN_FIELDS)
def test_a_resumed_run_ends_with_identical_weights(preset, corpus, tmp_path, monkeypatch):
    changes = changes_for(preset, dropout=0.1, physical_batch=4)
    make_trainer(corpus, tmp_path / "whole", **changes).train()
    with monkeypatch.context() as patch:
        killed_at(7, patch)
        with pytest.raises(Stop):
            make_trainer(corpus, tmp_path / "killed", **changes).train()
    model, _ = load_masked_model(tmp_path / "killed", "numpy")  # of an unfinished run
    assert model.head.kind == "mlm"
    Trainer.resume(tmp_path / "killed", display=NoDisplay()).train()
    for folder in ("model", "model/generator"):
        one, two = weights(tmp_path / "whole" / folder), weights(tmp_path / "killed" / folder)
        assert set(one) == set(two)
        for name, array in one.items():
            np.testing.assert_array_equal(array, two[name])


@pytest.mark.parametrize("preset", OWN_FIELDS)
def test_a_finished_run(preset, corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", **changes_for(preset))
    assert trainer.settings.objective == "rtd" and trainer.settings.mask_rate == 0.15
    result = trainer.train()
    assert set(result.parts) == {"generator", "rtd"}
    assert result.perplexity == pytest.approx(math.exp(result.parts["generator"]["loss"]))
    lines = [line for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "evaluation"]
    assert all({"loss", "accuracy"} == set(one) for line in lines for one in line["parts"].values())
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Accuracy: rtd" in page and "Accuracy: generator" in page
    assert glassbert.load(tmp_path / "run", engine="numpy").head.kind == "discriminator"
    assert glassbert.load(tmp_path / "run", engine="numpy", head="binary").head.kind == "sequence"
    model, tokenizer = load_masked_model(tmp_path / "run", "numpy")
    assert len(fill_mask(model, tokenizer, "the [MASK] sings.")[0]) == 5


@pytest.mark.parametrize("preset", OWN_FIELDS)
def test_a_run_starts_from_a_finished_one(preset, corpus, tmp_path):
    first = make_trainer(corpus, tmp_path / "run", **changes_for(preset))
    first.train()
    kept = weights(tmp_path / "run" / "model" / "generator")
    second = make_trainer(corpus, tmp_path / "more", **changes_for(preset, start_from=str(tmp_path / "run")))
    parts = second.model.head.finished(second.model)
    for name, array in first.model.head.finished(first.model)[""].parameters.items():
        np.testing.assert_allclose(parts[""].parameters[name], array, atol=1e-6)
    parts["generator"].save(tmp_path / "generator")
    for name, array in weights(tmp_path / "generator").items():
        np.testing.assert_array_equal(array, kept[name])


def test_the_best_checkpoint_is_that_of_the_generator():
    """The loss of the discriminator rises when the generator gets better: losses of two moments say nothing."""
    objectives = Objectives.parse("rtd")
    assert str(objectives) == "generator+50*rtd" and objectives.head_type == "rtd"
    np.testing.assert_array_equal(objectives.comparable, [1, 0])


def test_bad_input():
    model = Model(ELECTRA, "rtd", engine="numpy")
    batch = a_batch()
    with pytest.raises(InputError, match="is trained by the objective 'rtd', which makes its own labels"):
        model.loss(batch["input_ids"], batch["labels"])
    with pytest.raises(TrainingError, match="'generator' needs the head 'rtd', but this model's head is 'mlm'"):
        mlm = Model(ELECTRA, "mlm", engine="numpy")
        TrainingStep(mlm, AdamW(mlm), objective="rtd")
    step = TrainingStep(model, AdamW(model))
    assert str(step.objectives) == "generator+50*rtd"  # by default that of the head
    with pytest.raises(InputError, match="needs labels in every batch"):
        step(batch["input_ids"])
    with pytest.raises(InputError, match="labels must have the shape"):
        step(batch["input_ids"], batch["labels"][:, :3])


def test_a_discriminator_fills_no_masks(tmp_path):
    Model(ELECTRA, "discriminator", engine="numpy").save(tmp_path)
    with pytest.raises(InputError, match="is a discriminator: it says which tokens were replaced"):
        load_masked_model(tmp_path)
