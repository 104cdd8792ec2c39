"""The suites embeddings and cost."""

import numpy as np
import pytest

from glassbert.evaluation import SUITES, Options
from glassbert.evaluation.embeddings import nearest_words, sentence_vectors
from glassbert.models.flops import forward_flops
from glassbert.models.inputs import check_inputs
from tests.evaluation.subjects import subject


@pytest.fixture
def similarity(tmp_path):
    def write(rows):
        (tmp_path / "stsb").mkdir(exist_ok=True)
        lines = [f"g\tf\ty\t{i}\t{score}\t{a}\t{b}\n" for i, (score, a, b) in enumerate(rows)]
        (tmp_path / "stsb" / "sts-dev.csv").write_text("".join(lines), encoding="utf-8")
        return Options(data=tmp_path)

    return write


ROWS = [
    (5.0, "the red house stands", "the red house stands"),
    (4.0, "the old king sees a tree", "the old king sees a stone"),
    (3.0, "a bird sings in the night", "a bird sings and falls"),
    (1.0, "the river runs", "a small green stone was old"),
    (0.5, "a king", "the night falls and the river runs in the old road"),
    (0.0, "stone and stone and stone", "the bird sees a green house"),
]


def test_sentences_are_means_of_their_tokens():
    one = subject()
    texts = ["the red house stands", "a bird", "the red house stands in the night and the river runs"]
    vectors, _, cut = sentence_vectors(one, texts, Options())
    for text, vector in zip(texts, vectors, strict=True):
        ids = np.array([one.tokenizer.encode(text).ids])
        hidden = one.model.run(check_inputs(one.model.config, ids)).encode()
        np.testing.assert_allclose(vector, hidden[0].mean(0), atol=1e-6)
    assert cut == 0
    assert sentence_vectors(one, ["the " * 80], Options())[2] == 1


def test_similarity_and_its_word_overlap_baseline(similarity):
    found = SUITES["embeddings"](subject(), similarity(ROWS))
    assert found["similarity of sentences"].value > 0.5
    assert found["sharing words alone"].value > 0.5
    assert -1 <= found["anisotropy of sentences"].value <= 1
    assert found["intrinsic dimension of sentences"].reason  # six sentences are too few, and it says so
    assert found.tables[1].rows[0][0] == "the red house stands"


def test_constant_judgements_have_no_correlation(similarity):
    found = SUITES["embeddings"](subject(), similarity([(3.0, a, b) for _, a, b in ROWS]))
    assert found["similarity of sentences"].value is None and "constant" in found["similarity of sentences"].reason


def test_without_data_only_the_nearest_words_are_reported():
    found = SUITES["embeddings"](subject(), Options())
    assert found["similarity of sentences"].reason.startswith("there is no set of sentence pairs")
    assert found.tables[0].title == "Nearest words"


def test_neighbours_are_whole_words_and_never_the_word_itself():
    one = subject()
    ids = [one.tokenizer.token_to_id(word) for word in ("king", "tree")]
    one.model.parameters["embeddings.token"][ids[1]] = one.model.parameters["embeddings.token"][ids[0]]
    rows = dict(nearest_words(one).rows)
    assert rows["king"].startswith("tree 1.00") and "king" not in rows["king"] and "##" not in rows["king"]


def test_a_vocabulary_without_words_has_no_neighbours():
    one = subject()
    one.tokenizer.vocabulary = {token: id for token, id in one.tokenizer.vocabulary.items() if not token.isalpha()}
    assert nearest_words(one).rows == []


def test_cost_measures():
    one = subject()
    found = SUITES["cost"](one, Options(quick=True))
    assert found["parameters"].value == one.parameters
    assert found["operations a token, forward"].value == sum(forward_flops(one.model.config, 1, 40).values()) / 40
    assert found["tokens a second"].value > 0
    assert found["memory of a pass"].value * 2**20 > 102 * 40 * 24 * 4  # at least the hidden states
    assert [row.name for row in found.groups["latency by length"]] == ["8 tokens", "16 tokens", "32 tokens"]
    assert "operations a token, training" not in [
        row.name for row in SUITES["cost"](subject(None), Options(quick=True)).rows
    ]
