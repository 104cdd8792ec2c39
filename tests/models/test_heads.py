"""Heads: decoded outputs, pooling, and errors for invalid labels and options."""

import numpy as np
import pytest

from glassbert import MINI_BERT_CONFIG, BertConfig, create_model
from glassbert.errors import ConfigError, InputError
from glassbert.models.heads import pad_rows

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12, "num_hidden_layers": 1}
MINI = MINI_BERT_CONFIG.replace(**SIZES)
BERT = BertConfig(**SIZES)
IDS = np.arange(1, 13).reshape(4, 3)


def model_with(head_type, labels=None, config=MINI, **options):
    return create_model(
        "bert_with_head", head_type=head_type, num_labels=labels, config=config, engine="numpy", **options
    )


@pytest.mark.parametrize(
    ("head_type", "labels", "shape"),
    [
        ("binary", None, (4, 1)), ("multiclass", 3, (4, 3)), ("multilabel", 3, (4, 3)), ("regression", None, (4, 1)),
        ("regression", 6, (4, 6)), ("ordinal", 5, (4, 4)), ("token", 3, (4, 3, 3)), ("span", None, (4, 2, 3)),
        ("embedding", None, (4, 8)),
    ],
)  # fmt: skip
def test_shapes(head_type, labels, shape):
    assert model_with(head_type, labels).predict(IDS).shape == shape


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "attention"])
def test_only_cls_goes_through_the_pooler(pooling):
    model = model_with("binary", config=BERT, pooling=pooling)
    assert model.config.classifier_pooling == pooling
    assert ("pooler.weight" in model.parameters) == (pooling == "cls")
    assert ("head.pool.query" in model.parameters) == (pooling == "attention")
    bare = model_with("binary", config=BERT.replace(pooler=False), pooling=pooling)
    assert "pooler.weight" not in bare.parameters


def test_padding_changes_no_output():
    longer = np.concatenate([IDS, np.zeros((4, 2), np.int64)], 1)
    mask = (np.arange(5) < 3).astype(np.int64)[None].repeat(4, 0)
    for pooling in ("cls", "mean", "max", "attention"):
        model = model_with("multiclass", 3, pooling=pooling)
        for name, value in model.parameters.items():
            model.parameters[name] = value + 0.3
        assert np.allclose(model.predict(longer, mask), model.predict(IDS), atol=1e-5), pooling


def test_spans_are_never_in_padding():
    mask = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
    model = model_with("span")
    scores = model.head.decode(model.predict(IDS, mask))
    assert np.isfinite(scores).all() and not scores[:3][np.broadcast_to(mask[:3, None] == 0, (3, 2, 3))].any()
    answers = np.array([[0, 2], [1, 1], [0, 0], [-100, -100]])
    losses = [model.loss(IDS, answers, mask, skip_padding=skip)[0] for skip in (False, True)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_decoded_outputs():
    ranks = model_with("ordinal", 5)
    probabilities = ranks.head.decode(ranks.predict(IDS))
    assert probabilities.shape == (4, 5) and np.allclose(probabilities.sum(-1), 1) and (probabilities > 0).all()
    certain = ranks.head.decode(np.array([[50.0, 50.0, -50.0, 50.0]]))
    assert certain.argmax() == 2 and certain.max() == pytest.approx(1)
    price = model_with("regression", target_mean=[100.0], target_scale=[20.0])
    assert price.head.decode(np.array([[1.5]])) == pytest.approx(130.0)
    assert model_with("binary").head.decode(np.array([[0.0]])) == pytest.approx(0.5)
    classes = model_with("multiclass", 3).head.decode(np.zeros((2, 3)))
    assert np.allclose(classes, 1 / 3)
    embedding = model_with("embedding")
    assert np.allclose(np.linalg.norm(embedding.head.decode(embedding.predict(IDS)), axis=-1), 1)


def test_targets_are_scaled():
    model = model_with("regression", target_mean=[100.0], target_scale=[20.0])
    prepared = model.head.prepare_labels(np.array([120.0, -100.0, 100.0, 90.0]), (4, 3))["targets"]
    assert prepared[:, 0].tolist() == [1.0, -100.0, 0.0, -0.5]


@pytest.mark.parametrize(
    ("head_type", "labels", "given", "sentence"),
    [
        ("ordinal", 3, [0, 3, 1, 1], "label 3 at .* outside the labels"),
        ("span", None, [[0, 3]] * 4, "label 3 at .* outside the tokens"),
        ("span", None, [0, 1, 2, 0], r"shape \(4, 2\)"),
        ("embedding", None, [1.0, 0.5, 1.0, 1.0], "rows 0 and 1 are a pair"),
        ("embedding", None, [5.0, 5.0, 1.0, 1.0], "a cosine lies in"),
        ("regression", None, [1.0, np.nan, 1.0, 1.0], "row 1 is not a finite number"),
        ("multilabel", 2, [[0, 2]] * 4, r"must lie in \[0, 1\]"),
    ],
)
def test_labels_that_do_not_fit(head_type, labels, given, sentence):
    with pytest.raises(InputError, match=sentence):
        model_with(head_type, labels).loss(IDS, np.array(given))


def test_labels_of_pairs():
    with pytest.raises(InputError, match="3 rows are an odd number"):
        model_with("embedding").loss(IDS[:3], np.ones(3))
    with pytest.raises(InputError, match="labels must be 1"):
        model_with("embedding", loss="contrastive").loss(IDS, np.array([1, 1, 0, 0]))


@pytest.mark.parametrize(
    ("head_type", "labels", "options", "sentence"),
    [
        ("multiclass", 3, {"class_weights": [1, 2]}, "3 outputs, got 2"),
        ("multiclass", 3, {"focal_gamma": -1}, "focal_gamma must be a number of at least 0"),
        ("multiclass", 3, {"focal_gamma": 1, "label_smoothing": 0.1}, "choose one of them"),
        ("multiclass", 3, {"positive_weights": [1, 2, 3]}, "positive_weights belongs to binary_cross_entropy"),
        ("ordinal", 1, {}, "\\(ranks\\) of at least 2"),
        ("ordinal", 4, {"class_weights": [1, 2, 3, 4]}, "class_weights belongs to cross_entropy"),
        ("span", None, {"label_smoothing": 0.1}, "the loss of a span head has no options"),
        ("token", 3, {"loss": "ordinal"}, "unknown loss 'ordinal' of a token head; choose one of cross_entropy"),
        ("token", 3, {"pooling": "mean"}, "the head 'token' does not use"),
        ("binary", None, {"pooling": "median"}, "unknown pooling 'median'; choose one of cls, mean, max, attention"),
        ("embedding", None, {"loss": "contrastive", "temperature": 0}, "temperature must be a number above 0"),
    ],
)
def test_options_that_do_not_fit(head_type, labels, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        model_with(head_type, labels, **options)


def test_rows_are_padded_to_few_different_numbers():
    def padded(count):
        return pad_rows({"rows": np.arange(count), "targets": np.ones(count, int)})

    sizes = {count: len(padded(count)["rows"]) for count in [*range(0, 700, 7), *range(700, 40_000, 111)]}
    assert all(count <= size <= max(64, count + 64, count * 33 / 32) for count, size in sizes.items())
    assert len(set(sizes.values())) < 200
    found = padded(70)
    assert found["rows"][:70].tolist() == list(range(70)) and (found["targets"][70:] == -100).all()
