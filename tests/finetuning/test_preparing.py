"""The initial model and the choices that follow from the data."""

import numpy as np
import pytest

import glassbert
from glassbert.errors import ConfigError, GlassBertError, InputError
from glassbert.families.bert import BertWithHead
from glassbert.finetuning.display import progress_bar
from glassbert.finetuning.low_rank import LowRank
from glassbert.finetuning.preparing import prepare
from tests.finetuning.toy import make_model, sentences, settings, write_csv


def prepared(encoder, files, **changes):
    return prepare(settings(encoder, *files, **changes), progress_bar)


def test_pretrained_encoder_and_new_head(encoder, reviews):
    ready = prepared(encoder, reviews)
    one, two = ready.model(0), ready.model(1)
    saved = glassbert.load(encoder, engine="numpy")
    for name, values in saved.parameters.items():
        if not name.startswith("head."):
            np.testing.assert_array_equal(one.parameters[name], values)
    assert not np.array_equal(one.parameters["head.classifier.weight"], two.parameters["head.classifier.weight"])
    assert any("initialised at random" in note for note in ready.notes)
    assert one.config.classifier_pooling == "mean" and one.config.classifier_dropout == 0.1
    assert one.config.hidden_dropout == saved.config.hidden_dropout == 0.0
    assert one.carried_fields["id2label"] == {"0": "good"}


def test_notes_name_the_model_as_it_was_given(encoder, reviews, monkeypatch):
    monkeypatch.chdir(encoder.parent)
    notes = prepared(encoder.name, reviews).notes
    assert any(note.startswith(f"{encoder.name} has no weights for") for note in notes)


def test_head_of_the_same_type_is_kept(encoder, reviews, tmp_path):
    first = prepared(encoder, reviews, pooling="max").model(5)
    first.save(tmp_path / "tuned")
    glassbert.load_tokenizer(encoder).save(tmp_path / "tuned")
    ready = prepared(tmp_path / "tuned", reviews)
    again = ready.model(0)
    np.testing.assert_array_equal(
        again.parameters["head.classifier.weight"], first.parameters["head.classifier.weight"]
    )
    assert again.config.classifier_pooling == "max" and not any("at random" in note for note in ready.notes)


def test_dropout_and_pooling(encoder, reviews):
    model = prepared(encoder, reviews, dropout=0.3, pooling="attention").model(0)
    assert model.config.attention_dropout == model.config.classifier_dropout == 0.3
    assert "head.pool.query" in model.parameters


def test_preset_trains_a_tokenizer(reviews):
    ready = prepared("mini", reviews, from_scratch=True, preset="mini")
    assert ready.model(0).config.vocab_size == ready.tokenizer.vocab_size <= 8_192
    assert any("pretrained encoder would do better" in note for note in ready.notes)


def test_adapters_of_low_rank(encoder, reviews):
    model = prepared(encoder, reviews, low_rank=2, low_rank_targets=["query"]).model(0)
    assert isinstance(model, LowRank)
    plain, adapted = (prepared(encoder, reviews, low_rank=rank, learning_rate=None).settings for rank in (None, 2))
    assert adapted.learning_rate > plain.learning_rate


def test_regression_targets_are_scaled(encoder, tmp_path):
    rows = [[text, 100 + 10 * (label == "good") + i % 7] for i, (text, label) in enumerate(sentences(40))]
    path = write_csv(tmp_path / "n.csv", ["review", "verdict"], rows)
    ready = prepared(encoder, (path,), head="regression")
    values = np.array([float(value) for value in ready.train.targets])
    options = ready.model(0).head.loss_options
    assert options.target_mean == (pytest.approx(values.mean()),)
    assert options.target_scale == (pytest.approx(values.std()),)


def test_balanced_class_weights(encoder, tmp_path):
    rows = [[text, "abc"[0 if i % 10 else 1 + i % 2]] for i, (text, _) in enumerate(sentences(100))]
    rows += [["the bird", "c"]] * 3
    path = write_csv(tmp_path / "w.csv", ["review", "verdict"], rows)
    ready = prepared(encoder, (path,), class_weights="balanced")
    weights = ready.model(0).head.loss_options.class_weights
    assert weights[0] < 1 < weights[2] <= 10
    with pytest.raises(ConfigError, match="ordinal"):
        prepared(encoder, (path,), head="ordinal", class_weights="balanced")


def test_label_smoothing_of_binary_labels(encoder, reviews):
    labels = prepared(encoder, reviews, label_smoothing=0.2).train_examples.labels
    np.testing.assert_allclose(np.unique(labels), [0.1, 0.9], rtol=1e-6)


def test_pairs_are_aligned_unless_the_encoder_has_token_types(encoder, tmp_path):
    path = write_csv(tmp_path / "pairs.csv", ["a", "b", "y"], [(f"bird {i}", "king", i) for i in range(20)])
    columns = {"text": "a", "pair": "b", "target": "y"}
    typed = make_model(tmp_path / "typed", type_vocab_size=2)
    for model, changes, aligned in (
        (encoder, {"head": "regression"}, True),
        (encoder, {"head": "regression", "pairs": "cross"}, False),
        (encoder, {"head": "embedding"}, False),
        (typed, {"head": "regression"}, False),
        (typed, {"head": "regression", "pairs": "aligned"}, True),
    ):
        ready = prepared(model, (path,), **columns, **changes)
        assert ready.card.aligned == aligned and (ready.model(0).head.kind == "aligned") == aligned
        batch = ready.train_examples.inputs(np.arange(3))
        assert ("segment_ids" in batch) == aligned
        if aligned:
            starts = batch["input_ids"] == ready.tokenizer.cls_id  # each text begins with [CLS]
            assert (starts.sum(1) == 2).all() and (batch["segment_ids"][starts].reshape(3, 2) == [1, 2]).all()
            assert ((batch["segment_ids"] == 0) == (batch["attention_mask"] == 0)).all()


def test_pairs_option_needs_pairs(encoder, reviews):
    with pytest.raises(ConfigError, match="--pair"):
        prepared(encoder, reviews, pairs="aligned")


def test_embedding_loss_must_fit_the_targets(encoder, tmp_path):
    path = write_csv(tmp_path / "p.csv", ["a", "b", "y"], [[f"bird {i}", "king", i] for i in range(20)])
    pairs = {"head": "embedding", "text": "a", "pair": "b"}
    with pytest.raises(ConfigError, match="without scores"):
        prepared(encoder, (path,), **pairs, target="y", embedding_loss="contrastive")
    for loss in ("cosine", "ranking"):
        with pytest.raises(ConfigError, match=f"{loss} needs scores"):
            prepared(encoder, (path,), **pairs, target=None, embedding_loss=loss)
    assert prepared(encoder, (path,), **pairs, target="y").head.loss == "ranking"
    assert prepared(encoder, (path,), **pairs, target=None).head.loss == "contrastive"
    cut = prepared(encoder, (path,), **pairs, target="y", batch=8, physical_batch=4)
    assert any("--physical-batch 4 only those" in note for note in cut.notes)


def test_long_text_is_split(encoder, tmp_path):
    rows = [["bird " * 20_000, "good"], *sentences(30)]
    ready = prepared(encoder, (write_csv(tmp_path / "long.csv", ["review", "verdict"], rows),), max_windows=4)
    assert any("windows of 24 tokens" in note for note in ready.notes)
    assert any("very long" in finding.problem for finding in ready.findings)
    assert np.bincount(ready.train_examples.rows.owners).max() <= 4


def test_error_for_a_tokenizer_of_another_model(reviews, tmp_path, encoder):
    small = glassbert.load(encoder, engine="numpy")
    config = small.config.replace(vocab_size=50)
    BertWithHead(config, "mlm", engine="numpy").save(tmp_path / "small")
    with pytest.raises(InputError, match="do not belong together"):
        prepared(tmp_path / "small", reviews, tokenizer=str(encoder))


def test_error_for_a_folder_without_tokenizer_or_model(reviews, tmp_path, encoder):
    glassbert.load(encoder, engine="numpy").save(tmp_path / "bare")
    with pytest.raises(GlassBertError, match="no tokenizer"):
        prepared(tmp_path / "bare", reviews)
    (tmp_path / "empty").mkdir()
    with pytest.raises(GlassBertError, match=r"no config\.json"):
        prepared(tmp_path / "empty", reviews)


def test_error_for_non_finite_weights(encoder, reviews, tmp_path):
    broken = glassbert.load(encoder, engine="numpy")
    broken.parameters["layers.0.ffn.up.weight"] = np.full_like(broken.parameters["layers.0.ffn.up.weight"], np.nan)
    broken.save(tmp_path / "broken")
    glassbert.load_tokenizer(encoder).save(tmp_path / "broken")
    with pytest.raises(GlassBertError, match=r"layers\.0\.ffn\.up\.weight has 512 values that are not finite"):
        prepared(tmp_path / "broken", reviews)
