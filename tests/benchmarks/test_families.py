"""The table of families of the training benchmark: every row can be built, and its labels are what its head needs."""

import numpy as np
import pytest

from benchmarks.families import ROWS, Row, inputs_of, their_inputs
from glassbert.checkpoints.description import describe
from glassbert.checkpoints.formats import format_of_model
from glassbert.models.model import Model


@pytest.mark.parametrize("family", ROWS)
def test_transformers_has_a_class_for_every_row(family):
    row = ROWS[family]
    pairs = [(row.config, "discriminator" if row.generator else row.head, row.theirs)]
    pairs += [(row.config.generator(), "mlm", row.generator)] if row.generator else []
    for config, head, name in pairs:
        model = Model(config, head, engine="numpy", initialize=False)
        file_format, obstacles = format_of_model(describe(model), list(model.layout.shapes))
        assert not obstacles
        assert file_format.write(describe(model))["architectures"] == [name]


def test_inputs():
    ids, labels = np.array([[2, 4, 9]]), np.array([[-100, 7, -100]])
    masked = inputs_of(Row("mini", ""), ids, labels)
    np.testing.assert_array_equal([masked["input_ids"], masked["labels"]], [ids, labels])
    everything = inputs_of(Row("mini", "", labels="all"), ids, labels)
    np.testing.assert_array_equal([everything["input_ids"], everything["labels"]], [[[2, 7, 9]]] * 2)


def test_both_sides_predict_the_same_words_in_the_same_order():
    ids, labels = np.array([[2, 4, 9, 4]]), np.array([[-100, 7, -100, 8]])
    ours = inputs_of(Row("mini", "", labels="permuted"), ids, labels)
    np.testing.assert_array_equal(ours["input_ids"], [[2, 7, 9, 8]])
    np.testing.assert_array_equal(ours["prediction_order"], [[0, 1, 0, 2]])
    pytest.importorskip("torch")
    given, theirs = their_inputs(ours)
    np.testing.assert_array_equal(given, [[2, 7, 9, 8]])
    hidden = [[0, 1, 0, 1], [0, 1, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1]]  # the second word sees the first
    np.testing.assert_array_equal(theirs["perm_mask"], [hidden])
    np.testing.assert_array_equal(theirs["target_mapping"].argmax(-1)[:, :2], [[1, 3]])
    np.testing.assert_array_equal(theirs["labels"][:, :2], [[7, 8]])
    assert (theirs["labels"][:, 2:] == -100).all()
