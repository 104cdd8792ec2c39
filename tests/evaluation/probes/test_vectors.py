"""Word vectors against a traced forward pass, for batches, windows and layers."""

import numpy as np
import pytest

from glassbert import MINI_BERT_CONFIG, Model, ModernBertConfig
from glassbert.errors import InputError
from glassbert.evaluation.encoding import layer_states
from glassbert.evaluation.probes import vectors as module
from glassbert.evaluation.probes.vectors import word_vectors
from glassbert.tasks.alignment import align_words
from glassbert.text import WordPieceTokenizer

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TOKENIZER = WordPieceTokenizer.train(
    ["an old bird sings in the tree", "the river runs", "singing birds"] * 3, 54, min_frequency=1
)
LONG = "an old bird sings in the river and the bird runs old"
SENTENCES = [["the", "singing", "birds"], ["trees"], LONG.split(" ")]


def model_of(family="mini", length=64, **changes):
    sizes = SMALL | {"vocab_size": TOKENIZER.vocab_size, "max_position_embeddings": length} | changes
    if family == "modern":
        return Model(ModernBertConfig(local_window=4, pad_token_id=0, **sizes), seed=1, engine="numpy", threads=2)
    return Model(MINI_BERT_CONFIG.replace(**sizes), "mlm", seed=1, engine="numpy", threads=2)


@pytest.mark.parametrize("family", ["mini", "modern"])
def test_states_are_those_of_a_traced_pass(family):
    model = model_of(family)
    ids = np.array([[2, 9, 7, 3, 0, 0], [2, 5, 6, 8, 11, 3], [2, 3, 0, 0, 0, 0]])
    mask = ids != 0
    states = layer_states(model, ids, mask)
    _, cache = model.forward(ids, mask, trace=True)
    names = ["embeddings.output", "layers.0.output", "output"]
    for name, found in zip(names, states, strict=True):
        np.testing.assert_allclose(found[mask], np.asarray(cache[name])[mask], atol=1e-5)
        assert not found[~mask].any()


@pytest.mark.parametrize("pieces", ["mean", "first"])
def test_a_word_is_the_mean_or_the_first_of_its_pieces(pieces):
    model = model_of()
    found = word_vectors(model, TOKENIZER, SENTENCES, pieces=pieces)
    assert found.layers.shape == (3, 16, 16)
    assert found.starts.tolist() == [0, 3, 4, 16]
    word = 0
    for sentence in SENTENCES:
        encoding = TOKENIZER.encode(" ".join(sentence))
        states = layer_states(model, np.array([encoding.ids]))
        owners = np.array([-1 if w is None else w for w in encoding.word_ids])
        for place in range(len(sentence)):
            own = np.flatnonzero(owners == place)[: 1 if pieces == "first" else None]
            for layer in range(3):
                np.testing.assert_allclose(found.layers[layer, word], states[layer][0, own].mean(0), atol=1e-5)
            word += 1
    assert (found.lost, found.cut) == (0, 0)


def test_long_sentences_are_read_in_windows_and_counted():
    model = model_of(length=8)
    found = word_vectors(model, TOKENIZER, SENTENCES)
    assert found.cut >= 1
    assert np.abs(found.layers).sum(2).min() > 0  # every word has a vector
    aligned = align_words(TOKENIZER, [SENTENCES[2]], length=8)
    for word in range(12):
        depth, vector = -1, None
        for encoding, firsts in zip(aligned.windows.encodings, aligned.firsts, strict=True):
            ends = [*firsts[1:, 1], len(encoding) - 1]
            for (number, first), end in zip(firsts, ends, strict=True):
                if number == word and min(first, len(encoding) - end) > depth:
                    depth = min(first, len(encoding) - end)
                    vector = layer_states(model, np.array([encoding.ids]))[2][0, first:end].mean(0)
        np.testing.assert_allclose(found.layers[2, 4 + word], vector, atol=1e-5)


def test_a_word_without_pieces_is_counted():
    found = word_vectors(model_of(), TOKENIZER, [["the", "\x07", "river"]])
    assert found.lost == 1
    assert not found.layers[:, 1].any() and found.layers[:, [0, 2]].any()


def test_large_arrays_are_memory_mapped(monkeypatch):
    here = word_vectors(model_of(), TOKENIZER, SENTENCES)
    monkeypatch.setattr(module, "MAX_IN_MEMORY", 0)
    there = word_vectors(model_of(), TOKENIZER, SENTENCES)
    assert isinstance(there.layers, np.memmap)
    np.testing.assert_array_equal(there.layers, here.layers)


@pytest.mark.parametrize(("sentences", "words"), [([], "no sentences"), ([["a"], []], "no words")])
def test_empty_input_is_an_error(sentences, words):
    with pytest.raises(InputError, match=words):
        word_vectors(model_of(), TOKENIZER, sentences)
    with pytest.raises(InputError, match="'mean' or 'first'"):
        word_vectors(model_of(), TOKENIZER, SENTENCES, pieces="last")
