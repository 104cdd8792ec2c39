"""Rows of one tokenizer in the tokens of another: words, special tokens, segments, padding, rows that are too long."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassbert.text import FastTokenizer
from glassbert.text.kinds import train_tokenizer
from glassbert.text.translation import RowTranslator
from glassbert.training.teacher import word_means
from tests.training.toy import WORDS

TEXT = "the old king sees a red bird. naïve readers, unbelievable stones; it was 1931!"
SMALL = FastTokenizer.train([TEXT] * 3, vocab_size=66, min_frequency=1)
LARGE = FastTokenizer.train([f"{TEXT} {' '.join(WORDS)}"] * 50, vocab_size=128, min_frequency=1)
ALPHABET = sorted(set(TEXT))


def rows_of(tokenizer, texts):
    """ids and segments [B, T] of texts, one a row, padded."""
    rows = tokenizer.encode_batch(texts, padding=True)
    return np.array([row.ids for row in rows]), np.array([row.attention_mask for row in rows])


def real_ids(rows, row):
    return rows.ids[row][rows.segments[row] > 0].tolist()


def test_a_word_of_many_pieces_becomes_a_word_of_few():
    ids, segments = rows_of(SMALL, ["unbelievable stones"])
    rows = RowTranslator(SMALL, LARGE)(ids, segments)
    assert real_ids(rows, 0) == LARGE.encode("unbelievable stones").ids
    assert ids.shape[1] > len(real_ids(rows, 0))  # otherwise the test shows nothing
    for token, place, count in zip(ids[0], rows.first[0], rows.pieces[0], strict=True):
        piece = SMALL.id_to_token(token).removeprefix("##")
        word = LARGE.decode(rows.ids[0, place : place + count], skip_special_tokens=False)
        assert piece in word


@pytest.mark.parametrize(("own", "other"), [(SMALL, LARGE), (LARGE, SMALL)])
@given(texts=st.lists(st.text(ALPHABET, max_size=40), min_size=1, max_size=4))
def test_rows_of_whole_texts_are_what_the_other_tokenizer_makes_of_them(own, other, texts):
    """Both split the same words, so the translated row is the encoding of the text."""
    ids, segments = rows_of(own, texts)
    rows = RowTranslator(own, other)(ids, segments)
    known = [not (ids[row] == own.unknown_id).any() for row in range(len(texts))]
    for row, text in enumerate(texts):
        if known[row]:
            assert real_ids(rows, row) == other.encode(text).ids
    assert ((rows.pieces > 0) == (segments > 0)).all()
    last = (rows.first + rows.pieces)[segments > 0]
    assert last.max() <= rows.ids.shape[1]


def test_byte_level_tokens_keep_their_spaces():
    bytes_level = train_tokenizer("bpe", [TEXT] * 20, vocab_size=310)
    ids, segments = rows_of(SMALL, ["the old king"])
    rows = RowTranslator(SMALL, bytes_level)(ids, segments)
    inner = bytes_level.decode(real_ids(rows, 0), skip_special_tokens=True)
    assert inner.split() == ["the", "old", "king"]
    back = RowTranslator(bytes_level, SMALL)(*rows_of(bytes_level, [" the old king"]))
    assert SMALL.decode(real_ids(back, 0)) == "the old king"


def test_segments_padding_and_a_row_that_begins_inside_a_word():
    inside = SMALL.encode("unbelievable", special_tokens=False).ids[1:]
    ids = np.array([[*inside, SMALL.sep_id, SMALL.cls_id, *inside, SMALL.sep_id, 0, 0]])
    segments = np.array([[1] * (len(inside) + 1) + [2] * (len(inside) + 2) + [0, 0]])
    rows = RowTranslator(SMALL, LARGE)(ids, segments)
    assert rows.pieces[0, -2:].tolist() == [0, 0] and (rows.pieces[0, :-2] > 0).all()
    assert rows.ids[0, rows.first[0, len(inside)]] == LARGE.sep_id
    second = rows.first[0, len(inside) + 1]
    assert rows.ids[0, second] == LARGE.cls_id and rows.segments[0, second] == 2 and rows.segments[0, second - 1] == 1
    assert "#" not in LARGE.decode(real_ids(rows, 0))


def test_a_word_does_not_go_on_in_the_next_segment():
    first, second = SMALL.encode("stones", special_tokens=False).ids[:2]
    rows = RowTranslator(SMALL, LARGE)(np.array([[first, second]]), np.array([[1, 2]]))
    assert rows.first[0, 1] == rows.first[0, 0] + rows.pieces[0, 0]


def test_words_that_do_not_fit_are_left_out():
    ids, segments = rows_of(LARGE, ["the old king sees a red bird.", "a"])
    rows = RowTranslator(LARGE, SMALL, longest=9)(ids, segments)
    assert rows.ids.shape == (2, 9)
    assert (rows.pieces[0] == 0).any() and (rows.pieces[1][segments[1] > 0] > 0).all()
    assert (rows.first + rows.pieces).max() <= 9


def test_a_row_that_is_too_long_ends_with_the_last_word_that_fits():
    """A shorter word after it would stand beside words that are not its neighbours."""
    ids, segments = rows_of(LARGE, ["the unbelievable a a a"])
    rows = RowTranslator(LARGE, SMALL, longest=4)(ids, segments)
    assert real_ids(rows, 0) == SMALL.encode("the").ids[:-1]
    assert (rows.pieces[0] > 0).tolist() == [True, True] + [False] * (ids.shape[1] - 2)


def test_hash_marks_of_a_text_are_no_continuation():
    bytes_level = train_tokenizer("bpe", ["## the king ## sees"] * 20, vocab_size=270)
    other = FastTokenizer.train(["## the king"] * 5, vocab_size=60, min_frequency=1)
    rows = RowTranslator(bytes_level, other)(*rows_of(bytes_level, ["the ## king"]))
    assert real_ids(rows, 0) == other.encode("the ## king").ids


def test_a_token_with_all_roles_is_the_end_of_a_text():
    """A tokenizer of GPT-2 has one special token."""
    content = train_tokenizer("bpe", [TEXT] * 20, vocab_size=310)._content
    end = content["added_tokens"][0]["content"]
    one = FastTokenizer(content, [end] * 5)
    rows = RowTranslator(one, SMALL)(np.array([[one.vocabulary[end]]]), np.ones((1, 1), int))
    assert real_ids(rows, 0) == [SMALL.sep_id]


def test_an_empty_batch_of_padding():
    rows = RowTranslator(SMALL, LARGE)(np.zeros((2, 3), int), np.zeros((2, 3), int))
    assert rows.ids.shape[0] == 2 and not rows.segments.any() and not rows.pieces.any()


@pytest.mark.parametrize("name", ["numpy", "mlx"])
def test_a_token_has_the_mean_of_the_pieces_of_its_word(name):
    if name == "mlx":
        pytest.importorskip("mlx.core")
    from glassbert.engines import get_engine

    engine = get_engine(name, "float32")
    states = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    first = np.array([[0, 1, 1, 4], [0, 2, 0, 0]])
    pieces = np.array([[1, 3, 3, 1], [2, 3, 2, 0]])
    means = engine.to_numpy(word_means(engine.array(states), first, pieces, engine))
    for row, token in np.ndindex(2, 4):
        start, count = first[row, token], pieces[row, token]
        expected = states[row, start : start + count].mean(0) if count else np.zeros(3)
        np.testing.assert_allclose(means[row, token], expected, atol=1e-6)
