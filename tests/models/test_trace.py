"""Names of traced values: activations, and their gradients with `d_`, are complete and correct."""

import numpy as np
import pytest

from glassbert.layers.scope import Cache
from tests.models.small import BERT, CONFIGS, DROPOUT, MODERN, batch, make

EVERY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
DESIGN_NAMES = ("layers.0.attention.weights", "layers.0.ffn.hidden")
TRACED = (
    "embeddings.sum", "embeddings.output", "layers.0.input", "layers.0.output", "layers.0.attention.output",
    "layers.0.attention.context", "layers.0.attention.q", "layers.0.attention.k", "layers.0.attention.v",
    "layers.0.ffn.input", "layers.0.ffn.hidden", "layers.0.ffn.activated", "layers.0.ffn.output", "layers.1.output",
    "output", "head.logits",
)  # fmt: skip


def gradient_name(name):
    place, dot, last = name.rpartition(".")
    return f"{place}{dot}d_{last}"


def traced(config=BERT, threads=1, **options):
    ids, mask, labels = batch(config)
    model = make(config, threads=threads)
    loss, cache = model.loss(ids, labels, mask, trace=True, **options)
    return model, loss, cache, model.backward(cache)


@EVERY
def test_the_names_of_the_design_are_in_every_cache(config):
    ids, mask, labels = batch(config)
    model = make(config)
    for _, cache in (model.forward(ids, mask), model.loss(ids, labels, mask)):
        for name in DESIGN_NAMES:
            assert name in cache
    weights = cache["layers.0.attention.weights"]
    assert weights.shape == (5, 2, 9, 9)
    sees = (mask.sum(1) > 0)[:, None, None]
    np.testing.assert_allclose(weights.sum(-1), np.broadcast_to(sees, weights.shape[:3]), atol=1e-12)
    assert not weights.transpose(0, 3, 1, 2)[mask == 0].any()


@EVERY
def test_a_trace_keeps_every_activation_and_its_gradient(config):
    _, _, cache, _ = traced(config)
    for name in TRACED:
        assert name in cache, name
        assert gradient_name(name) in cache, gradient_name(name)
        assert cache[name].shape == cache[gradient_name(name)].shape, name


@EVERY
def test_tracing_changes_no_number(config):
    ids, mask, labels = batch(config)
    model = make(config)
    output = model.forward(ids, mask)[0]
    np.testing.assert_array_equal(output, model.forward(ids, mask, trace=True, kernels="fast")[0])
    np.testing.assert_allclose(output, model.forward(ids, mask, trace=True)[0], rtol=0, atol=1e-12)
    loss, cache = model.loss(ids, labels, mask)
    loss_traced, cache_traced = model.loss(ids, labels, mask, trace=True, kernels="fast")
    assert float(loss) == pytest.approx(float(loss_traced), abs=1e-15)
    without, with_trace = model.backward(cache), model.backward(cache_traced)
    for name in without:
        np.testing.assert_allclose(without[name], with_trace[name], atol=1e-15)


def test_without_a_trace_only_what_backward_needs_is_kept():
    ids, mask, labels = batch()
    _, cache = make().loss(ids, labels, mask)
    assert "embeddings.sum" not in cache and "head.logits" not in cache
    with pytest.raises(KeyError, match=r"'embeddings.sum' is not in this cache; forward\(..., trace=True\)"):
        cache["embeddings.sum"]


@EVERY
def test_the_output_of_a_block_is_the_input_of_the_next(config):
    _, _, cache, _ = traced(config)
    np.testing.assert_array_equal(cache["embeddings.output"], cache["layers.0.input"])
    np.testing.assert_array_equal(cache["embeddings.d_output"], cache["layers.0.d_input"])
    np.testing.assert_array_equal(cache["layers.0.output"], cache["layers.1.input"])
    np.testing.assert_array_equal(cache["layers.0.d_output"], cache["layers.1.d_input"])


@EVERY
def test_no_traced_value_is_overwritten_later(config, monkeypatch):
    copies = {}
    for method in ("store", "record"):
        original = getattr(Cache, method)

        def copying(self, name, value, token_axes=(1,), original=original):
            if isinstance(value, np.ndarray) and self.trace:
                copies.setdefault(name, value.copy())
            return original(self, name, value, token_axes)

        monkeypatch.setattr(Cache, method, copying)
    _, _, cache, _ = traced(config)
    assert len(copies) > 40
    for name, values in copies.items():
        np.testing.assert_array_equal(cache[name], values, err_msg=name)


MOVABLE = (
    "embeddings.output", "layers.0.attention.q", "layers.0.attention.k", "layers.0.attention.v",
    "layers.0.attention.output", "layers.1.ffn.hidden", "layers.0.ffn.activated", "layers.1.ffn.output",
    "layers.0.output", "output",
)  # fmt: skip


@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
@pytest.mark.parametrize("name", MOVABLE)
def test_the_gradient_under_a_name_is_the_derivative_of_the_loss_by_that_activation(config, name, monkeypatch):
    ids, mask, labels = batch(config)
    model = make(config)
    _, cache = model.loss(ids, labels, mask, trace=True)
    model.backward(cache)
    direction = np.random.default_rng(0).standard_normal(cache[name].shape)
    expected = float((cache[gradient_name(name)] * direction).sum())

    def loss_with(shift):
        with monkeypatch.context() as patch:
            for method in ("store", "record"):
                original = getattr(Cache, method)
                if method == "store" and not name.endswith((".q", ".k", ".v", ".activated")):
                    continue  # a recorded value would be changed twice

                def moving(self, at, value, token_axes=(1,), original=original):
                    return original(self, at, value + shift * direction if at == name else value, token_axes)

                patch.setattr(Cache, method, moving)
            return float(model.loss(ids, labels, mask, trace=True)[0])

    measured = (loss_with(1e-5) - loss_with(-1e-5)) / 2e-5
    assert measured == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
def test_the_parts_of_a_batch_appear_as_one(config, threads):
    _, _, alone, _ = traced(config)
    _, _, together, _ = traced(config, threads)
    assert set(alone) == set(together) and len(alone) == len(together)
    for name in TRACED:
        for key in (name, gradient_name(name)):
            np.testing.assert_allclose(together[key], alone[key], atol=1e-12, err_msg=key)
    np.testing.assert_allclose(together["layers.1.attention.weights"], alone["layers.1.attention.weights"], atol=1e-12)


def test_every_name_in_a_cache_can_be_looked_up():
    for options in ({}, {"skip_padding": True}):
        for threads in (1, 2):
            _, _, cache, _ = traced(BERT, threads, **options)
            for name in cache:
                cache[name]


def test_the_pooled_output_of_an_encoder_is_computed_on_request():
    ids, mask, _ = batch()
    model = make(head=None)
    hidden, cache = model.forward(ids, mask)
    p = model.parameters
    expected = np.tanh(hidden[:, 0] @ p["pooler.weight"].T + p["pooler.bias"])
    np.testing.assert_allclose(cache["pooler.output"], expected, atol=1e-12)


@EVERY
def test_a_checkpointed_cache_computes_again_what_it_did_not_keep(config):
    ids, mask, labels = batch(config)
    caches = []
    for checkpointing in (False, True):
        model = make(config.replace(**DROPOUT), threads=2)
        model.set_training(True)
        model.set_checkpointing(checkpointing)
        caches.append(model.loss(ids, labels, mask)[1])
    for name in ("layers.1.attention.weights", "layers.0.ffn.hidden", "layers.0.ffn.activated", "layers.1.attention.q"):
        np.testing.assert_allclose(caches[1][name], caches[0][name], atol=1e-14, err_msg=name)
