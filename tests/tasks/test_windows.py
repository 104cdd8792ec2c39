"""Windows cover every token; words align with their pieces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.errors import InputError
from glassbert.ops import IGNORED
from glassbert.tasks import align_words, cut_windows
from glassbert.tasks.windows import window_starts
from glassbert.text import WordPieceTokenizer

TEXTS = ["the cat sat on the mat", "dogs and cats live here", "a longer word unbelievable stands here too"]
TOKENIZER = WordPieceTokenizer.train(TEXTS * 3, vocab_size=75)
sentence = st.lists(
    st.sampled_from(["the", "cat", "unbelievable", "zzz", "don't", "\u200b", "co-op", "é", "mats"]), max_size=30
)


@given(st.integers(0, 200), st.integers(1, 40), st.integers(1, 40))
def test_windows_cover_everything(tokens, capacity, stride):
    stride = min(stride, capacity)
    starts = window_starts(tokens, capacity, stride)
    covered = {index for start in starts for index in range(start, min(start + capacity, tokens))}
    assert covered == set(range(tokens))
    assert len(starts) == 1 or starts[-2] + capacity < tokens  # no window is superfluous
    assert starts == sorted(set(starts))


def test_windows_of_texts():
    windows = cut_windows(TOKENIZER, [*TEXTS, ""], length=8, stride=3)
    assert windows.owners.tolist() == sorted(windows.owners) and set(windows.owners) == {0, 1, 2, 3}
    for encoding in windows.encodings:
        assert len(encoding) <= 8
        assert encoding.tokens[0] == "[CLS]" and encoding.tokens[-1] == "[SEP]"
    for row, text in enumerate(TEXTS):
        whole = TOKENIZER.encode(text, special_tokens=False)
        found = {}
        for window in np.flatnonzero(windows.owners == row):
            inner = windows.encodings[window].ids[1:-1]
            found.update({int(windows.starts[window]) + index: id for index, id in enumerate(inner)})
        assert [found[index] for index in range(len(whole))] == whole.ids
    short = cut_windows(TOKENIZER, TEXTS[:1], length=64)
    assert short.encodings == [TOKENIZER.encode(TEXTS[0])]
    assert cut_windows(TOKENIZER, [TEXTS[2]], length=6, max_windows=2).counts.tolist() == [2]


def test_windows_of_pairs():
    short = cut_windows(TOKENIZER, ["the cat"], ["the mat"], length=64)
    assert short.encodings == [TOKENIZER.encode("the cat", "the mat")]
    windows = cut_windows(TOKENIZER, ["the cat"], [TEXTS[2]], length=12)
    first = TOKENIZER.encode("the cat", special_tokens=False)
    for encoding in windows.encodings:
        assert len(encoding) <= 12 and encoding.tokens[1 : 1 + len(first)] == first.tokens
        assert encoding.type_ids[1 + len(first)] == 0 and encoding.type_ids[-1] == 1
    assert len(windows) > 1
    no_second = cut_windows(TOKENIZER, [TEXTS[2]], [""], length=9)  # a first text longer than the window
    assert len(no_second) == 1 and len(no_second.encodings[0]) <= 9
    both_long = cut_windows(TOKENIZER, [TEXTS[2]], [TEXTS[1]], length=9)
    assert all(len(encoding) <= 9 for encoding in both_long.encodings)


def test_combine_windows():
    windows = cut_windows(TOKENIZER, [*TEXTS, ""], length=8, stride=3)
    logits = np.random.default_rng(0).normal(size=(len(windows), 2))
    mean, top = windows.combine(logits), windows.combine(logits, "max")
    for row in range(4):
        assert np.allclose(mean[row], logits[windows.owners == row].mean(0))
        assert np.allclose(top[row], logits[windows.owners == row].max(0))
    with pytest.raises(InputError, match="windows, but values for 1"):
        windows.combine(logits[:1])


def test_bad_windows():
    with pytest.raises(InputError, match="length is too small"):
        cut_windows(TOKENIZER, TEXTS, length=2)
    with pytest.raises(InputError, match="stride must be between 1 and 6"):
        cut_windows(TOKENIZER, TEXTS, length=8, stride=7)
    with pytest.raises(InputError, match="3 texts, but 1 second texts"):
        cut_windows(TOKENIZER, TEXTS, ["one"], length=8)


@given(st.lists(sentence, min_size=1, max_size=4), st.integers(3, 20), st.integers(1, 18))
@settings(max_examples=100, deadline=None)
def test_word_labels_round_trip(sentences, length, stride):
    """Numbers of words, set on pieces and read back, are the same for any window size."""
    aligned = align_words(TOKENIZER, sentences, length=length, stride=min(stride, length - 2))
    tags = [np.arange(len(words)) + 7 for words in sentences]
    labels = aligned.labels(tags)
    lost = set(aligned.lost)
    for row, words in enumerate(sentences):
        pieces = [len(TOKENIZER.encode(word, special_tokens=False)) for word in words]
        assert {word for sentence, word in lost if sentence == row} == {w for w, n in enumerate(pieces) if not n}
    read = aligned.to_words(labels, lost=-1)
    for row, words in enumerate(sentences):
        expected = [-1 if (row, word) in lost else word + 7 for word in range(len(words))]
        assert read[row].tolist() == expected
    for window, label in enumerate(labels):
        labelled = np.flatnonzero(label != IGNORED)
        tokens = aligned.windows.encodings[window].tokens
        assert not any(tokens[piece].startswith("##") or tokens[piece] in ("[CLS]", "[SEP]") for piece in labelled)


def test_to_words_uses_the_window_with_the_most_context():
    aligned = align_words(TOKENIZER, [["the", "cat"] * 8], length=8, stride=3)
    values = [np.full(len(encoding), window) for window, encoding in enumerate(aligned.windows.encodings)]
    chosen = aligned.to_words(values)[0].tolist()
    candidates: dict[int, list[tuple[int, int]]] = {}
    for window, (encoding, firsts) in enumerate(zip(aligned.windows.encodings, aligned.firsts, strict=True)):
        for word, piece in firsts.tolist():
            candidates.setdefault(word, []).append((-min(piece, len(encoding) - 1 - piece), window))
    assert chosen == [min(candidates[word])[1] for word in range(16)]
    assert any(len(found) > 1 and min(found)[1] < max(window for _, window in found) for found in candidates.values())


def test_byte_level_pieces_that_begin_with_a_space():
    """A piece whose offsets include the space before a word belongs to that word."""
    from tokenizers import Tokenizer as Rust
    from tokenizers import models, pre_tokenizers, trainers

    rust = Rust(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    rust.train_from_iterator(
        TEXTS * 3, trainers.BpeTrainer(vocab_size=300, special_tokens=names, initial_alphabet=alphabet)
    )

    class ByteLevel(WordPieceTokenizer):
        def __init__(self):
            self.vocabulary = rust.get_vocab()
            self.special_names = tuple(names)

        def encode_batch(self, texts, pairs=None, **options):
            from glassbert.text.encoding import Encoding

            rows = [rust.encode(text) for text in texts]
            return [
                Encoding(r.ids, r.tokens, r.offsets, r.type_ids, r.attention_mask, r.special_tokens_mask, r.word_ids)
                for r in rows
            ]

    words = ["the", "unbelievable", "cat", "é", "sat"]
    aligned = align_words(ByteLevel(), [words], length=64)
    text, offsets = " ".join(words), aligned.windows.encodings[0].offsets
    assert aligned.firsts[0][:, 0].tolist() == [0, 1, 2, 3, 4]
    for word, piece in aligned.firsts[0]:
        start, end = offsets[piece]
        assert words[word].startswith(text[start:end].strip()) and text[start:end].strip()
    assert any(text[start:end].startswith(" ") and end - start > 1 for start, end in offsets)
