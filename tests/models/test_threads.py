"""One model used by many threads at once, and models as ordinary objects: copies and pickles."""

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from glassbert.engines import get_engine
from tests.models.small import BERT, MODERN, batch, make

CALLS = int(os.environ.get("GLASSBERT_STRESS_CALLS", "800"))


@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
def test_eight_threads_get_what_one_thread_gets_bit_by_bit(config):
    ids, mask, labels = batch(config)
    model = make(config, dtype="float32", threads=2)
    inputs = [(np.roll(ids, shift, 0), np.roll(mask, shift, 0), np.roll(labels, shift, 0)) for shift in range(5)]

    def call(number):
        ids, mask, labels = inputs[number % 5]
        kind = number % 3
        if kind == 0:
            return [model.forward(ids, mask)[0]]
        if kind == 1:
            return [model.predict(ids, mask)]
        loss, cache = model.loss(ids, labels, mask, kernels="plain" if number % 2 else None)
        return [loss, *(np.array(g) for g in model.backward(cache).values())]

    expected = [[np.asarray(a).tobytes() for a in call(number)] for number in range(30)]
    with ThreadPoolExecutor(8) as pool:
        for number, found in enumerate(pool.map(call, range(CALLS))):
            same = [np.asarray(a).tobytes() for a in found] == expected[number % 30]
            assert same, f"call {number} differs"


def test_plain_kernels_in_one_thread_do_not_change_another():
    ids, mask, labels = batch()
    fast, plain = make(dtype="float32"), make(dtype="float32", engine=get_engine("numpy", "float32", 1, "plain"))

    def gradients(model):
        return [np.array(g).tobytes() for g in model.backward(model.loss(ids, labels, mask)[1]).values()]

    expected = [gradients(fast), gradients(plain)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: gradients((fast, plain)[i % 2]), range(200)))
    assert all(one == expected[i % 2] for i, one in enumerate(found))


def test_a_forward_with_one_set_of_kernels_and_a_backward_with_another():
    ids, mask, labels = batch()
    model = make()
    _, cache = model.loss(ids, labels, mask)
    expected = {name: g.copy() for name, g in model.backward(cache).items()}
    model.engine = model.engine.with_kernels("plain")
    for name, gradient in model.backward(cache).items():
        np.testing.assert_array_equal(gradient, expected[name])


def test_a_backward_may_be_repeated():
    ids, mask, labels = batch()
    model = make(threads=2)
    _, cache = model.loss(ids, labels, mask)
    first = {name: g.copy() for name, g in model.backward(cache).items()}
    for name, gradient in model.backward(cache).items():
        np.testing.assert_array_equal(gradient, first[name])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_a_copy_computes_the_same_and_has_memory_of_its_own(copied, engine):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
        if copied is not copy.deepcopy:
            pytest.skip("MLX arrays are not pickled")
    ids, mask, labels = batch()
    model = make(dtype="float32", engine=engine, threads=2)
    twin = copied(model)
    before = np.array(model.engine.to_numpy(model.predict(ids, mask)))
    np.testing.assert_array_equal(model.engine.to_numpy(twin.predict(ids, mask)), before)
    twin.backward(twin.loss(ids, labels, mask)[1])
    twin.parameters["embeddings.token"] = twin.engine.array(np.zeros(twin.layout.shapes["embeddings.token"]))
    np.testing.assert_array_equal(model.engine.to_numpy(model.predict(ids, mask)), before)
    if engine == "numpy":  # named arrays are still views of the flat buffer
        twin.parameters.flat[:] = 0.5
        assert (twin.parameters["layers.0.ffn.up.weight"] == 0.5).all()


def test_padding_of_packed_rows_is_not_pooled():
    """With segment_ids, padding is no text: the mean over a padded packed row is that over its tokens."""
    model = make(BERT.replace(classifier_pooling="mean", pooler=False), "sequence", 3)
    ids = np.array([[3, 5, 7, 9, 0, 0]])
    short, _ = model.forward(ids[:, :4], segment_ids=np.array([[1, 1, 1, 1]]))
    padded, _ = model.forward(ids, segment_ids=np.array([[1, 1, 1, 1, 0, 0]]))
    np.testing.assert_allclose(padded, short, atol=1e-12)


def test_skipped_padding_appears_as_zeros_in_the_shape_of_the_batch():
    ids, mask, _ = batch()
    model = make(threads=2)
    _, whole = model.forward(ids, mask)
    _, packed = model.forward(ids, mask, skip_padding=True)
    real = mask.astype(bool)
    for name in ("layers.0.attention.q", "layers.0.ffn.hidden", "layers.0.attention.weights", "layers.1.ffn.activated"):
        a, b = whole[name], packed[name]
        assert a.shape == b.shape, name
        rows = (slice(None),) * (1 if name.endswith("q") or name.endswith("weights") else 0)
        for row in range(len(ids)):
            tokens = np.flatnonzero(real[row])
            np.testing.assert_allclose(a[row][(*rows, tokens)], b[row][(*rows, tokens)], atol=1e-12, err_msg=name)


@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
def test_predict_equals_forward_for_masks_with_holes(config):
    ids, mask, _ = batch(config)
    model = make(config, head=None, threads=2)
    for seed in range(5):
        holes = mask * (np.random.default_rng(seed).random(mask.shape) < 0.6)
        real = holes[:, :, None].astype(bool)
        np.testing.assert_allclose(model.predict(ids, holes) * real, model.forward(ids, holes)[0] * real, atol=1e-12)


def test_states_are_no_values_of_a_cache():
    ids, mask, labels = batch()
    for threads in (1, 2):
        _, cache = make(threads=threads).loss(ids, labels, mask, trace=True)
        for name in cache:
            value = cache[name]
            assert (
                not hasattr(value, "shape")
                or value.shape == ()
                or len(value) in (len(ids), int((labels != -100).sum()))
            )
        with pytest.raises(KeyError):
            cache["layers.0.attention.norm"]


def test_values_that_are_not_finite_reach_the_loss():
    ids, mask, labels = batch()
    model = make(BERT.replace(activation="relu"), dtype="float32")
    model.parameters["layers.0.ffn.up.weight"] = np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        assert np.isnan(float(model.loss(ids, labels, mask)[0]))
        assert np.isnan(float(model.loss(ids, labels, mask, kernels="plain")[0]))
