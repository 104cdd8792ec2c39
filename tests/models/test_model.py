"""Invariants of all models: padding, threads, packing and checkpointing do not change the results."""

import numpy as np
import pytest

from glassbert import BertCore, BertWithHead, ModernBertCore
from tests.models.small import BERT, CAUSAL, CONFIGS, DROPOUT, LENGTHS, MODERN, batch, loss_and_gradients, make

EVERY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def same(one, two, atol=1e-12):
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(one[name], two[name], rtol=0, atol=atol, err_msg=name)


# ---- padding -------------------------------------------------------------------------------------------------------


@EVERY
def test_ids_of_padding_change_nothing(config):
    ids, mask, labels = batch(config)
    model = make(config, dtype="float32")
    rubbish = np.where(mask == 1, ids, np.random.default_rng(9).integers(0, config.vocab_size, ids.shape))
    one, two = (model.forward(x, mask)[0] for x in (ids, rubbish))
    np.testing.assert_allclose(one[mask == 1], two[mask == 1], rtol=0, atol=1e-6)
    assert model.loss(ids, labels, mask)[0] == pytest.approx(model.loss(rubbish, labels, mask)[0], abs=1e-6)


@EVERY
def test_a_row_gives_the_same_alone_and_in_a_batch_with_longer_ones(config):
    ids, mask, _ = batch(config)
    model = make(config, head=None)
    together, _ = model.forward(ids, mask)
    for row, length in enumerate(LENGTHS):
        if length:
            alone, _ = model.forward(ids[row : row + 1, :length])
            np.testing.assert_allclose(together[row, :length], alone[0], atol=1e-12)


@EVERY
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_padding_and_single_tokens_stay_finite(config, dtype):
    model = make(config, dtype=dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for ids, mask in (([[1]], None), ([[1]], [[0]]), ([[0, 0, 0]] * 2, [[0, 0, 0]] * 2), ([[3], [0]], [[1], [0]])):
            labels = np.full(np.shape(ids), -100)
            for wanted in (labels, np.where(labels, 2, 2)):
                loss, gradients = loss_and_gradients(model, ids, wanted, mask)
                assert np.isfinite(loss)
                assert all(np.isfinite(g).all() for g in gradients.values())


@EVERY
def test_without_a_label_the_loss_and_every_gradient_are_zero(config):
    ids, mask, labels = batch(config)
    loss, gradients = loss_and_gradients(make(config), ids, np.full_like(labels, -100), mask)
    assert loss == 0.0 and not any(g.any() for g in gradients.values())


@EVERY
@pytest.mark.parametrize("threads", [1, 2])
def test_skipping_padding_changes_nothing_at_real_tokens(config, threads):
    ids, mask, labels = batch(config)
    encoder = make(config, head=None, threads=threads)
    padded, skipped = (encoder.forward(ids, mask, skip_padding=skip)[0] for skip in (False, True))
    np.testing.assert_allclose(skipped[mask == 1], padded[mask == 1], atol=1e-12)
    assert not skipped[mask == 0].any()
    model = make(config, threads=threads)
    expected = loss_and_gradients(model, ids, labels, mask)
    found = loss_and_gradients(model, ids, labels, mask, skip_padding=True)
    assert found[0] == pytest.approx(expected[0], abs=1e-12)
    same(found[1], expected[1])


def test_padding_can_be_skipped_where_everything_is_padding():
    ids, mask, _ = batch()
    output, _ = make(head=None).forward(ids, mask * 0, skip_padding=True)
    assert np.isfinite(output).all()


# ---- packing -------------------------------------------------------------------------------------------------------


@EVERY
def test_packed_documents_give_what_separate_rows_give(config):
    rng = np.random.default_rng(1)
    documents = [rng.integers(1, config.vocab_size, n) for n in (4, 1, 6, 3)]
    model = make(config, head=None)
    row = np.concatenate([*documents, [0, 0]])[None]
    segments = np.repeat([1, 2, 3, 4, 0], [4, 1, 6, 3, 2])[None]
    output, cache = model.forward(row, segment_ids=segments)
    for number, document in enumerate(documents, 1):
        alone, _ = model.forward(document[None])
        np.testing.assert_allclose(output[segments == number], alone[0], atol=1e-12)
    # and their gradients add up
    d_output = np.where(segments[..., None] > 0, rng.standard_normal(output.shape), 0.0)
    packed = {name: np.array(g) for name, g in model.backward(cache, d_output).items()}
    total = {name: np.zeros_like(g) for name, g in packed.items()}
    for number, document in enumerate(documents, 1):
        _, cache = model.forward(document[None])
        for name, g in model.backward(cache, d_output[segments == number][None]).items():
            total[name] += g
    same(packed, total)


def test_changing_one_document_does_not_change_the_others_of_its_row():
    model = make(MODERN, head=None)
    segments = np.array([[1, 1, 1, 2, 2, 2, 2]])
    one, _ = model.forward([[3, 4, 5, 6, 7, 8, 9]], segment_ids=segments)
    two, _ = model.forward([[3, 4, 5, 9, 9, 9, 1]], segment_ids=segments)
    np.testing.assert_array_equal(one[:, :3], two[:, :3])
    assert (one[:, 3:] != two[:, 3:]).any()


def test_a_causal_model_does_not_attend_to_later_tokens():
    model = make(CAUSAL, head=None)
    one, _ = model.forward([[3, 4, 5, 6, 7]])
    two, _ = model.forward([[3, 4, 5, 9, 9]])
    np.testing.assert_array_equal(one[:, :3], two[:, :3])
    assert (one[:, 3:] != two[:, 3:]).any()


# ---- threads, checkpointing, repetition ----------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("skip_padding", [False, True])
def test_the_number_of_threads_changes_nothing(config, skip_padding):
    ids, mask, labels = batch(config)
    results = []
    for threads in (1, 2, 3, 8):
        # packed tokens have their dropout masks by their position in the pack, which depends on the threads
        model = make(config.replace(**dict.fromkeys(DROPOUT, 0.0 if skip_padding else 0.2)), threads=threads)
        model.set_training(True)
        results.append(loss_and_gradients(model, ids, labels, mask, skip_padding=skip_padding))
    for loss, gradients in results[1:]:
        assert loss == pytest.approx(results[0][0], abs=1e-12)
        same(gradients, results[0][1])


@EVERY
@pytest.mark.parametrize("threads", [1, 2])
def test_checkpointing_changes_nothing(config, threads):
    ids, mask, labels = batch(config)
    results = []
    for checkpointing in (False, True):
        model = make(config.replace(**DROPOUT), threads=threads)
        model.set_training(True)
        model.set_checkpointing(checkpointing)
        results.append(loss_and_gradients(model, ids, labels, mask))
    assert results[0][0] == results[1][0]
    same(results[0][1], results[1][1], atol=1e-14)


def test_checkpointing_keeps_less():
    ids, mask, labels = batch()
    sizes = []
    for checkpointing in (False, True):
        model = make()
        model.set_checkpointing(checkpointing)
        _, cache = model.loss(ids, labels, mask)
        sizes.append(len(cache))
    assert sizes[1] < sizes[0] / 2


@EVERY
def test_backward_twice_gives_the_same_and_shares_no_memory(config):
    ids, mask, labels = batch(config)
    model = make(config, threads=2)
    _, cache = model.loss(ids, labels, mask)
    first = model.backward(cache)
    kept = {name: np.array(g) for name, g in first.items()}
    second = model.backward(cache)
    same(kept, dict(second), atol=0)
    same(kept, dict(first), atol=0)  # the second run did not write into the first
    for name in kept:
        assert not np.shares_memory(first[name], second[name])
        assert not np.shares_memory(first[name], model.parameters[name])
    names = list(kept)
    for i, one in enumerate(names):
        for two in names[i + 1 :]:
            assert not np.shares_memory(first[one], first[two]), (one, two)


def test_gradients_can_be_written_over_those_of_an_earlier_step():
    model = make(threads=2)
    into = None
    for seed in range(4):
        ids, mask, labels = batch(seed=seed)
        if seed == 2:
            labels = np.full_like(labels, -100)
        _, cache = model.loss(ids, labels, mask)
        expected = {name: np.array(g) for name, g in model.backward(cache).items()}
        again = model.backward(cache, into=into)
        assert into is None or again is into
        same(dict(again), expected, atol=0)
        into = again


def test_two_passes_do_not_disturb_each_other():
    model = make(threads=2)
    (ids, mask, labels), (ids2, mask2, labels2) = batch(seed=0), batch(seed=1)
    expected = loss_and_gradients(model, ids, labels, mask)[1]
    _, first = model.loss(ids, labels, mask)
    _, second = model.loss(ids2, labels2, mask2)
    model.backward(second)
    same({name: np.array(g) for name, g in model.backward(first).items()}, expected, atol=0)


def test_the_gradient_of_a_scaled_loss_is_scaled():
    ids, mask, labels = batch()
    model = make()
    _, cache = model.loss(ids, labels, mask)
    once, thrice = dict(model.backward(cache)), dict(model.backward(cache, 3.0))
    same({name: 3.0 * g for name, g in once.items()}, thrice)


def test_dropout_is_on_only_in_training_and_new_in_every_pass():
    ids, mask, labels = batch()
    model = make(BERT.replace(**DROPOUT))
    losses = [float(model.loss(ids, labels, mask)[0]) for _ in range(2)]
    assert losses[0] == losses[1]
    model.set_training(True)
    losses = [float(model.loss(ids, labels, mask)[0]) for _ in range(3)]
    assert len(set(losses)) == 3
    other = make(BERT.replace(**DROPOUT))
    other.set_training(True)
    assert [float(other.loss(ids, labels, mask)[0]) for _ in range(3)] == losses


@EVERY
@pytest.mark.parametrize("head", [None, "mlm", "token", "sequence"])
def test_predict_gives_what_forward_gives(config, head):
    ids, mask, _ = batch(config)
    model = make(config, head, 3 if head in ("token", "sequence") else 0, threads=2)
    output, _ = model.forward(ids, mask, skip_padding=True)
    np.testing.assert_allclose(model.predict(ids, mask), output, atol=1e-12)
    whole, _ = model.forward(ids, mask)
    np.testing.assert_allclose(model.predict(ids, mask, skip_padding=False), whole, atol=1e-12)


def test_float32_and_float64_agree():
    for config in CONFIGS.values():
        ids, mask, labels = batch(config)
        single, double = (loss_and_gradients(make(config, dtype=d), ids, labels, mask) for d in ("float32", "float64"))
        assert single[0] == pytest.approx(double[0], rel=1e-5)
        for name, g in double[1].items():
            assert single[1][name].dtype == np.float32
            scale = np.abs(g).max() + 1e-3
            np.testing.assert_allclose(single[1][name], g, atol=2e-4 * scale, err_msg=name)


def test_token_types_left_out_are_zeros_and_positions_count_from_zero():
    ids, mask, _ = batch()
    model = make(head=None)
    plain, _ = model.forward(ids, mask)
    spelled, _ = model.forward(ids, mask, np.zeros_like(ids), position_ids=np.arange(ids.shape[1])[None])
    np.testing.assert_allclose(plain, spelled, atol=1e-14)
    other, _ = model.forward(ids, mask, np.ones_like(ids))
    assert (other != plain).any()


def test_the_padding_row_is_frozen():
    ids, mask, labels = batch()
    ids[0, 3] = 0  # a padding id at a real token
    _, gradients = loss_and_gradients(make(BERT.replace(tie_word_embeddings=False)), ids, labels, mask)
    assert not gradients["embeddings.token"][0].any()
    assert gradients["embeddings.token"][ids[0, 0]].any()


def test_the_public_names_are_there():
    core, modern = BertCore(BERT, engine="numpy"), ModernBertCore(MODERN, engine="numpy")
    assert core.token_embeddings.shape == (31, 12) and core.position_embeddings.shape == (16, 12)
    assert modern.position_embeddings is None
    assert len(modern.layers) == 3 and "attention.qkv.weight" in modern.layers[1].parameters
    assert "attention.norm.weight" not in modern.layers[0].parameters
    assert core.config is BERT and "31" not in repr(core) and "bert" in repr(core)
    assert core.get_parameter_count() == sum(p.size for p in core.parameters.values())


def test_the_untrained_copy_differs_only_in_its_weights():
    model = BertWithHead(BERT, "sequence", 3, engine="numpy", loss_options={"class_weights": [1.0, 2.0, 3.0]})
    twin = model.untrained(seed=7)
    assert twin.layout.shapes == model.layout.shapes and twin.engine is model.engine
    assert twin.head.loss_options == model.head.loss_options and twin.head.num_labels == 3
    assert not np.array_equal(twin.parameters["head.classifier.weight"], model.parameters["head.classifier.weight"])
    again = model.untrained(seed=0)
    for name, values in model.parameters.items():
        np.testing.assert_array_equal(again.parameters[name], values)
