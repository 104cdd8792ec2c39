"""Syntactic heads: a head that follows a relation is found, and a fixed distance is the baseline."""

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.insight import syntactic_heads
from glassbert.insight import syntax as module
from glassbert.insight.syntax import pieces_to_words
from glassbert.tasks import Table
from tests.insight.specimen import specimen

WORDS = ["the", "red", "river", "sings", "stone", "falls", "king", "runs"]


def annotated(sentences=160, seed=0):
    """Every second word depends on the one before it (`near`), the others on the root (`far`); no sentence twice."""
    rng = np.random.default_rng(seed)
    words, heads, relations = [], [], []
    while len(words) < sentences:
        length = int(rng.integers(4, 8))
        sentence = [WORDS[i] for i in rng.integers(0, len(WORDS), length)]
        if sentence in words:
            continue
        words.append(sentence)
        root = int(rng.integers(2, length))
        heads.append([0 if i == root else (i if i > 0 and i % 2 else root + 1) for i in range(length)])
        relations.append(["root" if i == root else ("near" if i > 0 and i % 2 else "far") for i in range(length)])
    return Table({"words": words, "head": heads, "deprel": relations}, "here", list(range(1, sentences + 1)))


@pytest.fixture
def planted(monkeypatch):
    """Attention in which head 1.0 attends from every dependent to its head, and head 0.1 to the previous word."""
    table = annotated()
    by_words = {tuple(words): row for row, words in enumerate(table.column("words"))}
    loaded = specimen()

    def maps(model, ids, mask):
        rng = np.random.default_rng(int(ids.sum()))
        weights = rng.random((2, len(ids), 2, ids.shape[1], ids.shape[1])).astype(np.float32)
        for row, tokens in enumerate(ids):
            words = loaded.tokenizer.decode(tokens.tolist()).split()
            heads = table.column("head")[by_words[tuple(words)]]
            owner = [-1 if word is None else word for word in loaded.tokenizer.encode(" ".join(words)).word_ids]
            pieces = [np.flatnonzero(np.array(owner) == word) for word in range(len(words))]
            for word, head in enumerate(heads):
                if word:
                    weights[0, row, 1, pieces[word][:, None], pieces[word - 1]] += 9
                if head:
                    weights[1, row, 0, pieces[word][:, None], pieces[head - 1]] += 9
        return weights

    monkeypatch.setattr(module, "attention_maps", maps)
    return loaded, table


def test_a_head_that_follows_a_relation_is_found(planted):
    found = syntactic_heads(*planted)
    by_name = {relation.name: relation for relation in found.relations}
    far, near = by_name["far"], by_name["near"]
    assert (far.layer, far.head, far.direction) == (1, 0, "dependent to head")
    assert far.accuracy == 1 and far.baseline < 0.6 and far.is_significant
    assert far.gain.value == pytest.approx(far.accuracy - far.baseline)
    # Head 0.1 always attends to the previous word: it finds `near`, and so does the offset.
    assert (near.accuracy, near.offset, near.baseline) == (1, -1, 1) and not near.is_significant
    assert (found.sentences, found.too_long, found.too_rare) == (160, 0, {})


def test_the_baseline_is_the_share_of_one_distance(planted):
    loaded, table = planted
    far = next(one for one in syntactic_heads(loaded, table).relations if one.name == "far")
    right = [
        head - 1 - dependent == far.offset
        for row, heads in enumerate(table.column("head"))
        for dependent, head in enumerate(heads)
        if row % 2 and table.column("deprel")[row][dependent] == "far"
    ]
    assert far.pairs == len(right) and far.baseline == pytest.approx(np.mean(right))


def test_long_sentences_and_rare_relations_are_counted():
    table = annotated(20)
    table.columns["words"][3] = ["river"] * 40
    table.columns["head"][3] = [0] + [1] * 39
    table.columns["deprel"][3] = ["root"] + ["far"] * 39
    found = syntactic_heads(specimen(), table)
    assert found.too_long == 1 and found.sentences == 19
    assert set(found.too_rare) | {relation.name for relation in found.relations} == {"near", "far"}


def test_subtypes_count_with_their_relation():
    table = annotated(120)
    table.columns["deprel"] = [
        [name + ":special" * (i % 2) for i, name in enumerate(row)] for row in table.columns["deprel"]
    ]
    names = {relation.name for relation in syntactic_heads(specimen(), table).relations}
    assert names <= {"near", "far"}


def test_sentences_without_relations_are_an_error():
    table = Table({"words": [["river"]], "head": [[0]], "deprel": [["root"]]}, "here", [1])
    with pytest.raises(InputError, match="none of the 1 sentences"):
        syntactic_heads(specimen(), table)


def test_pieces_become_words_by_sums_and_means():
    maps = np.arange(36.0).reshape(6, 6)  # [CLS] a ##b c ##d [SEP]
    found = pieces_to_words(maps, np.array([[0, 1], [1, 3]]), 2, 6)
    by_hand = [[maps[np.ix_(rows, columns)].sum(1).mean() for columns in ([1, 2], [3, 4])] for rows in ([1, 2], [3, 4])]
    assert found == pytest.approx(np.array(by_hand))


def test_a_word_without_pieces_gets_no_attention():
    found = pieces_to_words(np.full((4, 4), 0.25), np.array([[0, 1], [2, 2]]), 3, 4)
    assert (found[1] == 0).all() and (found[:, 1] == 0).all()
