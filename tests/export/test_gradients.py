"""The graph of loss and gradients, and the steps of optimizers, in ONNX Runtime alone."""

import numpy as np
import pytest

from glassbert.engines.recording import Graph, RecordingEngine
from glassbert.errors import ConfigError, TrainingError
from glassbert.export import gradient_name, record_gradients, record_model, record_parameters, record_step
from glassbert.export import recording as recording_module
from glassbert.export.gradients import symbolic_targets
from glassbert.models.heads import Head
from glassbert.models.series import SeriesConfig, with_series
from glassbert.training.optimizers import make_optimizer
from tests.export.small import MEMBERS, batch, make_model, run, session, toy
from tests.models.small import make

LABELS = {"mlm": 0, "causal": 0, "multiclass": 3, "token": 3, "span": 0, "embedding": 0, "pretraining": 0}
CASES = [(family, head) for family in MEMBERS for head in LABELS if head != "causal" or toy(family).causal]
RAGGED = [9, 1, 6, 4]


def labels_for(head, given, seed=0):
    ids, mask = given["input_ids"], given["attention_mask"]
    rng, rows = np.random.default_rng(seed), len(given["input_ids"])
    if head in ("mlm", "causal", "pretraining"):
        chosen = (rng.random(ids.shape) < 0.4) & (mask == 1)
        chosen[0, 0] = True
        return np.where(chosen, ids, -100)
    return {
        "token": lambda: np.where(mask == 1, ids % 3, -100),
        "discriminator": lambda: np.where(mask == 1, ids % 2, -100),
        "span": lambda: np.stack([np.zeros(rows, np.int64), mask.sum(1) - 1], 1),
        "embedding": lambda: np.repeat(rng.random(rows // 2) * 2 - 1, 2).astype(np.float32),
        "multilabel": lambda: (rng.random((rows, 3)) < 0.5).astype(np.float32),
        "binary": lambda: (ids[:, :1] % 2).astype(np.float32),
        "regression": lambda: np.array([[0.5], [-100], [2.0], [-1.0]], np.float32)[:rows],
    }.get(head, lambda: np.where(np.arange(rows) == 1, -100, ids[:, 0] % 3))()


def compare(model, opened, head, lengths, tolerance=1e-4):
    """Loss and every gradient; returns the largest gradient, which must not be zero."""
    given = batch(model, lengths)
    given["labels"] = labels_for(head, given)
    if head == "pretraining":
        given["pair_labels"] = np.arange(len(lengths)) % 2
    loss, cache = model.loss(**given)
    gradients, found = model.backward(cache), run(opened, {**model.parameters, **given})
    assert found["loss"] == pytest.approx(float(loss), abs=1e-5)
    assert set(found) == {"loss", *map(gradient_name, gradients)}
    for name, values in gradients.items():
        np.testing.assert_allclose(found[gradient_name(name)], values, rtol=1e-4, atol=tolerance, err_msg=name)
    return max(float(np.abs(values).max()) for values in gradients.values())


@pytest.mark.parametrize(("family", "head"), CASES)
def test_gradients_are_ours(family, head):
    model = make_model(family, head, LABELS[head])
    opened = session(record_gradients(model))
    assert compare(model, opened, head, RAGGED) > 1e-3
    compare(model, opened, head, [1, 1])
    compare(model, opened, head, [40, 33])


@pytest.mark.parametrize("head", ["binary", "multilabel", "regression", "ordinal", "discriminator", "aligned"])
def test_gradients_of_other_heads(head):
    model = make_model("modernbert", head, {"multilabel": 3, "ordinal": 3, "aligned": 3}.get(head, 0))
    assert compare(model, session(record_gradients(model)), head, RAGGED) > 1e-3


@pytest.mark.parametrize(
    ("head", "loss", "options"),
    [
        ("sequence", "cross_entropy", {"class_weights": (0.5, 2.0, 1.0), "label_smoothing": 0.1}),
        ("sequence", "cross_entropy", {"focal_gamma": 2.0, "class_weights": (0.5, 2.0, 1.0)}),
        ("sequence", "binary_cross_entropy", {"positive_weights": (1.0, 3.0, 0.5)}),
        ("sequence", "binary_cross_entropy", {"focal_gamma": 1.5}),
        ("embedding", "contrastive", {"temperature": 0.2}),
        ("embedding", "ranking", {"temperature": 0.2}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else value,
)
def test_gradients_of_losses(head, loss, options):
    labels = 3 if head == "sequence" else 0
    model = make(toy("bert"), head, labels, dtype="float32", loss=loss, loss_options=options)
    given = batch(model, RAGGED)
    kind = "multilabel" if loss == "binary_cross_entropy" else head
    given["labels"] = np.ones(4, np.float32) if loss == "contrastive" else labels_for(kind, given)
    loss, cache = model.loss(**given)
    gradients, found = model.backward(cache), run(session(record_gradients(model)), {**model.parameters, **given})
    assert found["loss"] == pytest.approx(float(loss), abs=1e-5)
    for name, values in gradients.items():
        np.testing.assert_allclose(found[gradient_name(name)], values, rtol=1e-4, atol=1e-5, err_msg=name)


def test_gradients_of_a_scaled_regression():
    options = {"target_mean": [5.0], "target_scale": [2.0]}
    model = make(toy("bert"), "regression", dtype="float32", loss_options=options)
    compare(model, session(record_gradients(model)), "regression", RAGGED)


def test_gradients_of_a_forecast():
    config = with_series(toy("bert"), SeriesConfig(window=12, patch=4, mean=3.0, scale=0.5))
    model = make(config, "forecast", 2, dtype="float32")
    rng = np.random.default_rng(0)
    windows, labels = rng.random((4, 12)) + 1.0, rng.random((4, 2)) + 1.0
    loss, cache = model.loss(windows, labels)
    given = {**model.parameters, "values": windows, "labels": labels}
    gradients, found = model.backward(cache), run(session(record_gradients(model)), given)
    assert found["loss"] == pytest.approx(float(loss), rel=1e-5)
    for name, values in gradients.items():
        np.testing.assert_allclose(found[gradient_name(name)], values, rtol=1e-4, atol=1e-5, err_msg=name)


def test_no_labelled_token():
    """The loss and all gradients are zero, as ours are."""
    model = make_model("bert", "mlm")
    given = batch(model, RAGGED)
    given["labels"] = np.full_like(given["input_ids"], -100)
    found = run(session(record_gradients(model)), {**model.parameters, **given})
    assert all(not values.any() for values in found.values())


def test_a_wrong_backward_is_seen(monkeypatch):
    """The graph is that of the hand-written backward: a fault planted there changes the gradients."""

    class Faulty(RecordingEngine):
        def __init__(self, graph, kernels="fast"):
            super().__init__(graph, kernels)
            self.ops = self.with_operations({"relu_backward": lambda dy, y: dy}).ops

        def with_kernels(self, kernels):
            return self

    monkeypatch.setattr(recording_module, "RecordingEngine", Faulty)
    model = make_model("bert", "multiclass", 3)
    with pytest.raises(AssertionError, match=r"embeddings\.token"):
        compare(model, session(record_gradients(model)), "multiclass", RAGGED)


# ---- steps -----------------------------------------------------------------------------------------------------------


def train_in_onnx_runtime(model, optimizer, settings, given, rate, steps):
    """The losses of a loop that knows the graphs alone."""
    gradients, step = session(record_gradients(model)), session(record_step(model, optimizer, **settings))
    inputs = {one.name: one for one in step.get_inputs()}
    state = {name: np.zeros(one.shape, np.float32) for name, one in inputs.items() if "/" in name}
    parameters = run(session(record_parameters(model)), {})
    losses = []
    for number in range(1, steps + 1):
        found = run(gradients, {**given, **parameters})
        losses.append(float(found.pop("loss")))
        scalars = {"step": np.array(number), "learning_rate": np.array(rate, np.float32)}
        moved = run(step, {**parameters, **found, **state, **scalars})
        parameters = {name: moved[f"new.{name}"] for name in parameters}
        state = {name: moved[f"new.{name}"] for name in state}
    return losses, parameters


def train_here(model, optimizer, settings, given, rate, steps):
    made = make_optimizer(optimizer, model, learning_rate=rate, **settings)
    losses, gradients = [], None
    for _ in range(steps):
        loss, cache = model.loss(**given)
        losses.append(float(loss))
        gradients = model.backward(cache, into=gradients)
        made.update(model.parameters, gradients)
    return losses


@pytest.mark.parametrize(
    ("optimizer", "settings", "rate"),
    [
        ("sgd", {"clip": None, "momentum": 0.0}, 0.03),
        ("sgd", {}, 0.02),
        ("adamw", {}, 2e-3),
    ],
)
@pytest.mark.parametrize(("family", "head"), [("bert", "multiclass"), ("modernbert", "mlm"), ("gpt2", "causal")])
def test_twenty_steps_have_our_losses(family, head, optimizer, settings, rate):
    model = make(toy(family), head, LABELS[head], dtype="float32", spread=False, threads=1)
    given = batch(model, RAGGED)
    given["labels"] = labels_for(head, given)
    found, parameters = train_in_onnx_runtime(model, optimizer, settings, given, rate, 20)
    wanted = train_here(model, optimizer, settings, given, rate, 20)
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert wanted[-1] < wanted[0] - 0.01
    for name, values in model.parameters.items():
        np.testing.assert_allclose(parameters[name], values, atol=1e-3, err_msg=name)


def test_the_forward_of_given_parameters():
    """A model that was trained elsewhere computes with its new weights."""
    model, other = make_model("modernbert", "multiclass", 3), make(toy("modernbert"), "multiclass", 3, seed=9)
    given = batch(model, RAGGED)
    weights = {name: np.asarray(values, np.float32) for name, values in other.parameters.items()}
    graph = record_model(model, given=True)
    assert not set(graph.constants) & set(model.parameters)
    found = run(session(graph), {**given, **weights})["logits"]
    np.testing.assert_allclose(found, other.predict(**given), rtol=1e-5, atol=1e-5)


def test_a_step_that_is_not_finite_changes_nothing():
    model = make_model("bert", "multiclass", 3)
    step = session(record_step(model, "adamw"))
    given = {one.name: np.ones(one.shape, np.float32) for one in step.get_inputs()}
    given |= {"step": np.array(1), "learning_rate": np.array(0.1, np.float32)}
    given["layers.0.ffn.up.d_weight"][0, 0] = np.inf
    found = run(step, given)
    assert np.isinf(found["gradient_norm"])
    assert all((values == 1).all() for name, values in found.items() if name != "gradient_norm")


def test_a_model_without_head_has_no_gradients():
    with pytest.raises(ConfigError, match="a model without a head has no loss"):
        record_gradients(make_model("bert", None))


def test_labels_of_an_unknown_head():
    class Own(Head):
        kind = "own"

        def parameters(self):
            return []

        def prepare_labels(self, labels, shape):
            return {"targets": labels}

        def forward(self, hidden, batch, scope, rows=None):
            return hidden

        def backward(self, doutput, scope):
            return doutput

    graph = Graph()
    with pytest.raises(ConfigError, match="labels of a head of type own cannot be recorded"):
        symbolic_targets(Own(toy("bert")), graph, RecordingEngine(graph).xp)


def test_an_unknown_optimizer():
    with pytest.raises(TrainingError, match="there is no optimizer 'adam'"):
        record_step(make_model("bert", "multiclass", 3), "adam")
