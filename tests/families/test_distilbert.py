"""The student of a BERT: every second layer, the same embeddings, and what cannot be a teacher."""

import numpy as np
import pytest

from glassbert.errors import ConfigError
from glassbert.families.distilbert import DistilBertConfig, student_of, take_layers
from tests.models.small import BERT, MODERN, batch, make
from tests.training.toy import make_trainer

DEEP = BERT.replace(num_hidden_layers=4)


def test_a_student_has_every_second_layer_and_the_embeddings():
    teacher = make(DEEP, spread=True)
    student = student_of(teacher, dtype="float64")
    assert student.config.family == "distilbert" and student.config.num_hidden_layers == 2
    for layer, source in ((0, 0), (1, 2)):
        for name, values in student.layers[layer].parameters.items():
            np.testing.assert_array_equal(values, teacher.layers[source].parameters[name])
    for name in ("embeddings.token", "head.transform.weight", "head.decoder.bias"):
        np.testing.assert_array_equal(student.parameters[name], teacher.parameters[name])


def test_embeddings_and_first_layer_give_the_same_values():
    """The type of the first sentence is part of the positions, so nothing is lost without token types."""
    teacher = make(DEEP)
    student = student_of(teacher)
    ids, mask, _ = batch(DEEP)
    (_, ours), (_, theirs) = (model.forward(ids, mask, trace=True) for model in (student, teacher))
    for name in ("embeddings.output", "layers.0.ffn.hidden"):
        np.testing.assert_allclose(ours[name][mask == 1], theirs[name][mask == 1], atol=1e-12)


def test_every_third_layer_and_a_bare_teacher():
    teacher = make(BERT.replace(num_hidden_layers=3), None)
    student = make(DistilBertConfig(**{name: getattr(BERT, name) for name in SIZES}, num_hidden_layers=1))
    before = student.parameters["head.transform.weight"].copy()
    take_layers(student, teacher)
    np.testing.assert_array_equal(
        student.layers[0].parameters["ffn.up.weight"], teacher.parameters["layers.0.ffn.up.weight"]
    )
    np.testing.assert_array_equal(student.parameters["head.transform.weight"], before)


SIZES = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")


def test_what_cannot_be_a_teacher():
    with pytest.raises(ConfigError, match="cannot begin with the layers of this modernbert: positions is 'rotary'"):
        student_of(make(MODERN))
    student = make(DistilBertConfig(**{name: getattr(BERT, name) for name in SIZES}, num_hidden_layers=3))
    with pytest.raises(ConfigError, match="3 layers cannot be every n-th of 4; every second would be 2"):
        take_layers(student, make(DEEP))
    with pytest.raises(ConfigError, match="vocab_size is 40, but 31 in the student"):
        take_layers(student, make(DEEP.replace(vocab_size=40)))


def test_a_run_starts_from_every_second_layer_of_a_bert(corpus, tmp_path, quick_runs):
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    teacher = make(BERT.replace(vocab_size=64, num_hidden_layers=4, **sizes))
    teacher.save(tmp_path / "teacher")
    trainer = make_trainer(
        corpus, tmp_path / "run", preset="distilbert-mini", start_from=str(tmp_path / "teacher"), num_hidden_layers=2,
        objective="2*mlm+5*distill+hidden", teacher=str(tmp_path / "teacher"), steps=3,
    )  # fmt: skip
    second = trainer.model.parameters["layers.1.ffn.up.weight"]
    np.testing.assert_allclose(second, teacher.parameters["layers.2.ffn.up.weight"], atol=1e-6)
    assert trainer.train().stopped == "finished"
