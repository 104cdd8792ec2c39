"""The tables of a model: every number computed from its config."""

import numpy as np

from glassbert import MINI_BERT_CONFIG, BertCore, MiniBERT
from glassbert.models.describe import count, mebibytes
from glassbert.models.flops import training_flops


def test_the_tables_of_mini_bert():
    model = MiniBERT(engine="numpy")
    text = model.describe(batch_size=32)
    assert "4,501,184 parameters" in text
    assert "8,192 × 192" in text
    assert "3 of 576 × 192" in text
    assert count(training_flops(MINI_BERT_CONFIG, 32, 64, scored_rows=307)) in text
    assert mebibytes(4 * model.get_parameter_count()) in text


def test_shares_add_up():
    model = BertCore(MINI_BERT_CONFIG, engine="numpy")
    assert sum(int(np.prod(shape)) for shape in model.layout.shapes.values()) == model.get_parameter_count()
    assert "head." not in model.describe(1, 16)


def test_units():
    assert [count(x) for x in (7, 1_500, 2_000_000, 3.25e9)] == ["7", "1.5 k", "2.0 M", "3.2 G"]
    assert mebibytes(2**20) == "1.0 MiB"
    assert mebibytes(3 * 2**30) == "3.00 GiB"
