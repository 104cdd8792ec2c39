"""The MLX engine beside the NumPy engine: outputs, losses and every gradient, both families."""

import numpy as np
import pytest

from tests.models.small import BERT, CONFIGS, DROPOUT, MODERN, batch, make

mx = pytest.importorskip("mlx.core")
EVERY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def pair(config, head="mlm", num_labels=0, **options):
    return [make(config, head, num_labels, dtype="float32", engine=engine, **options) for engine in ("numpy", "mlx")]


def close(found, expected, tolerance=1e-4):
    found, expected = np.array(found), np.array(expected)
    assert found.shape == expected.shape
    scale = max(float(np.abs(expected).max()), 1e-3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


@EVERY
def test_outputs_losses_and_gradients_agree(config):
    ids, mask, labels = batch(config)
    one, two = pair(config)
    close(two.forward(ids, mask)[0], one.forward(ids, mask)[0])
    (loss, cache), (mlx_loss, mlx_cache) = (model.loss(ids, labels, mask) for model in (one, two))
    close(mlx_loss, loss)
    expected, found = one.backward(cache), two.backward(mlx_cache)
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        close(found[name], gradient)


@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
@pytest.mark.parametrize("head", ["sequence", "token"])
def test_other_heads_agree(config, head):
    ids, mask, _ = batch(config)
    labels = np.array([0, 1, 2, 0, 1]) if head == "sequence" else np.where(mask == 1, ids % 3, -100)
    one, two = pair(config, head, 3)
    (loss, cache), (mlx_loss, mlx_cache) = (model.loss(ids, labels, mask) for model in (one, two))
    close(mlx_loss, loss)
    expected, found = one.backward(cache), two.backward(mlx_cache)
    for name, gradient in expected.items():
        close(found[name], gradient)


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "mean_squared_error"])
def test_other_losses_agree(loss):
    ids, mask, _ = batch()
    labels = np.random.default_rng(0).integers(0, 2, (5, 2)).astype(float)
    labels[1, 1] = -100
    one, two = pair(BERT, "sequence", 2, loss=loss)
    (value, cache), (mlx_value, mlx_cache) = (model.loss(ids, labels, mask) for model in (one, two))
    close(mlx_value, value)
    expected, found = one.backward(cache), two.backward(mlx_cache)
    for name, gradient in expected.items():
        close(found[name], gradient)


@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
def test_packed_documents_and_predictions_agree(config):
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 31, (2, 9))
    segments = np.array([[1, 1, 1, 2, 2, 3, 3, 0, 0], [1, 2, 2, 2, 2, 2, 2, 2, 2]])
    one, two = pair(config, None)
    close(two.forward(ids, segment_ids=segments)[0], one.forward(ids, segment_ids=segments)[0])
    _, mask, _ = batch(config, [9, 4])
    expected, found = np.array(one.predict(ids, mask)), np.array(two.predict(ids, mask))
    close(found[mask == 1], expected[mask == 1])


@EVERY
def test_all_padding_and_single_tokens_stay_finite(config):
    model = make(config, dtype="float32", engine="mlx")
    for ids, mask in (([[1]], None), ([[0, 0, 0]] * 2, [[0, 0, 0]] * 2)):
        for label in (-100, 2):
            loss, cache = model.loss(ids, np.full(np.shape(ids), label), mask)
            assert np.isfinite(float(loss))
            assert all(np.isfinite(np.array(g)).all() for g in model.backward(cache).values())


def test_checkpointing_changes_nothing():
    ids, mask, labels = batch()
    results = []
    for checkpointing in (False, True):
        model = make(BERT.replace(**DROPOUT), dtype="float32", engine="mlx")
        model.set_training(True)
        model.set_checkpointing(checkpointing)
        loss, cache = model.loss(ids, labels, mask)
        results.append((float(loss), model.backward(cache)))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-6)
    for name, gradient in results[0][1].items():
        close(results[1][1][name], gradient, 1e-5)


def test_dropout_masks_drop_their_share_and_differ_from_name_to_name():
    from glassbert.engines import get_engine

    source = get_engine("mlx").dropout(3)
    one, again, other = (np.array(source.mask(name, (50, 400), 0.3)) for name in ("a", "a", "b"))
    assert 1 - one.mean() == pytest.approx(0.3, abs=0.02)
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert (np.array(source.mask("a", (50, 400), 0.3, row=1)) != one).any()


def test_bfloat16_is_near_and_gradients_stay_float32_where_it_matters():
    ids, mask, labels = batch(MODERN)
    exact, rough = make(MODERN, dtype="float32", engine="mlx"), make(MODERN, dtype="bfloat16", engine="mlx")
    (loss, cache), (rough_loss, rough_cache) = (model.loss(ids, labels, mask) for model in (exact, rough))
    assert float(rough_loss) == pytest.approx(float(loss), rel=0.05)
    expected, found = exact.backward(cache), rough.backward(rough_cache)
    for name in expected:
        a, b = (np.array(x.astype(mx.float32)).ravel() for x in (expected[name], found[name]))
        assert a @ b > 0.9 * np.linalg.norm(a) * np.linalg.norm(b), name
    assert all(value.dtype == mx.float32 for value in rough.parameters.values())


def test_values_come_back_as_numpy():
    from glassbert.engines import get_engine

    engine = get_engine("mlx")
    for values in (mx.ones(3), mx.ones(3, dtype=mx.bfloat16), np.ones(3)):
        np.testing.assert_array_equal(engine.to_numpy(values), np.ones(3))
    assert engine.array(np.ones(2)).dtype == mx.float32 and engine.integers([1]).dtype == mx.int32
