"""Hidden states by layer, and similarity of layers."""

import numpy as np
import pytest

from glassbert.insight import hidden_states, layer_similarity, read_rows, tagged_states, word_states
from glassbert.tasks import Table
from tests.insight.specimen import sentences, specimen


@pytest.mark.parametrize("config", ["bert", "mini", "modernbert"])
def test_states_are_those_of_the_model(config):
    loaded = specimen(config, head=None)
    ids = [[2, 9, 12, 30, 3]]
    output, cache = loaded.model.forward(ids, trace=True, kernels="fast")
    states = hidden_states(loaded.model, ids)
    assert list(states) == ["embeddings", "layers.0", "layers.1"]
    assert (states["embeddings"] == cache["embeddings.output"]).all()
    assert (states["layers.0"] == cache["layers.0.output"]).all()
    assert (states["layers.1"] == output).all()


def test_word_states_skip_special_tokens_and_are_evenly_spaced():
    loaded = specimen()
    batches = read_rows(loaded, sentences(9), batch_size=4)
    states = word_states(loaded.model, batches)
    assert len(states["layers.1"]) == sum(int(rows.words.sum()) for rows in batches)
    first = hidden_states(loaded.model, batches[0].ids, batches[0].mask)["layers.1"]
    assert states["layers.1"][0] == pytest.approx(first[0, 1], abs=1e-6)
    few = word_states(loaded.model, batches, 5)["layers.1"]
    assert len(few) == 5 and (few[[0, -1]] == states["layers.1"][[0, -1]]).all()


def test_unique_uses_the_first_occurrence_of_each_token():
    loaded = specimen()
    batches = read_rows(loaded, sentences(9), batch_size=4)
    ids = np.concatenate([rows.ids[rows.words] for rows in batches])
    every, unique = word_states(loaded.model, batches), word_states(loaded.model, batches, unique=True)
    firsts = sorted(int(np.flatnonzero(ids == token)[0]) for token in set(ids.tolist()))
    assert (unique["layers.0"] == every["layers.0"][firsts]).all()


def test_similarity_is_invariant_to_rotation():
    rng = np.random.default_rng(0)
    x, other = rng.standard_normal((300, 8)), rng.standard_normal((300, 8))
    turned, _ = np.linalg.qr(rng.standard_normal((8, 8)))
    table = layer_similarity({"x": x, "turned": 3 * x @ turned + 5}, {"x": x, "other": other})
    assert table[:, 0] == pytest.approx([1, 1])
    assert (table[:, 1] < 0.2).all()


def test_tags_belong_to_the_first_pieces_of_their_words():
    loaded = specimen()
    words = [["the", "river", "sings"], ["a", "zzz", "stone", "falls"]]
    tags = [["D", "N", "V"], ["D", "X", "N", "V"]]
    states, found = tagged_states(loaded, Table({"words": words, "upos": tags}, "here", [1, 5]), "upos")
    assert found.tolist() == ["D", "N", "V", "D", "X", "N", "V"]
    pieces = loaded.tokenizer.encode("a zzz stone falls")
    place = pieces.word_ids.index(2)
    rows = read_rows(loaded, ["the river sings", "a zzz stone falls"])[0]
    expected = hidden_states(loaded.model, rows.ids, rows.mask)["layers.1"][1, place]
    assert states["layers.1"][5] == pytest.approx(expected, abs=1e-6)
