"""Objectives: required targets, weighted sums, and metrics."""

import numpy as np
import pytest

from glassbert.errors import InputError, TrainingError
from glassbert.training.evaluate import evaluate
from glassbert.training.objectives import Objectives, right_choices, right_signs
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from tests.models.small import BERT, MODERN, batch, make

PAIRS = np.array([0, 1, 1, -100, 0])


def test_a_sum_is_written_as_it_is_read():
    found = Objectives.parse("mlm + 0.5*sop")
    assert found.names == ("mlm", "sop") and found.weights.tolist() == [1.0, 0.5]
    assert str(found) == "mlm+0.5*sop" and str(Objectives.parse(str(found))) == str(found)
    assert found.needs == ("labels", "pair_labels") and found.head_type == "pretraining"
    assert Objectives.parse("mlm").head_type == "mlm" and Objectives.parse("sop").head_type == "pretraining"
    assert Objectives.parse("token").head_type == "token"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not an objective; write a sum such as 'mlm' or 'mlm.0.5.nsp' of mlm, nsp, sop"),
        ("mlm+poem", "'poem' is not an objective"),
        ("mlm+0*sop", "'0' in .* is not a weight; it must be a number above 0"),
        ("1e*mlm", "is not a weight"),
        ("mlm+mlm", "names an objective twice"),
        ("generator", "'generator' in 'generator' needs 'rtd' beside it; write 'rtd'"),
        ("2*rtd", r"'rtd' in '2.rtd' needs 'generator' beside it; write 'rtd' \(generator"),
    ],
)
def test_bad_sums(text, message):
    with pytest.raises(TrainingError, match=message):
        Objectives.parse(text)


def test_an_objective_that_does_not_fit_the_head():
    model = make()
    with pytest.raises(
        TrainingError, match=r"'nsp' needs the head 'pair', but this model's head is 'mlm'.*'pretraining'"
    ):
        TrainingStep(model, AdamW(model), objective="mlm+nsp")
    with pytest.raises(InputError, match="no head"):
        TrainingStep(core := make(BERT, None), AdamW(core))


def test_missing_targets():
    model = make(BERT, "pretraining")
    ids, mask, labels = batch()
    step = TrainingStep(model, AdamW(model))
    with pytest.raises(InputError, match="the objective 'nsp' needs pair_labels in every batch"):
        step(ids, labels, mask)
    with pytest.raises(InputError, match="also needs pair_labels"):
        model.loss(ids, labels, mask)
    with pytest.raises(InputError, match=r"labels must have the shape \(5,\)"):
        step(ids, labels, mask, pair_labels=[0, 1])
    with pytest.raises(InputError, match="leave pair_labels out"):
        make().loss(ids, labels, mask, pair_labels=PAIRS)


@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
def test_the_gradient_of_a_weighted_sum_is_the_weighted_sum_of_gradients(config):
    ids, mask, labels = batch(config)

    def gradients(objective):
        model = make(config, "pretraining")
        step = TrainingStep(model, AdamW(model), objective=objective)
        result = step(ids, labels, mask, pair_labels=PAIRS)
        return result, step._gradients.flat.copy()

    (words, dwords), (pairs, dpairs), (both, dboth) = map(gradients, ("mlm", "sop", "0.7*mlm+2.5*sop"))
    assert both.loss == pytest.approx(0.7 * words.loss + 2.5 * pairs.loss, rel=1e-12)
    assert both.losses == pytest.approx({"mlm": words.loss, "sop": pairs.loss}, rel=1e-12)
    np.testing.assert_allclose(dboth, 0.7 * dwords + 2.5 * dpairs, atol=1e-12)


def test_with_weights_of_one_it_is_the_loss_of_the_head():
    ids, mask, labels = batch()
    model = make(BERT, "pretraining")
    loss, cache = model.loss(ids, labels, mask, pair_labels=PAIRS)
    expected = model.backward(cache)
    step = TrainingStep(model, AdamW(model))
    assert step(ids, labels, mask, pair_labels=PAIRS).loss == pytest.approx(float(loss), rel=1e-12)
    np.testing.assert_allclose(step._gradients.flat, expected.flat, atol=1e-13)


def test_counts_of_correct_predictions():
    logits = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    assert right_choices(logits, np.array([1, 1, -100])) == 1
    assert right_signs(np.array([[2.0, -1.0], [-3.0, 4.0]]), np.array([[1.0, 1.0], [0.0, -100.0]])) == 2


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_evaluation_counts_every_target_once(engine):
    """Batches of unequal size, separately and together; dropout is off."""
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    config = BERT.replace(hidden_dropout=0.5)
    model = make(config, "pretraining", dtype="float32", engine=engine)
    model.set_training(True)
    seed = model.dropout_seed
    ids, mask, labels = batch(config)
    fields = {"input_ids": ids, "attention_mask": mask, "labels": labels, "pair_labels": PAIRS}
    whole = evaluate(model, [fields], objective="mlm+0.5*nsp")
    apart = evaluate(
        model, [{name: value[rows] for name, value in fields.items()} for rows in (slice(0, 1), slice(1, 5))],
        objective="mlm+0.5*nsp",
    )  # fmt: skip
    assert model.training and model.dropout_seed == seed
    assert apart.counts == whole.counts == {"mlm": int((labels != -100).sum()), "nsp": 4}
    assert apart.as_dict() == pytest.approx(whole.as_dict(), rel=1e-5)
    model.set_training(False)
    logits = {part: np.array(values) for part, values in model.predict(ids, mask).items()}
    right = (logits["mlm"].argmax(-1) == labels).sum() / (labels != -100).sum()
    assert whole.accuracy == whole.accuracies["mlm"] == pytest.approx(right)
    assert whole.accuracies["nsp"] == pytest.approx((logits["pair"].argmax(-1) == PAIRS).sum() / 4)
    expected = model.loss(ids, labels, mask, pair_labels=PAIRS)[0]
    assert whole.losses["mlm"] + whole.losses["nsp"] == pytest.approx(float(expected), rel=1e-5)
    assert whole.loss == pytest.approx(whole.losses["mlm"] + 0.5 * whole.losses["nsp"])
    assert whole.perplexity == pytest.approx(np.exp(whole.losses["mlm"]))


def test_evaluation_of_nothing():
    ids, _, labels = batch()
    with pytest.raises(InputError, match="nothing to evaluate"):
        evaluate(make(), [])
    with pytest.raises(InputError, match="nothing to evaluate"):
        evaluate(make(), [{"input_ids": ids, "labels": np.full_like(labels, -100)}])
    with pytest.raises(InputError, match="a batch has 'label'; known fields are input_ids"):
        evaluate(make(), [{"input_ids": ids, "label": labels}])
