"""One file, several models: the encoder of a head checkpoint, a new head on an encoder, other labels."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from glassbert.errors import CheckpointError, ConfigError
from tests.checkpoints.tiny import BERT, CONFIGS, assert_same, edit_config, edit_tensors, load, tiny, weights

FRESH_BERT = ["head.classifier.weight", "head.classifier.bias"]


@pytest.mark.parametrize("head", ["mlm", "sequence", "token"])
@pytest.mark.parametrize("family", CONFIGS)
def test_the_encoder_of_a_head_checkpoint(family: str, head: str, tmp_path: Path) -> None:
    model = tiny(CONFIGS[family], head)
    model.save(tmp_path)
    core = load(tmp_path, head="core")
    assert core.head is None
    for name, value in weights(core).items():
        assert value.tobytes() == model.parameters[name].tobytes(), name
    assert core.config.pooler == (family == "bert" and head == "sequence")


@pytest.mark.parametrize("head", ["mlm", "sequence", "token"])
@pytest.mark.parametrize("family", CONFIGS)
def test_a_new_head_on_an_encoder(family: str, head: str, tmp_path: Path) -> None:
    core = tiny(CONFIGS[family], None)
    core.save(tmp_path)
    with pytest.warns(UserWarning, match=r"head\.") as caught:
        model = load(tmp_path, head=head, num_labels=4)
    assert model.head is not None and model.head.kind == head
    for name, value in weights(model).items():
        if name.startswith("head."):
            assert np.isfinite(value).all() and (name.endswith("bias") or value.any()), name
        else:
            assert value.tobytes() == core.parameters[name].tobytes(), name
    assert caught[0].filename.endswith("tiny.py")  # the caller of load, not the package
    assert str(tmp_path) in str(caught[0].message)


def test_the_warning_names_the_new_weights_and_they_depend_on_the_seed(tmp_path: Path) -> None:
    tiny(BERT, "mlm").save(tmp_path)
    wanted = r"no weights for pooler\.weight, pooler\.bias, head\.classifier\.weight, head\.classifier\.bias; they are"
    models = []
    for seed in (1, 1, 2):
        with pytest.warns(UserWarning, match=wanted):
            models.append(load(tmp_path, head="sequence", num_labels=3, seed=seed))
    assert_same(models[0], models[1])
    assert not np.array_equal(models[0].parameters["pooler.weight"], models[2].parameters["pooler.weight"])


def test_other_labels_give_a_new_classifier_and_keep_the_rest(tmp_path: Path) -> None:
    for family in CONFIGS:
        model = tiny(CONFIGS[family], "sequence", 3)
        model.save(tmp_path)
        with pytest.warns(UserWarning, match=r"for head\.classifier\.weight, head\.classifier\.bias;"):
            other = load(tmp_path, num_labels=7)
        assert other.head is not None and other.head.num_labels == 7
        for name, value in weights(other).items():
            if name not in FRESH_BERT:
                assert value.tobytes() == model.parameters[name].tobytes(), name


def test_a_sequence_classifier_is_no_token_classifier(tmp_path: Path) -> None:
    model = tiny(BERT, "sequence", 3)
    model.save(tmp_path)
    with pytest.warns(UserWarning, match=r"for head\.classifier\.weight"):
        other = load(tmp_path, head="token")
    assert not np.array_equal(other.parameters["head.classifier.weight"], model.parameters["head.classifier.weight"])


@pytest.mark.parametrize("labels", [1, 2, 3])
@pytest.mark.parametrize("head", ["sequence", "token", "aligned"])
@pytest.mark.parametrize("family", CONFIGS)
def test_a_classifier_is_no_span_head(family: str, head: str, labels: int, tmp_path: Path) -> None:
    model = tiny(CONFIGS[family], head, labels)
    model.save(tmp_path)
    with pytest.warns(UserWarning, match=r"no weights for .*head\.classifier\.weight"):
        spans = load(tmp_path, head="span")
    if labels == 2:
        assert not np.array_equal(
            spans.parameters["head.classifier.weight"], model.parameters["head.classifier.weight"]
        )


def test_the_same_head_and_labels_given_by_name_change_nothing(tmp_path: Path) -> None:
    model = tiny(BERT, "sequence", 3)
    model.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(model, load(tmp_path, head="sequence", num_labels=3))


def test_loss_of_a_new_head(tmp_path: Path) -> None:
    tiny(BERT, "sequence", 1).save(tmp_path)
    with pytest.warns(UserWarning):
        assert load(tmp_path, num_labels=4).head.loss_name == "cross_entropy"  # type: ignore[union-attr]
    with pytest.warns(UserWarning):
        head = load(tmp_path, num_labels=4, loss="binary_cross_entropy").head
    assert head is not None and head.loss_name == "binary_cross_entropy"


def test_an_encoder_with_the_prefix_of_a_head_checkpoint(tmp_path: Path) -> None:
    """Some files of bare encoders keep "bert." before every name."""
    model = tiny(BERT, None)
    model.save(tmp_path)

    def add_prefix(tensors: dict[str, np.ndarray]) -> None:
        for name in list(tensors):
            tensors["bert." + name] = tensors.pop(name)

    edit_tensors(tmp_path, add_prefix)
    assert_same(model, load(tmp_path))


def test_old_names_buffers_and_the_next_sentence_head(tmp_path: Path) -> None:
    model = tiny(BERT, "mlm")
    model.save(tmp_path)

    def make_old(tensors: dict[str, np.ndarray]) -> None:
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)
        tensors["bert.embeddings.position_ids"] = np.arange(16)[None]
        tensors["bert.pooler.dense.weight"] = np.ones((12, 12), np.float32)
        tensors["bert.pooler.dense.bias"] = np.ones(12, np.float32)
        tensors["cls.seq_relationship.weight"] = np.ones((2, 12), np.float32)
        tensors["cls.seq_relationship.bias"] = np.ones(2, np.float32)
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].copy()

    edit_tensors(tmp_path, make_old)
    assert_same(model, load(tmp_path))
    edit_config(tmp_path, architectures=["BertForPreTraining"])
    assert_same(model, load(tmp_path, head="mlm"))
    both = load(tmp_path)
    assert both.head is not None and both.head.kind == "pretraining"
    assert (both.parameters["pooler.bias"] == 1).all() and (both.parameters["head.pair.classifier.bias"] == 1).all()
    core = load(tmp_path, head="core")
    assert core.config.pooler and (core.parameters["pooler.bias"] == 1).all()


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("tied", [True, False])
def test_round_trip_of_a_pretraining_head(family: str, tied: bool, tmp_path: Path) -> None:
    model = tiny(CONFIGS[family].replace(tie_word_embeddings=tied), "pretraining")
    model.save(tmp_path)
    named = json.loads((tmp_path / "config.json").read_text()).get("architectures")
    assert named == (["BertForPreTraining"] if family == "bert" else None)
    assert_same(model, load(tmp_path))
    ids = np.arange(1, 9).reshape(2, 4)
    ours, theirs = model.predict(ids), load(tmp_path).predict(ids)
    assert all(ours[part].tobytes() == theirs[part].tobytes() for part in ("mlm", "pair"))
    other = tiny(CONFIGS[family].replace(tie_word_embeddings=tied), "pretraining")
    other.parameters["head.pair.classifier.bias"] = other.engine.array([7.0, 7.0])
    other.load_checkpoint(tmp_path)
    assert_same(model, other)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_pretraining_head_on_a_masked_language_model(family: str, tmp_path: Path) -> None:
    model = tiny(CONFIGS[family], "mlm")
    model.save(tmp_path)
    with pytest.warns(UserWarning, match=r"no weights for .*head\.pair\.classifier\.weight"):
        both = load(tmp_path, head="pretraining")
    for name, value in weights(model).items():
        assert value.tobytes() == both.parameters[name].tobytes(), name


def test_a_tied_weight_under_its_other_name_only(tmp_path: Path) -> None:
    model = tiny(BERT, "mlm")
    model.save(tmp_path)

    def move(tensors: dict[str, np.ndarray]) -> None:
        tensors["cls.predictions.decoder.weight"] = tensors.pop("bert.embeddings.word_embeddings.weight")
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    edit_tensors(tmp_path, move)
    assert_same(model, load(tmp_path))


def test_a_tied_weight_that_differs_is_an_error(tmp_path: Path) -> None:
    tiny(BERT, "mlm").save(tmp_path)
    edit_tensors(tmp_path, lambda t: t.update({"cls.predictions.decoder.weight": np.zeros((23, 12), np.float32)}))
    with pytest.raises(CheckpointError, match=r"ties 'cls\.predictions\.decoder\.weight'.*tie_word_embeddings"):
        load(tmp_path)
    edit_config(tmp_path, tie_word_embeddings=False)
    assert not load(tmp_path).parameters["head.decoder.weight"].any()


def test_the_unused_bias_of_an_untied_bert(tmp_path: Path) -> None:
    """transformers 5 uses decoder.bias and saves an unused predictions.bias; transformers 4 saves only the latter."""
    model = tiny(BERT.replace(tie_word_embeddings=False), "mlm")
    model.save(tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors["cls.predictions.bias"].fill(0))
    assert_same(model, load(tmp_path))
    model.save(tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors.pop("cls.predictions.decoder.bias"))
    assert_same(model, load(tmp_path))


def test_the_encoder_of_a_head_we_do_not_have(tmp_path: Path) -> None:
    model = tiny(BERT, "token")
    model.save(tmp_path)
    edit_config(tmp_path, architectures=["BertForMultipleChoice"])
    with pytest.raises(
        CheckpointError, match=r"'BertForMultipleChoice', but GlassBERT opens .*BertForQuestionAnswering"
    ):
        load(tmp_path)
    core = load(tmp_path, head="core")
    assert core.parameters["embeddings.token"].tobytes() == model.parameters["embeddings.token"].tobytes()


def test_tensors_of_a_head_we_do_not_have(tmp_path: Path) -> None:
    """The error says that head="core" opens the file, so its unknown tensors are left out."""
    model = tiny(BERT, None)
    model.save(tmp_path)
    edit_config(tmp_path, architectures=["BertForPoems"])
    edit_tensors(tmp_path, lambda tensors: tensors.update({"rhymes.dense.weight": np.ones((2, 12), np.float32)}))
    assert_same(model, load(tmp_path, head="core"))
    edit_tensors(tmp_path, lambda tensors: tensors.update({"encoder.extra.weight": np.ones(2, np.float32)}))
    with pytest.raises(CheckpointError, match=r"does not have: encoder\.extra\.weight"):
        load(tmp_path, head="core")


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_an_encoder_whose_config_names_a_head(family: str, tmp_path: Path) -> None:
    """As all-mpnet-base-v2 and other folders of sentence-transformers."""
    model = tiny(CONFIGS[family], None)
    model.save(tmp_path)
    name = "BertForMaskedLM" if family == "bert" else "ModernBertForMaskedLM"
    edit_config(tmp_path, architectures=[name])
    assert_same(model, load(tmp_path))


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_another_head_where_no_architecture_is_named(family: str, tmp_path: Path) -> None:
    """As deberta-v3-base and longformer-base-4096 are published."""
    model = tiny(CONFIGS[family], "mlm")
    model.save(tmp_path)
    edit_config(tmp_path, architectures=...)
    assert_same(model, load(tmp_path, head="mlm"))
    assert load(tmp_path, head="core").head is None
    with pytest.warns(UserWarning, match="no weights for .*head.classifier.weight"):
        tuned = load(tmp_path, head="sequence", num_labels=3)
    assert tuned.parameters["embeddings.token"].tobytes() == model.parameters["embeddings.token"].tobytes()


def test_impossible_heads(tmp_path: Path) -> None:
    tiny(CONFIGS["mini"], "mlm").save(tmp_path)
    with pytest.raises(CheckpointError, match="unknown head 'poet'; choose one of core, mlm, token, sequence"):
        load(tmp_path, head="poet")
    with pytest.raises((CheckpointError, ConfigError), match="num_labels of at least 1"):
        load(tmp_path, head="sequence")


def test_a_config_that_names_no_architecture(tmp_path: Path) -> None:
    """An encoder is recognised by its tensors; a head must be given, and the file must have all its tensors or none."""
    for config in (CONFIGS["bert"], CONFIGS["modernbert"]):
        core = tiny(config, None)
        core.save(tmp_path)
        edit_config(tmp_path, architectures=...)
        assert_same(core, load(tmp_path))
        with pytest.warns(UserWarning, match="initialised at random"):
            load(tmp_path, head="token")
        model = tiny(config, "token", 3)
        model.save(tmp_path)
        edit_config(tmp_path, architectures=...)
        with pytest.raises(CheckpointError, match="names no architecture; give the head"):
            load(tmp_path)
        assert_same(model, load(tmp_path, head="token"))
        edit_tensors(tmp_path, lambda tensors: tensors.pop("classifier.bias"))
        with pytest.raises(CheckpointError, match=r"missing from the file: classifier\.bias"):
            load(tmp_path, head="token")


def test_num_labels_does_not_replace_a_missing_head(tmp_path: Path) -> None:
    tiny(BERT, "mlm").save(tmp_path)
    assert load(tmp_path, num_labels=9).head.kind == "mlm"  # type: ignore[union-attr]
    edit_tensors(tmp_path, lambda tensors: tensors.pop("cls.predictions.bias"))
    with pytest.raises(CheckpointError, match=r"missing from the file: cls\.predictions\.bias"):
        load(tmp_path, num_labels=9)
    tiny(BERT, "sequence", 3).save(tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors.pop("bert.pooler.dense.bias"))
    with pytest.raises(CheckpointError, match=r"missing from the file: bert\.pooler\.dense\.bias"):
        load(tmp_path, num_labels=9)
