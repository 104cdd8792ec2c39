"""Any Unicode string gives the same tokens as `tokenizers`. GLASSBERT_EXAMPLES sets the number of examples."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.text import FastTokenizer, WordPieceTokenizer, load_tokenizer
from glassbert.text.characters import CONTROLS, MARKS, SPACING_MARKS
from glassbert.text.wordpiece_files import as_json
from tests.text.tokenizers_for_tests import description

EXAMPLES = int(os.environ.get("GLASSBERT_EXAMPLES", "150"))
FOLDER = os.environ.get("GLASSBERT_TOKENIZER")  # test another WordPiece tokenizer
HAND = WordPieceTokenizer.load(FOLDER) if FOLDER else WordPieceTokenizer(description())
FAST = load_tokenizer(FOLDER) if FOLDER else FastTokenizer(as_json(description()))


def some(codes) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(map(chr, codes)))


characters = st.one_of(
    st.characters(exclude_categories=("Cs",)),
    st.sampled_from("abcdeinstué .,'-[]"),
    some(MARKS),
    some(SPACING_MARKS),
    some(code for code in CONTROLS if code < 0xE000),
    some([*range(0x590, 0x700), *range(0x1F300, 0x1F650), 0x200D, 0xFE0F, 0x0130, 0x03A3]),
    some([*range(0xC0, 0x250), *range(0x1E00, 0x2000), *range(0x4E00, 0x4E40), *range(0xAC00, 0xAC40)]),
)
words = st.sampled_from(["[MASK]", "[SEP]", "[UNK]", "[mask]", "playing", "unaffable", "x" * 100, "y" * 101])
long_words = st.builds(lambda part, tail: (part * 10_000)[:10_000] + tail, st.text(characters, min_size=1), characters)
texts = st.one_of(
    st.text(characters, max_size=40),
    st.lists(st.one_of(st.text(characters, max_size=6), words, st.just(" ")), max_size=12).map("".join),
)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(texts)
def test_any_text(text):
    ours = HAND.encode(text)
    assert ours == FAST.encode(text)
    ids, counts = HAND.encode_ids([text, text])
    assert ids.tolist() == ours.ids[1:-1] * 2 and counts.tolist() == [len(ours) - 2] * 2
    decoded = HAND.decode(ours)
    assert decoded == FAST.decode(ours)
    assert HAND.decode(HAND.encode(decoded)) == decoded, "not stable"


@settings(max_examples=max(10, EXAMPLES // 100), deadline=None, derandomize=True)
@given(long_words)
def test_words_of_ten_thousand_characters(text):
    assert HAND.encode(text) == FAST.encode(text)
    assert HAND.encode_ids([text])[0].tolist() == HAND.encode(text).ids[1:-1]


@settings(max_examples=max(20, EXAMPLES // 10), deadline=None, derandomize=True)
@given(texts, texts, st.integers(3, 30))
def test_any_pair_and_length(text, pair, length):
    assert HAND.encode(text, pair, max_length=length) == FAST.encode(text, pair, max_length=length)


@settings(max_examples=max(50, EXAMPLES // 10), deadline=None, derandomize=True)
@given(texts)
def test_offsets_are_sorted_and_inside_the_text(text):
    offsets = HAND.encode(text, special_tokens=False).offsets
    assert all(0 <= start < end <= len(text) for start, end in offsets)
    assert offsets == sorted(offsets)
