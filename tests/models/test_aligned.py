"""The head that compares two texts word by word."""

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.families.modernbert import ModernBertConfig
from glassbert.models.model import Model

CONFIG = ModernBertConfig(
    vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=32, pad_token_id=0,
)  # fmt: skip
FIRST, SECOND = [2, 9, 10, 3], [2, 11, 9, 12, 3]
ROW = [FIRST + SECOND]
SEGMENTS = [[1] * 4 + [2] * 5]


def make(kind="aligned", labels=2, **options):
    return Model(CONFIG, kind, labels, engine="numpy", seed=1, **options)


def test_texts_are_encoded_as_if_they_stood_alone():
    model = Model(CONFIG, engine="numpy", seed=1)
    both = model.forward(ROW, segment_ids=SEGMENTS)[0]
    np.testing.assert_allclose(both[:, :4], model.forward([FIRST])[0], atol=1e-5)
    np.testing.assert_allclose(both[:, 4:], model.forward([SECOND])[0], atol=1e-5)


def test_every_token_finds_its_counterpart():
    """Of two equal texts each token is its own counterpart: what they have in common is all there is."""
    _, cache = make().forward([FIRST + FIRST], segment_ids=[[1] * 4 + [2] * 4], trace=True)
    aligned = cache["head.aligned"]
    hidden = cache["output"]
    cosine = (aligned * hidden).sum(-1) / np.linalg.norm(aligned, axis=-1) / np.linalg.norm(hidden, axis=-1)
    assert cosine.min() > 0.8


def test_padding_changes_nothing():
    model = make()
    plain = model.forward(ROW, segment_ids=SEGMENTS)[0]
    padded = model.forward([ROW[0] + [0, 0]], [[1] * 9 + [0, 0]], segment_ids=[SEGMENTS[0] + [0, 0]])[0]
    np.testing.assert_allclose(padded, plain, atol=1e-5)
    skipped = model.predict([ROW[0] + [0, 0]], [[1] * 9 + [0, 0]], segment_ids=[SEGMENTS[0] + [0, 0]])
    np.testing.assert_allclose(skipped, plain, atol=1e-5)


def test_a_missing_text_gives_finite_outputs():
    assert np.isfinite(make().forward([FIRST], segment_ids=[[1] * 4])[0]).all()


def test_segments_are_needed():
    with pytest.raises(InputError, match="segment_ids"):
        make().forward(ROW)


def test_saved_and_loaded(tmp_path):
    import glassbert

    model = make(labels=1, loss="mean_squared_error")
    model.save(tmp_path)
    again = glassbert.load(tmp_path, engine="numpy")
    assert again.head.kind == "aligned"
    expected = model.forward(ROW, segment_ids=SEGMENTS)[0]
    np.testing.assert_allclose(again.forward(ROW, segment_ids=SEGMENTS)[0], expected, atol=1e-6)
