"""Character classes and normalisation, compared with `tokenizers` for every code point."""

from __future__ import annotations

import pytest
from tokenizers import normalizers, pre_tokenizers

from glassbert.text.characters import code_points
from glassbert.text.normalise import Normaliser
from glassbert.text.wordpiece import WORD, split_words

# All assigned code points; of long uniform ranges every 31st, and their borders.
LONG = [(0x3400, 0xA000), (0xAC00, 0xD800), (0xE000, 0xF900), (0x17000, 0x1B000), (0x20000, 0x110000)]
STARTS = [0, 0xA000, 0xF900, 0x1B000, 0xE0000]
ENDS = [0x3400, 0xAC00, 0x17000, 0x20000, 0xE0200]
BORDERS = [0x4DBF, 0x4DC0, 0x4DFF, 0x4E00, 0x2A6DF, 0x2A6E0, 0x2B81F, 0x2B820, 0x2B920, 0x2CEAF, 0x2CEB0, 0x2FA1F]
CODES = [code for first, last in zip(STARTS, ENDS, strict=True) for code in range(first, last)]
CODES += [code for first, last in LONG for code in range(first, last, 31)] + BORDERS + [0xFFFFD, 0x10FFFD, 0x10FFFF]
BLOCKS = [CODES[i : i + 64] for i in range(0, len(CODES), 64)]


@pytest.mark.parametrize(
    "switches",
    [(True, True, None, True), (True, False, False, False)],
)
def test_every_character_is_normalised_as_tokenizers_does(switches):
    names = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    theirs = normalizers.BertNormalizer(**dict(zip(names, switches, strict=True)))
    ours = Normaliser(*switches)
    for block in BLOCKS:
        text = "".join(f"a{chr(code)}b" for code in block)
        assert ours.text(text) == theirs.normalize_str(text), f"U+{block[0]:04X} to U+{block[-1]:04X}"


def test_every_character_separates_words_as_in_tokenizers():
    theirs = pre_tokenizers.BertPreTokenizer()
    for block in BLOCKS:
        text = " ".join(f"a{chr(code)}b" for code in block)
        assert WORD.findall(text) == [word for word, _ in theirs.pre_tokenize_str(text)], f"U+{block[0]:04X}"


def test_origins_point_into_the_original_text():
    normalised = Normaliser()("\x00É 中\u200bİ")
    assert normalised.text == "e  中 i"
    assert list(normalised.origins) == [1, 2, 3, 3, 3, 5]
    assert normalised.span(0, 1) == (1, 2)


def test_both_methods_of_normalisation_agree():
    for switches in ((True, True, None, True), (False, True, False, True), (True, False, True, False)):
        normaliser = Normaliser(*switches)
        for text in ("Ünïcödé", "a\u302e\u0323b", "\u0344\u0334x", "ΑΣ Σ", "\t x\x1c\u2003y", "한국어 각"):
            assert normaliser(text).text == normaliser.text(text)


def test_words():
    text = "don't stop—now"
    assert [text[start:end] for start, end in split_words(text)] == ["don", "'", "t", "stop", "—", "now"]
    assert code_points("41-43 61") == {0x41, 0x42, 0x43, 0x61}
