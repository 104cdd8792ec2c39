"""The table of families of the training benchmark: every row can be built, and its labels are what its head needs."""

import numpy as np
import pytest

from benchmarks.families import ROWS, Row, labels_of
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


def test_labels():
    ids, labels = np.array([[2, 4, 9]]), np.array([[-100, 7, -100]])
    np.testing.assert_array_equal(labels_of(Row("mini", ""), ids, labels), [ids, labels])
    everything = labels_of(Row("mini", "", labels="all"), ids, labels)
    np.testing.assert_array_equal(everything, [[[2, 7, 9]]] * 2)
