"""The linear map by oneDNN and BLAS: any view, any number of rows, and only weights that cannot change are packed."""

import copy
import gc
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert import Model
from glassbert.checkpoints.family import PRESETS
from glassbert.engines import NumpyEngine, linear_kernels, onednn
from glassbert.engines.linear_kernels import filled, linear, linear_backward, packed, product
from glassbert.engines.threads import using_threads
from glassbert.errors import InputError, TrainingError
from glassbert.ops import linear as plain_linear
from glassbert.ops import linear_backward as plain_backward
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep

needs_onednn = pytest.mark.skipif(not onednn.is_installed(), reason=str(onednn.library()))
needs_packing = pytest.mark.skipif(not onednn.packs_weights(), reason="oneDNN packs no weights on this machine")


def frozen(rng, outputs, inputs):
    """A weight as a model has it: a view into a flat buffer, both read-only."""
    flat = rng.standard_normal(outputs * inputs + 3, np.float32)
    view = flat[3:].reshape(outputs, inputs)
    flat.flags.writeable = view.flags.writeable = False
    return view


@st.composite
def views(draw):
    """Two matrices and an output in any memory order, some with gaps, some with one row, one column or none."""
    m, k, n = (draw(st.integers(0, 40)) for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 99)))

    def matrix(rows, columns):
        kind = draw(st.sampled_from(["rows", "columns", "part", "every second", "backwards"]))
        if kind == "columns":
            return rng.standard_normal((columns, rows), np.float32).T
        if kind == "part":
            return rng.standard_normal((rows + 1, columns + 5), np.float32)[1:, 2 : columns + 2]
        if kind == "every second":
            return rng.standard_normal((rows, 2 * columns), np.float32)[:, ::2]
        if kind == "backwards":
            return rng.standard_normal((rows, columns), np.float32)[::-1]
        return rng.standard_normal((rows, columns), np.float32)

    return matrix(m, k), matrix(k, n), matrix(m, n)


@given(views())
@settings(max_examples=300, deadline=None)
def test_a_product_of_any_views_is_that_of_numpy(given):
    a, b, out = given
    before = linear_kernels.FEW_MULTIPLICATIONS
    linear_kernels.FEW_MULTIPLICATIONS = -1  # small ones by oneDNN too
    try:
        found = product(a, b, out)
    finally:
        linear_kernels.FEW_MULTIPLICATIONS = before
    assert found is out
    np.testing.assert_allclose(out, a.astype(float) @ b.astype(float), atol=1e-4)


@needs_onednn
@pytest.mark.parametrize("threads", [1, 2])
def test_forward_and_backward_agree_with_the_plain_operation(threads):
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((6, 50, 96), np.float32), rng.standard_normal((6, 50, 160), np.float32)
    weight, bias = rng.standard_normal((160, 96), np.float32), rng.standard_normal(160, np.float32)
    with using_threads(threads):
        y, state = linear(x, weight, bias)
        found = linear_backward(dy, state)
    right, right_state = plain_linear(x.astype(float), weight.astype(float), bias.astype(float))
    np.testing.assert_allclose(y, right, atol=1e-4)
    for one, other in zip(found, plain_backward(dy.astype(float), right_state), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)


@needs_onednn
@pytest.mark.parametrize("terms", [None, 1, 16, 30, 48])
@pytest.mark.parametrize("k", [1, 15, 16, 40, 72, 100])
def test_a_sum_in_runs_is_the_same_sum(k, terms):
    rng = np.random.default_rng(5)
    for a in (rng.standard_normal((9, k), np.float32), rng.standard_normal((k, 9), np.float32).T):
        for b in (rng.standard_normal((k, 7), np.float32), rng.standard_normal((7, k), np.float32).T):
            wide = np.full((9, 11), np.nan, np.float32)
            onednn.product_f32(a, b, wide[:, 2:9], terms)
            np.testing.assert_allclose(wide[:, 2:9], a.astype(float) @ b.astype(float), atol=1e-5)
            assert np.isnan(wide[:, :2]).all() and np.isnan(wide[:, 9:]).all()


@pytest.mark.parametrize("inputs", [384, 768, 3072])
def test_a_forward_rounds_no_more_than_the_plain_operation(inputs):
    """oneDNN adds 384 terms one after another, which rounds a fifth more than BLAS does."""
    rng = np.random.default_rng(7)
    x, weight = (
        rng.standard_normal((linear_kernels.MANY_ROWS, inputs), np.float32),
        rng.standard_normal((96, inputs), np.float32),
    )
    exact = x.astype(float) @ weight.T.astype(float)
    fast, plain = (np.linalg.norm(run(x, weight)[0] - exact) for run in (linear, plain_linear))
    assert fast < 1.1 * plain


@needs_packing
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("bfloat16", [False, True])
def test_packed_weights_give_the_same_product_for_any_number_of_rows(threads, bfloat16):
    if bfloat16 and onednn.why_not():
        pytest.skip(onednn.why_not())
    rng = np.random.default_rng(1)
    weight, bias = frozen(rng, 300, 96), rng.standard_normal(300, np.float32)
    kept = packed(weight, bfloat16)
    assert kept is packed(weight, bfloat16) is not None
    with using_threads(threads):
        for rows in (0, 1, 3, 4, 25, 63, 64, 65, 255, 256, 257, 300, 511, 512, 900):
            x = rng.standard_normal((rows, 96), np.float32)
            for given, added in ((x, bias), (x[::-1], None)):
                found = kept.product(given, added)
                assert found.shape == (rows, 300)
                right = given.astype(float) @ weight.T + (0 if added is None else added)
                np.testing.assert_allclose(found, right, atol=0.35 if bfloat16 else 1e-4, err_msg=f"{rows} rows")


def test_few_numbers_of_rows_are_compiled():
    assert len({filled(rows) for rows in range(1, linear_kernels.BLOCK + 1)}) <= 30
    assert all(rows <= filled(rows) <= rows + 15 for rows in range(1000)) and filled(0) == 0


@needs_packing
def test_only_what_cannot_change_is_packed():
    weight = np.ones((8, 8), np.float32)
    assert packed(weight) is None
    view = weight[:4]
    view.flags.writeable = False
    assert packed(view) is None, "its memory can be changed through the array that owns it"
    buffer = np.frombuffer(bytearray(256), np.float32).reshape(8, 8)
    buffer.flags.writeable = False
    assert packed(buffer) is None, "its memory belongs to something else"
    wide = np.ones((8, 8))
    wide.flags.writeable = False
    assert packed(wide) is None, "it is float64"
    weight.flags.writeable = False
    assert packed(weight) is not None


@needs_packing
def test_packed_weights_end_with_their_model():
    weight = frozen(np.random.default_rng(2), 32, 32)
    gc.collect()  # those of earlier tests
    before = len(linear_kernels._packed)
    packed(weight)
    assert len(linear_kernels._packed) == before + 1
    del weight
    gc.collect()
    assert len(linear_kernels._packed) == before


@needs_packing
def test_threads_that_meet_at_an_unpacked_weight_share_one():
    weight, found = frozen(np.random.default_rng(3), 512, 512), []
    threads = [threading.Thread(target=lambda: found.append(packed(weight))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(map(id, found))) == 1


@needs_packing
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row(value):
    weight = frozen(np.random.default_rng(4), 24, 16)
    x = np.ones((5, 16), np.float32)
    x[2, 3] = value
    found = linear(x, weight)[0]
    assert not np.isfinite(found[2]).any() and np.isfinite(found[[0, 1, 3, 4]]).all()


def model(precision="float32", **options):
    config = PRESETS["mini"].replace(vocab_size=97, max_position_embeddings=24)
    return Model(config, "mlm", engine=NumpyEngine(precision, 2), seed=5, **options)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_read_only_model_predicts_and_has_gradients_as_before(precision):
    if precision == "bfloat16" and onednn.why_not():
        pytest.skip(onednn.why_not())
    ids = np.random.default_rng(6).integers(5, 97, (3, 20))
    labels = np.where(np.arange(20) % 4 == 0, ids, -100)
    one, other = model(precision), model(precision).read_only()
    tolerance = 1e-5 if precision == "float32" else 0.05
    np.testing.assert_allclose(one.predict(ids), other.predict(ids), atol=tolerance)
    (loss, cache), (other_loss, other_cache) = one.loss(ids, labels), other.loss(ids, labels)
    assert loss == pytest.approx(other_loss, abs=tolerance)
    gradients, others = one.backward(cache), other.backward(other_cache)
    for name in gradients:
        np.testing.assert_allclose(gradients[name], others[name], atol=tolerance, err_msg=name)


def test_a_read_only_model_refuses_changes_and_its_copy_does_not():
    fixed = model().read_only()
    with pytest.raises(InputError, match=r"embeddings.token cannot be changed: the model is read-only, .*deepcopy"):
        fixed.parameters["embeddings.token"] = 0.0
    with pytest.raises(TrainingError, match=r"nothing can be trained: the model is read-only, .*deepcopy"):
        TrainingStep(fixed, AdamW(fixed, 1e-3))
    again, ids = copy.deepcopy(fixed), np.arange(5, 25)[None]
    before = again.predict(ids)
    np.testing.assert_allclose(before, fixed.predict(ids), atol=1e-5)
    again.parameters["layers.0.ffn.up.weight"] = 0.0
    assert np.abs(again.predict(ids) - before).max() > 1e-3, "a changed weight is used"


def test_a_pickled_read_only_model_is_read_only_and_predicts_the_same_numbers():
    fixed, ids = model().read_only(), np.arange(5, 25)[None]
    again = pickle.loads(pickle.dumps(fixed))
    np.testing.assert_array_equal(again.predict(ids), fixed.predict(ids))
    with pytest.raises(ValueError, match="read-only"):
        again.parameters["embeddings.token"] = 0.0
