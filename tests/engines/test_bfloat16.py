"""precision="bfloat16" on the NumPy engine: near float32, repeatable, with float32 masters, and float32 elsewhere."""

import copy
import pickle
import warnings

import numpy as np
import pytest

from glassbert import Model, get_engine
from glassbert.checkpoints.family import PRESETS
from glassbert.engines import NumpyEngine, bfloat16_kernels, linear_kernels, numpy_kernels, onednn
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep

needs_onednn = pytest.mark.skipif(bool(onednn.why_not()), reason=onednn.why_not() or "available")
CONFIG = PRESETS["mini"].replace(vocab_size=97, max_position_embeddings=24, activation="gelu")  # ReLU has a kink


def model_of(precision, threads=2, **changes):
    return Model(CONFIG.replace(**changes), "mlm", engine="numpy", dtype=precision, threads=threads, seed=3)


def batch(rows=6, length=24, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, 97, (rows, length))
    labels = np.where(rng.random(ids.shape) < 0.3, ids, -100)
    return np.where((labels >= 0) & (rng.random(ids.shape) < 0.8), 4, ids), labels


@needs_onednn
def test_outputs_and_every_gradient_are_near_those_of_float32():
    ids, labels = batch()
    exact, narrow = model_of("float32"), model_of("bfloat16")
    loss, cache = exact.loss(ids, labels)
    found, narrow_cache = narrow.loss(ids, labels)
    assert abs(loss - found) < 1e-3 * loss and loss != found
    right, gradients = exact.backward(cache), narrow.backward(narrow_cache)
    for name, value in right.items():
        size = np.linalg.norm(value)
        if size > 1e-4 * max(map(np.linalg.norm, right.values())):  # keys' biases have none
            assert np.linalg.norm(gradients[name] - value) < 0.03 * size, name
        assert gradients[name].dtype == np.float32


@needs_onednn
def test_parameters_and_moments_are_float32():
    model = model_of("bfloat16")
    assert model.engine.dtype_name == "bfloat16"
    assert {v.dtype.name for v in model.parameters.values()} == {"float32"}
    optimizer = AdamW(model, 1e-3)
    assert {buffer.flat.dtype.name for buffer in optimizer.state.values()} == {"float32"}


@needs_onednn
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_training_repeats_bit_by_bit_and_follows_float32(threads):
    ids, labels = batch()

    def losses(precision, threads):
        model = model_of(precision, threads, hidden_dropout=0.1, attention_dropout=0.1)
        model.set_training(True)
        step = TrainingStep(model, AdamW(model, 1e-3))
        return [float(step(ids, labels).loss) for _ in range(12)], model.parameters.flat.copy()

    first, second = losses("bfloat16", threads), losses("bfloat16", threads)
    assert first[0] == second[0] and np.array_equal(first[1], second[1])
    exact, _ = losses("float32", threads)
    assert first[0][-1] < 0.9 * first[0][0]
    np.testing.assert_allclose(first[0], exact, rtol=5e-3)


@needs_onednn
def test_a_changed_weight_is_seen_at_once():
    """No rounded copy outlives a forward."""
    ids, _ = batch()
    model = model_of("bfloat16")
    before = model.predict(ids)
    model.parameters["layers.0.ffn.up.weight"][...] *= 1.5
    changed = model.predict(ids)
    fresh = model_of("bfloat16")
    fresh.parameters.flat[...] = model.parameters.flat
    assert not np.array_equal(before, changed)
    np.testing.assert_array_equal(changed, fresh.predict(ids))


@needs_onednn
@pytest.mark.parametrize("rows", [31, 32, 33, 47, 48])
def test_any_number_of_rows(rows):
    """Rows are filled up to a multiple of 16; few rows stay in float32."""
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((1, rows, 24), np.float32), rng.standard_normal((40, 24), np.float32)
    dy = rng.standard_normal((1, rows, 40), np.float32)
    bias = rng.standard_normal(40, np.float32)
    ops = get_engine("numpy", "bfloat16", 1).ops
    y, state = ops.linear(x, w, bias)
    plain, plain_state = linear_kernels.linear(x, w, bias)
    assert y.shape == plain.shape and np.array_equal(y, plain) == (rows < bfloat16_kernels.FEW_ROWS)
    right = linear_kernels.linear_backward(dy, plain_state)
    for found, expected in zip((y, *state.backward(dy, state.values)), (plain, *right), strict=True):
        assert found.shape == expected.shape
        assert np.linalg.norm(found - expected) < 5e-3 * np.linalg.norm(expected)


@needs_onednn
def test_without_compiled_loops_the_results_are_near():
    ids, labels = batch()
    with_loops, _ = model_of("bfloat16").loss(ids, labels)
    loops = numpy_kernels.compiled_loops
    numpy_kernels.compiled_loops = lambda: None
    try:
        without, _ = model_of("bfloat16").loss(ids, labels)
    finally:
        numpy_kernels.compiled_loops = loops
    assert abs(with_loops - without) < 1e-4


@needs_onednn
def test_plain_kernels_and_traces_compute_in_float32():
    ids, labels = batch()
    narrow = model_of("bfloat16")
    traced, _ = narrow.loss(ids, labels, trace=True)
    exact, _ = model_of("float32").loss(ids, labels, trace=True)
    assert traced == exact


@needs_onednn
def test_an_engine_survives_copies_and_pickles():
    engine = NumpyEngine("bfloat16", 2)
    again = pickle.loads(pickle.dumps(engine))
    assert (again.dtype_name, again.threads, copy.deepcopy(engine)) == ("bfloat16", 2, engine)
    assert again.ops.forward_and_backward("linear")[0] is bfloat16_kernels.linear
    assert NumpyEngine("float32").ops.forward_and_backward("linear")[0] is linear_kernels.linear


def test_where_there_is_none_a_sentence_says_so_and_float32_computes(monkeypatch):
    monkeypatch.setattr(onednn, "why_not", lambda: "this processor has no instructions for bfloat16")
    with pytest.warns(UserWarning, match="precision is float32, not bfloat16: this processor has no instructions"):
        engine = NumpyEngine("bfloat16")
    assert engine.dtype_name == "float32"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NumpyEngine("float32")
