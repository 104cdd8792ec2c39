"""Key maps with transposed matrices, as GPT-2's files have them: both ways, bit by bit."""

import dataclasses

import numpy as np
import pytest

import glassbert
from glassbert.checkpoints.family import FAMILIES
from glassbert.checkpoints.names import transposed
from glassbert.families.bert import BERT
from tests.checkpoints.tiny import CONFIGS

LAYER = "{core}h.{layer}."


@pytest.fixture
def family():
    """BERT with its feed-forward matrices stored as [input, output]."""
    core = {
        **BERT.core,
        "layers.{layer}.ffn.up.{part}": transposed(LAYER + "up.{part}"),
        "layers.{layer}.ffn.down.{part}": transposed(LAYER + "down.{part}"),
    }
    before = dict(FAMILIES._entries)
    FAMILIES._entries["bert"] = dataclasses.replace(BERT, core=core)
    yield
    FAMILIES._entries = before


def test_a_transposed_matrix_is_written_and_read_back(family, tmp_path):
    model = glassbert.BertCore(CONFIGS["bert"], engine="numpy")
    model.save(tmp_path)
    again = glassbert.load(tmp_path, engine="numpy")
    for name, values in model.parameters.items():
        np.testing.assert_array_equal(again.parameters[name], values, err_msg=name)
    stored = model.to_huggingface()
    np.testing.assert_array_equal(stored["h.0.up.weight"], model.parameters["layers.0.ffn.up.weight"].T)
    np.testing.assert_array_equal(stored["h.0.up.bias"], model.parameters["layers.0.ffn.up.bias"])
