"""A logical batch in micro-batches gives the gradient of the whole batch, for all objectives and with dropout."""

import numpy as np
import pytest

from glassbert.training.objectives import Objectives
from glassbert.training.optimizers import AdamW, Sophia
from glassbert.training.step import TrainingStep
from tests.models.small import BERT, DROPOUT, MODERN, batch, make

LENGTHS = np.random.default_rng(1).integers(0, 10, 32)
PAIRS = np.random.default_rng(2).integers(0, 2, 32) - 100 * (np.arange(32) % 5 == 0)  # every fifth is ignored


def gradient(config, physical_batch, head="mlm", objective=None, **options):
    """Loss, norm, losses and gradient of 32 rows of very different length."""
    model = make(config, head, **options)
    model.set_training(True)
    optimizer = AdamW(model)
    kept = {}

    def keep(parameters, gradients, norm):
        kept.update({name: np.array(value) for name, value in gradients.items()})

    optimizer.move = keep
    step = TrainingStep(model, optimizer, objective=objective, physical_batch=physical_batch)
    ids, mask, labels = batch(config, LENGTHS)
    labels[LENGTHS < 4] = -100  # some micro-batches have no target
    result = step(ids, labels, mask, pair_labels=None if head == "mlm" else np.where(PAIRS < 0, -100, PAIRS))
    return result, kept


@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
@pytest.mark.parametrize("physical_batch", [8, 5, 1])
@pytest.mark.parametrize("threads", [1, 3])
def test_32_rows_from_fewer_are_the_whole_batch_dropout_included(config, physical_batch, threads):
    config = config.replace(**DROPOUT)
    whole, expected = gradient(config, None)
    pieces, found = gradient(config, physical_batch, threads=threads)
    assert pieces.loss == pytest.approx(whole.loss, rel=1e-12)
    assert pieces.gradient_norm == pytest.approx(whole.gradient_norm, rel=1e-10)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-12, err_msg=name)


def test_in_float32_the_identity_holds_to_a_millionth():
    _, expected = gradient(BERT, None, dtype="float32")
    _, found = gradient(BERT, 8, dtype="float32")
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("physical_batch", [8, 3])
def test_every_objective_is_weighted_by_its_number_of_targets(physical_batch):
    options = {"head": "pretraining", "objective": "mlm+0.3*nsp"}
    whole, expected = gradient(BERT, None, **options)
    pieces, found = gradient(BERT, physical_batch, **options)
    assert pieces.losses == pytest.approx(whole.losses, rel=1e-12)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("head", ["mlm", "pretraining"])
def test_mlx_adds_up_the_same(head):
    mx = pytest.importorskip("mlx.core")
    mx.disable_compile()
    try:
        trained = []
        for physical_batch in (None, 8, 5):
            model = make(BERT, head, dtype="float32", engine="mlx")
            step = TrainingStep(model, AdamW(model, 1e-2, epsilon=1e-2), physical_batch=physical_batch)
            ids, mask, labels = batch(BERT, LENGTHS)
            pairs = None if head == "mlm" else np.where(PAIRS < 0, -100, PAIRS)
            results = [step(ids, labels, mask, pair_labels=pairs) for _ in range(3)]
            numbers = [(float(r.loss), float(r.gradient_norm), *map(float, r.losses.values())) for r in results]
            trained.append((numbers, {name: np.array(value) for name, value in model.parameters.items()}))
    finally:
        mx.enable_compile()
    for numbers, parameters in trained[1:]:
        np.testing.assert_allclose(numbers, trained[0][0], rtol=1e-5)
        for name, values in parameters.items():
            np.testing.assert_allclose(values, trained[0][1][name], rtol=0, atol=1e-6, err_msg=name)


def test_mlx_micro_batches_compile():
    pytest.importorskip("mlx.core")
    losses = []
    for physical_batch in (None, 2):
        model = make(BERT, dtype="float32", engine="mlx")
        step = TrainingStep(model, AdamW(model, 1e-2), physical_batch=physical_batch)
        ids, mask, labels = batch()
        losses.append([float(step(ids, labels, mask).loss) for _ in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


# ---- the curvature for Sophia --------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["mlm", "mlm+0.5*nsp"])
def test_sampled_labels_estimate_the_gauss_newton_diagonal(objective):
    """Many samples against the exact expectation, a sum over every possible label of every row."""
    config = BERT.replace(vocab_size=7, num_hidden_layers=1)
    model = make(config, "pretraining")
    ids, mask, labels = batch(config, [4, 2])
    pairs = np.array([0, 1])
    objectives = Objectives.parse(objective)
    exact = np.zeros(model.layout.size)
    logits = model.predict(ids, mask)
    for (name, logit, places), weight in zip(
        (("mlm", logits["mlm"], np.argwhere(labels != -100)), ("nsp", logits["pair"], np.array([[0], [1]]))),
        objectives.weights, strict=False,
    ):  # fmt: skip
        for place in map(tuple, places):
            chances = np.exp(logit[place] - logit[place].max())
            for label, chance in enumerate(chances / chances.sum()):
                given = {"labels": np.full_like(labels, -100), "pair_labels": np.full(2, -100)}
                given["labels" if name == "mlm" else "pair_labels"][place] = label
                _, cache = model.loss(ids, attention_mask=mask, **given)
                exact += weight / len(places) * chance * model.backward(cache).flat ** 2
    seen = []
    optimizer = Sophia(model, 0.0, every=1, weight_decay=0.0)
    optimizer.observe = lambda gradients: seen.append(gradients.flat**2)
    step = TrainingStep(model, optimizer, objective=objective)
    for _ in range(250):
        step(ids, labels, mask, pair_labels=pairs)
    found = np.mean(seen, 0)
    assert found.sum() == pytest.approx(exact.sum(), rel=0.2)
    assert np.corrcoef(found, exact)[0, 1] > 0.95


def test_curvature_is_computed_at_intervals_and_only_for_sophia():
    asked = []
    model = make()
    optimizer = Sophia(model, every=3)
    step = TrainingStep(model, optimizer)
    ids, mask, labels = batch()
    for _ in range(7):
        before = optimizer.state["curvature"].flat.copy()
        step(ids, labels, mask)
        asked.append(bool((optimizer.state["curvature"].flat != before).any()))
    assert asked == [True, False, False, True, False, False, True]
