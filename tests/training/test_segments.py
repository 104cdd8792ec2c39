"""Permutation language modelling, and a memory that is carried over the segments of a row."""

import itertools

import numpy as np
import pytest

import glassbert
from glassbert.errors import InputError, TrainingError
from glassbert.families.xlnet import XLNET_MINI
from glassbert.text.generator import PermutedGenerator
from glassbert.training.display import NoDisplay
from glassbert.training.evaluate import evaluate
from glassbert.training.optimizers import AdamW
from glassbert.training.segments import cut_rows
from glassbert.training.step import TrainingStep
from glassbert.training.trainer import Trainer
from tests.text import synthetic_corpus
from tests.training.test_trainer import Stop, killed_at, weights
from tests.training.toy import make_corpus, make_trainer

TINY = XLNET_MINI.replace(
    vocab_size=60,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    memory_length=6,
    initializer_range=0.3,
)


def rows(seed=0, shape=(4, 16)):
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, 60, shape)
    chosen = rng.random(shape) < 0.3
    keys = np.where(chosen, rng.random(shape), 2.0)
    order = np.where(chosen, keys.argsort(1).argsort(1) + 1, 0)
    documents = np.where(np.arange(shape[1]) < rng.integers(4, 12, (shape[0], 1)), 1, 2)
    return ids, np.where(chosen, ids, -100), order, documents


def model_of(engine="numpy", dtype="float64", **changes):
    return glassbert.Model(TINY.replace(**changes), "mlm", engine=engine, dtype=dtype, threads=1, seed=1)


def gradients_by_hand(model, ids, labels, order, documents, segments):
    """Segment by segment through the model itself: losses and gradients, weighted by their targets."""
    total, loss, count = None, 0.0, (labels != -100).sum()
    memory, edges = None, np.linspace(0, ids.shape[1], segments + 1).round().astype(int)
    for start, stop in itertools.pairwise(edges):
        part = slice(start, stop)
        more = {}
        if memory is not None:
            more = {"memory": memory, "memory_segment_ids": documents[:, start - memory[0][0].shape[1] : start]}
        one, cache = model.loss(
            ids[:, part], labels[:, part], segment_ids=documents[:, part], prediction_order=order[:, part], **more
        )
        share = (labels[:, part] != -100).sum() / count
        found = model.backward(cache)
        total = {name: share * g + (0 if total is None else total[name]) for name, g in found.items()}
        loss += share * float(one)
        memory = cache.memory()
    return loss, total


@pytest.mark.parametrize("physical", [None, 2])
@pytest.mark.parametrize("segments", [1, 2, 3])
def test_a_step_adds_up_the_segments_and_carries_the_memory(segments, physical):
    ids, labels, order, documents = rows()
    model = model_of()
    loss, wanted = gradients_by_hand(model, ids, labels, order, documents, segments)
    step = TrainingStep(model, AdamW(model, 0.0, clip=None), physical_batch=physical, segments=segments)
    result = step(ids, labels, segment_ids=documents, prediction_order=order)
    assert result.loss == pytest.approx(loss, rel=1e-12)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(step._gradients[name], gradient, atol=1e-12, err_msg=name)
    batch = {"input_ids": ids, "labels": labels, "segment_ids": documents, "prediction_order": order}
    assert evaluate(model, [batch], segments=segments).loss == pytest.approx(loss, rel=1e-12)


def test_a_trace_reads_whole_rows():
    """Looking for the first value of a bad step that is not finite failed where rows are read in segments."""
    ids, labels, order, documents = rows()
    model = model_of()
    step = TrainingStep(model, AdamW(model, 0.0), segments=2)
    batch = {"input_ids": ids, "labels": labels, "segment_ids": documents, "prediction_order": order}
    loss, cache = step.trace(batch)
    assert float(loss) == pytest.approx(evaluate(model, [batch], segments=1).loss, rel=1e-12)
    assert cache["layers.0.output"].shape[0] == len(ids) and set(step.backward(cache)) == set(model.parameters)
    assert step.segments == 2


def test_the_memory_matters_and_documents_keep_to_themselves():
    ids, labels, order, documents = rows()
    model = model_of()
    batch = {"input_ids": ids, "labels": labels, "segment_ids": documents, "prediction_order": order}
    whole = {name: values for name, values in batch.items() if name != "segment_ids"}  # one document a row
    with_memory = evaluate(model, [whole], segments=2).loss
    halves = [{name: values[:, part] for name, values in whole.items()} for part in (slice(0, 8), slice(8, 16))]
    assert with_memory != pytest.approx(evaluate(model, halves).loss, rel=1e-6)
    shorter = evaluate(model_of(memory_length=3), [whole], segments=2).loss
    assert with_memory != pytest.approx(shorter, rel=1e-6)
    everything = [evaluate(model_of(memory_length=n), [whole], segments=2).loss for n in (None, 0, 8)]
    assert everything[0] == everything[1] == everything[2]
    apart = {**batch, "segment_ids": np.where(np.arange(16) < 8, 1, 2) * np.ones_like(ids)}
    changed = ids.copy()
    changed[:, :8] = np.roll(changed[:, :8], 1, 1)  # another document in the memory changes nothing after it
    late = np.where(np.arange(16) < 8, -100, labels)
    one = evaluate(model, [{**apart, "labels": late}], segments=2).loss
    two = evaluate(model, [{**apart, "labels": late, "input_ids": changed}], segments=2).loss
    assert one == pytest.approx(two, rel=1e-12)


def test_mlx_computes_the_same_segments():
    pytest.importorskip("mlx.core")
    ids, labels, order, documents = rows()
    losses = []
    for engine in ("numpy", "mlx"):
        model = model_of(engine, "float32")
        step = TrainingStep(model, AdamW(model, 1e-2), segments=2)
        batch = {"input_ids": ids, "labels": labels, "segment_ids": documents, "prediction_order": order}
        found = [float(step(**batch).loss) for _ in range(3)]
        losses.append([*found, evaluate(model, [batch], segments=2).loss])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_orders_and_targets_depend_on_seed_epoch_and_row_alone():
    corpus, tokenizer = synthetic_corpus.corpus(), synthetic_corpus.tokenizer()
    whole = PermutedGenerator(corpus, tokenizer, 24, 8).batch(1, 2)
    again = PermutedGenerator(corpus, tokenizer, 24, 4)
    parts = [again.batch(1, 4), again.batch(1, 5)]
    for name in ("input_ids", "labels", "prediction_order"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(getattr(whole, name), joined)
    other = PermutedGenerator(corpus, tokenizer, 24, 8, seed=3).batch(1, 2)
    assert not np.array_equal(other.prediction_order, whole.prediction_order)
    order, labels = whole.prediction_order, whole.labels
    np.testing.assert_array_equal(order > 0, labels != -100)
    np.testing.assert_array_equal(labels[order > 0], whole.input_ids[order > 0])
    for row in order:
        assert sorted(row[row > 0]) == list(range(1, (row > 0).sum() + 1))


def test_a_resumed_run_with_a_memory_ends_with_identical_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    monkeypatch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)
    corpus = make_corpus(tmp_path / "corpus")
    changes = {"preset": "xlnet-mini", "steps": 12, "dropout": 0.1, "memory_length": 5}
    make_trainer(corpus, tmp_path / "whole", **changes).train()
    with monkeypatch.context() as patch:
        killed_at(7, patch)
        with pytest.raises(Stop):
            make_trainer(corpus, tmp_path / "killed", **changes).train()
    resumed = Trainer.resume(tmp_path / "killed", display=NoDisplay())
    assert resumed.settings.segments == 2
    resumed.train()
    one, two = (weights(tmp_path / name / "model") for name in ("whole", "killed"))
    assert set(one) == set(two)
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


def test_a_run_of_xlnet_learns_and_fills_masks(tmp_path, monkeypatch):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    monkeypatch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)
    corpus = make_corpus(tmp_path / "corpus")
    trainer = make_trainer(corpus, tmp_path / "run", preset="xlnet-mini", steps=30)
    assert trainer.settings.segments == 2 and trainer.settings.objective == "plm"
    assert trainer.settings.mask_rate == pytest.approx(1 / 6)
    result = trainer.train()
    assert result.loss < np.log(64)
    model = glassbert.load(result.model)
    answers = glassbert.fill_mask(model, glassbert.load_tokenizer(result.model), "the [MASK] bird [MASK].")
    assert len(answers) == 2 and abs(sum(one.chance for one in answers[0])) <= 1


def test_bad_input():
    model = model_of()
    ids = np.ones((2, 5), int)
    with pytest.raises(InputError, match=r"content of the shape \[2, M, 16\], got an array of \[2, 3, 8\]"):
        model.forward(ids, memory=[(np.zeros((2, 3, 8)),)] * 2)
    with pytest.raises(InputError, match="memory must have for each of 2 layers content"):
        model.forward(ids, memory=[(np.zeros((2, 3, 16)),)])
    with pytest.raises(InputError, match=r"prediction_order must be whole numbers .* \[2, 5\], got int64 \[2, 4\]"):
        model.forward(ids, prediction_order=ids[:, :4])
    with pytest.raises(InputError, match=r"memory_segment_ids must be .* shape of the memory, \[2, 3\]"):
        model.forward(ids, memory=[(np.zeros((2, 3, 16)),)] * 2, memory_segment_ids=ids)
    with pytest.raises(InputError, match="distances in place of positions; leave position_ids out"):
        model.forward(ids, position_ids=[[0, 1, 0, 1, 2]])
    with pytest.raises(InputError, match="this model takes no prediction_order"):
        glassbert.MiniBERT(engine="numpy").forward(ids, prediction_order=ids)
    with pytest.raises(TrainingError, match="rows of 5 tokens cannot be read in 6 segments"):
        cut_rows(TINY, {"input_ids": ids}, {"labels": ids}, 6)
    with pytest.raises(TrainingError, match="pair_labels belong to whole rows"):
        cut_rows(TINY, {"input_ids": ids}, {"labels": None, "pair_labels": [0, 1]}, 2)
