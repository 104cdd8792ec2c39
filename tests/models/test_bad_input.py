"""Invalid input raises a GlassBertError that names the problem."""

import numpy as np
import pytest

from glassbert import BertWithHead, Model
from glassbert.engines import get_engine
from glassbert.errors import ConfigError, EngineError, GlassBertError, InputError
from tests.models.small import BERT, MINI, batch, make

IDS, MASK, LABELS = batch()
MODEL = make()
ENCODER = make(head=None)


def refuses(sentence, call, *arguments, kind=InputError, **options):
    with pytest.raises(kind, match=sentence):
        call(*arguments, **options)


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([[1, 31]], r"input_ids has 31 at \(0, 1\), outside the vocabulary \(0 to 30\)"),
        ([[1, 2], [-1, 3]], r"input_ids has -1 at \(1, 0\)"),
        ([1, 2, 3], r"shape \[batch, length\], got \[3\]"),
        ([[[1]]], r"got \[1, 1, 1\]"),
        (5, "shape"),
        ([[1.0, 2.0]], "input_ids must be integers, got float64"),
        ([["a"]], "input_ids must be integers"),
        ([[True]], "input_ids must be integers, got bool"),
        (None, "input_ids"),
        ([[1, 2], [3]], "the rows of input_ids differ in length"),
        ([], "input_ids"),
        ([[]], "input_ids are empty"),
        (np.zeros((0, 4), int), r"input_ids are empty: the shape is \[0, 4\]"),
        (np.ones((1, 17), int), "17 tokens is longer than the 16 positions"),
        ([[float("nan")]], "input_ids must be integers"),
    ],
)
def test_token_ids_that_do_not_fit(ids, sentence):
    refuses(sentence, ENCODER.forward, ids)
    refuses(sentence, ENCODER.predict, ids)
    refuses(sentence, MODEL.loss, ids, LABELS)


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (MASK[:2], r"attention_mask must have the shape of input_ids, \[5, 9\], got \[2, 9\]"),
        (MASK[:, :3], "attention_mask"),
        (MASK[0], "attention_mask"),
        (MASK * 2, "attention_mask must hold only 1"),
        (MASK - 1, "attention_mask must hold only 1"),
        (MASK * np.nan, "attention_mask must hold only 1"),
        ([["x"] * 9] * 5, "attention_mask"),
        ([[1, 1], [1]], "attention_mask"),
    ],
)
def test_a_mask_that_does_not_fit(mask, sentence):
    refuses(sentence, ENCODER.forward, IDS, mask)


@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.uint8, np.float32])
def test_a_mask_may_have_any_kind_of_number(kind):
    expected, _ = ENCODER.forward(IDS, MASK)
    np.testing.assert_array_equal(ENCODER.forward(IDS, MASK.astype(kind))[0], expected)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"token_type_ids": [[0, 2]]}, r"token_type_ids has 2 at \(0, 1\), outside the token types \(0 to 1\)"),
        ({"token_type_ids": [[0]]}, "token_type_ids must have the shape"),
        ({"token_type_ids": [[0.0, 1.0]]}, "token_type_ids must be integers"),
        ({"segment_ids": [[1]]}, "segment_ids must have the shape"),
        ({"segment_ids": [[1, -1]]}, "segment_ids count documents from 1"),
        ({"segment_ids": [[1.0, 1.0]]}, "segment_ids must be integers"),
        ({"position_ids": [[0, 16]]}, r"position_ids has 16 at \(0, 1\)"),
        ({"position_ids": [[0, 1, 2]]}, "position_ids must have the shape"),
        ({"position_ids": [[0.5, 1]]}, "position_ids must be integers"),
    ],
)
def test_other_inputs_that_do_not_fit(options, sentence):
    refuses(sentence, ENCODER.forward, [[1, 2]], **options)


def test_token_types_for_a_model_without_them():
    refuses("this model has no token types", make(MINI).forward, [[1, 2]], token_type_ids=[[0, 0]])


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (
            np.where(LABELS < 0, LABELS, 31),
            r"label 31 at \(0, 0\) is outside the vocabulary \(0 to 30; -100",
        ),
        (np.where(LABELS < 0, -1, LABELS), "label -1"),
        (LABELS[:2], r"labels must have the shape \(5, 9\), got \(2, 9\)"),
        (LABELS[:, 0], "labels must have the shape"),
        (LABELS.astype(float), "labels must be integers, got float64"),
        (None, "labels"),
        ([[1, 2], [3]], "labels"),
        ("cat", "labels"),
    ],
)
def test_labels_of_masked_words_that_do_not_fit(labels, sentence):
    refuses(sentence, MODEL.loss, IDS, labels, MASK)


@pytest.mark.parametrize(
    ("head", "options", "labels", "sentence"),
    [
        ("sequence", {"num_labels": 3}, [0, 1, 2, 3, 0], r"label 3 at \(3,\) is outside the labels \(0 to 2"),
        ("sequence", {"num_labels": 3}, [[0], [1], [2], [0], [0]], "labels must have the shape"),
        ("sequence", {"num_labels": 1}, [0.0, np.nan, 0.0, 0.0, 0.0], "label of row 1 is not a finite number"),
        ("sequence", {"num_labels": 1}, [0.0, np.inf, 0.0, 0.0, 0.0], "label of row 1"),
        ("sequence", {"num_labels": 1}, [0.0, 1.0], "labels must have the shape"),
        ("sequence", {"num_labels": 1}, ["a"] * 5, "labels"),
        ("sequence", {"num_labels": 2, "loss": "binary_cross_entropy"}, np.full((5, 2), 2.0), r"must lie in \[0, 1\]"),
        ("sequence", {"num_labels": 2, "loss": "binary_cross_entropy"}, np.zeros(5), "labels must have the shape"),
        ("token", {"num_labels": 2}, np.full((5, 9), 2), "label 2"),
        ("token", {"num_labels": 2}, np.zeros(5, int), "labels must have the shape"),
    ],
)
def test_labels_of_other_heads_that_do_not_fit(head, options, labels, sentence):
    refuses(sentence, make(head=head, **options).loss, IDS, labels, MASK)


def test_a_model_without_a_head_has_no_loss():
    refuses("has no head, so it has no loss", ENCODER.loss, IDS, LABELS)


def test_backward_after_forward_needs_the_gradient_of_the_output():
    _, cache = ENCODER.forward(IDS, MASK)
    refuses(r"give the gradient of the output: backward\(cache, d_output\)", ENCODER.backward, cache)
    _, cache = MODEL.forward(IDS, MASK)
    refuses("give the gradient of the output", MODEL.backward, cache)


@pytest.mark.parametrize("shape", [(5, 9), (5, 9, 11), (1, 9, 12), (5 * 9 * 12,), ()])
def test_a_gradient_of_the_wrong_shape_is_named(shape):
    _, cache = ENCODER.forward(IDS, MASK)
    refuses(r"d_output must have the shape of the output, \[5, 9, 12\]", ENCODER.backward, cache, np.ones(shape))
    _, cache = MODEL.forward(IDS, MASK)
    refuses("d_output", MODEL.backward, cache, np.ones(shape))


def test_invalid_heads():
    refuses("unknown head 'translation'. There are mlm, token", Model, BERT, "translation", kind=ConfigError)
    refuses("a token head needs num_labels of at least 1, got 0", Model, BERT, "token", kind=ConfigError)
    refuses("num_labels", BertWithHead, BERT, "sequence", -1, kind=ConfigError)
    refuses("num_labels", BertWithHead, BERT, "sequence", 2.5, kind=ConfigError)
    refuses("unknown loss 'hinge'", Model, BERT, "sequence", 2, loss="hinge", kind=ConfigError)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "torch"}, "unknown engine 'torch'; choose one of auto, numpy, mlx"),
        ({"engine": "numpy", "dtype": "float16"}, "float32, float64 or bfloat16, not 'float16'"),
        ({"engine": "numpy", "dtype": "int8"}, "not 'int8'"),
        ({"engine": "numpy", "threads": 0}, "threads must be a whole number of at least 1, got 0"),
        ({"engine": "numpy", "threads": -2}, "threads"),
        ({"engine": "numpy", "threads": 1.5}, "threads must be a whole number of at least 1, got 1.5"),
        ({"engine": "numpy", "threads": True}, "threads must be a whole number of at least 1, got True"),
        ({"engine": None}, "unknown engine None; choose one of auto, numpy, mlx"),
    ],
)
def test_invalid_engines(options, sentence):
    refuses(sentence, Model, BERT, kind=EngineError, **options)
    refuses(sentence, get_engine, kind=EngineError, **options)


def test_numbers_and_types_of_numpy_are_taken():
    engine = get_engine("numpy", np.dtype("float64"), np.int64(2))
    assert (engine.dtype_name, engine.threads, type(engine.threads)) == ("float64", 2, int)
    assert get_engine("auto", np.dtype("float64")).dtype_name == "float64"


def test_float64_needs_numpy():
    pytest.importorskip("mlx.core")
    refuses(
        "not 'float64'; float64 needs engine='numpy'",
        get_engine,
        "mlx",
        "float64",
        kind=EngineError,
    )


def test_mlx_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    refuses(r'pip install ("mlx\[cpu\]"|mlx)', get_engine, "mlx", kind=EngineError)


def test_every_error_is_a_glassbert_error_and_a_value_error():
    for kind in (InputError, ConfigError, EngineError):
        assert issubclass(kind, GlassBertError) and issubclass(kind, ValueError)


def test_a_parameter_of_another_shape_is_refused():
    model = make()
    with pytest.raises(ValueError, match=r"shape|broadcast"):
        model.parameters["embeddings.token"] = np.ones((3, 3))


def test_a_name_that_is_not_in_the_cache_is_named():
    _, cache = ENCODER.forward(IDS, MASK)
    with pytest.raises(KeyError, match=r"layers\.0\.nothing"):
        cache["layers.0.nothing"]


def test_nothing_changes_when_input_is_refused():
    model = make(BERT.replace(hidden_dropout=0.3))
    model.set_training(True)
    before = {name: values.copy() for name, values in model.parameters.items()}
    expected = float(model.loss(IDS, LABELS, MASK)[0])
    again = make(BERT.replace(hidden_dropout=0.3))
    again.set_training(True)
    for bad in ([[31]], [[1.5]]):
        refuses("input_ids", again.loss, bad, LABELS)
    assert float(again.loss(IDS, LABELS, MASK)[0]) == expected  # the dropout seed did not advance either
    for name, values in before.items():
        np.testing.assert_array_equal(again.parameters[name], values)
