"""Removal of attention heads, and their importance by the rise of the loss."""

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.insight import head_importance, masked_batches, remove_greedily, without_heads
from glassbert.training.evaluate import evaluate
from tests.insight.specimen import sentences, specimen


def without_values(model, layer, head):
    """Remove a head in another way: its value weights and biases are zero."""
    size, width = model.config.head_size, model.config.hidden_size
    rows = slice(2 * width + head * size, 2 * width + (head + 1) * size)
    for name in ("weight", "bias"):
        key = f"layers.{layer}.attention.qkv.{name}"
        if key in model.parameters:
            model.parameters[key][rows] = 0


@pytest.mark.parametrize("config", ["bert", "mini", "modernbert"])
@pytest.mark.parametrize("head", [(0, 0), (1, 1)])
def test_a_removed_head_equals_one_without_values(config, head):
    ids = [[2, 9, 12, 4, 30, 3]]
    model, other = specimen(config).model, specimen(config).model
    silent = without_heads(model, [head]).predict(ids)
    assert not np.allclose(silent, model.predict(ids))
    without_values(other, *head)
    assert silent == pytest.approx(other.predict(ids), abs=1e-12)


def test_the_original_is_unchanged_and_the_copy_shares_the_other_weights():
    model = specimen().model
    before = {name: array.copy() for name, array in model.parameters.items()}
    twin = without_heads(model, [(0, 1), (0, 0), (1, 0)])
    assert all((model.parameters[name] == array).all() for name, array in before.items())
    assert (twin.parameters["layers.0.attention.output.weight"] == 0).all()
    assert (twin.parameters["layers.1.attention.output.weight"][:, 6:] != 0).all()
    assert twin.parameters["embeddings.token"] is model.parameters["embeddings.token"]


def test_removing_no_head_changes_nothing():
    model = specimen().model
    assert (without_heads(model, []).predict([[2, 9, 3]]) == model.predict([[2, 9, 3]])).all()


@pytest.mark.parametrize("head", [(2, 0), (0, 2), (-1, 0)])
def test_a_missing_head_is_an_error(head):
    with pytest.raises(InputError, match="2 layers of 2 heads"):
        without_heads(specimen().model, [head])


def test_importance_is_the_rise_of_the_loss():
    loaded = specimen()
    batches = masked_batches(loaded, sentences())
    found = head_importance(loaded.model, batches)
    assert found.loss == pytest.approx(evaluate(loaded.model, batches).loss)
    for layer, head in np.ndindex(2, 2):
        loss = evaluate(without_heads(loaded.model, [(layer, head)]), batches).loss
        assert found.rise[layer, head] == pytest.approx(loss - found.loss)


def test_greedy_removal_takes_the_smallest_loss_each_time():
    loaded = specimen()
    batches = masked_batches(loaded, sentences())
    ticks = []
    found = remove_greedily(loaded.model, batches, on_progress=lambda: ticks.append(1))
    heads = [(layer, head) for layer in range(2) for head in range(2)]
    assert sorted(found.order) == heads and len(ticks) == 4 + 3 + 2 + 1
    gone = []
    for step, taken in enumerate(found.order):
        prices = {h: evaluate(without_heads(loaded.model, [*gone, h]), batches).loss for h in heads if h not in gone}
        assert taken == min(prices, key=prices.get)
        assert found.losses[step + 1] == pytest.approx(prices[taken])
        gone.append(taken)
    assert len(remove_greedily(loaded.model, batches, limit=2).order) == 2


def test_a_model_without_a_head_is_an_error():
    with pytest.raises(InputError, match="no head"):
        head_importance(specimen(head=None).model, [])


def test_a_classifier_has_no_masked_words():
    with pytest.raises(InputError, match="predicts no words, so text without labels gives no loss"):
        masked_batches(specimen(head="sequence", num_labels=2), sentences())
