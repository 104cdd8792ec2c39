"""`WordPieceTokenizer` compared with `FastTokenizer`, and their common interface."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.text import FastTokenizer, Tokenizer, WordPieceTokenizer
from glassbert.text.normalise import Normaliser
from glassbert.text.wordpiece_files import as_json
from tests.text.tokenizers_for_tests import description

HAND = WordPieceTokenizer(description())
FAST = FastTokenizer(as_json(description()))
BOTH = pytest.mark.parametrize("tokenizer", [HAND, FAST], ids=["hand", "fast"])
TEXTS = [
    "",
    " ",
    "The unaffable player.",
    "the Café über Ñandú, İstanbul",
    "e\u0301 a\u0308\u0323b",
    "ﬁ ſ ß Σς ὈΔΥΣΣΕΎΣ",
    "中文the中",
    "a\x00b\x7fc\u200bd\ufffde\u00adf",
    "a\tb\nc\rd\x0be\x0cf\x85g\u2028h\u3000i",
    "😀👍🏽👩\u200d👧 play",
    "שָׁלוֹם العَرَبِيَّة",
    "play[MASK]ing [SEP][CLS] [mask] [MASK",
    "x" * 100 + " " + "x" * 101,
    "playings" * 1250,
    "é" * 101 + "!",
    "\u0958\u302e\u0323a \U0001d15e\u0323",
    "ab\u1abf\u0323 \u08d4\u0334",
]


@pytest.mark.parametrize(
    "switches", list(itertools.product([True, False], [True, False], [None, True, False], [True, False]))
)
def test_tokens_and_offsets_equal_those_of_tokenizers(switches):
    described = description(Normaliser(*switches))
    hand, fast = WordPieceTokenizer(described), FastTokenizer(as_json(described))
    for text in TEXTS:
        assert hand.encode(text) == fast.encode(text), ascii(text)
        assert hand.decode(hand.encode(text)) == fast.decode(fast.encode(text))
        ids, _ = hand.encode_ids([text])
        assert ids.tolist() == hand.encode(text, special_tokens=False).ids == fast._rust.encode(text).ids[1:-1]


def test_the_limit_of_a_word_is_counted_in_characters_after_normalisation():
    hand = WordPieceTokenizer(description(longest_word=4))
    assert hand.tokenize("éééé") == ["e", "##e", "##e", "##e"]
    assert hand.tokenize("e\u0301" * 4) == ["e", "##e", "##e", "##e"]
    assert hand.tokenize("eeeee") == ["[UNK]"]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("length", range(3, 14))
@pytest.mark.parametrize("pair", [None, "", "water", "the water plays, the water plays"])
def test_pairs_are_truncated_as_in_tokenizers(special, length, pair):
    for text in ("", "the", "un play the", "the unaffable water plays!"):
        ours = HAND.encode(text, pair, max_length=length, special_tokens=special)
        assert ours == FAST.encode(text, pair, max_length=length, special_tokens=special)
        assert len(ours) <= length


@BOTH
def test_a_pair_in_full(tokenizer: Tokenizer):
    encoding = tokenizer.encode("Plays", "the Café")
    assert encoding.tokens == ["[CLS]", "play", "##s", "[SEP]", "the", "cafe", "[SEP]"]
    assert encoding.offsets == [(0, 0), (0, 4), (4, 5), (0, 0), (0, 3), (4, 8), (0, 0)]
    assert encoding.type_ids == [0, 0, 0, 0, 1, 1, 1]
    assert encoding.word_ids == [None, 0, 0, None, 0, 1, None]
    assert encoding.special_tokens_mask == [1, 0, 0, 1, 0, 0, 1]
    assert encoding.attention_mask == [1] * 7


@BOTH
@pytest.mark.parametrize(("padding", "length"), [(True, 6), (9, 9), (2, 6)])
def test_padding(tokenizer: Tokenizer, padding, length):
    short, long = tokenizer.encode_batch(["the", "the un play the"], padding=padding)
    assert len(long) == length
    assert short.tokens[:3] == ["[CLS]", "the", "[SEP]"]
    if padding != 2:
        assert short.ids[3:] == [0] * (length - 3)
        assert short.attention_mask == [1] * 3 + [0] * (length - 3)
        assert short.special_tokens_mask == [1, 0, 1] + [1] * (length - 3)


@BOTH
def test_a_batch_for_a_model(tokenizer: Tokenizer):
    batch = tokenizer.batch(["the", "play the water"], ["un", "un"], max_length=6)
    assert {name: array.shape for name, array in batch.items()} == dict.fromkeys(
        ("input_ids", "attention_mask", "token_type_ids"), (2, 6)
    )
    assert batch["attention_mask"].sum(1).tolist() == [5, 6]
    assert batch["token_type_ids"][0].tolist() == [0, 0, 0, 1, 1, 0]


@BOTH
def test_decoding(tokenizer: Tokenizer):
    text = "the unaffable players, don't play!"
    assert tokenizer.decode(tokenizer.encode(text)) == "the unaffable players, don ' t play!"
    assert tokenizer.decode(np.array(tokenizer.encode("un[MASK]").ids), False) == "[CLS] un [MASK] [SEP]"
    assert tokenizer.decode([tokenizer.vocabulary["##ing"], tokenizer.vocabulary["##s"]]) == "##ings"
    assert tokenizer.decode([]) == ""


@BOTH
def test_the_vocabulary(tokenizer: Tokenizer):
    assert (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert tokenizer.vocab_size == len(tokenizer) == len(tokenizer.vocabulary) == len(tokenizer.continues_word)
    assert tokenizer.token_to_id("the") == tokenizer.vocabulary["the"] and tokenizer.token_to_id("nope") is None
    assert tokenizer.id_to_token(4) == "[MASK]"
    assert tokenizer.continues_word[tokenizer.vocabulary["##ing"]] and not tokenizer.continues_word[4]
    assert int(tokenizer.continues_word.sum()) == sum(token.startswith("##") for token in tokenizer.vocabulary)
    assert tokenizer.fingerprint == HAND.fingerprint


def test_the_fingerprint_differs_between_tokenizers():
    prints = {
        WordPieceTokenizer(described).fingerprint
        for described in (
            description(),
            description(Normaliser(lowercase=False)),
            description(Normaliser(strip_accents=False)),
            description(longest_word=99),
        )
    }
    assert len(prints) == 4
    assert WordPieceTokenizer(description(Normaliser(strip_accents=True))).fingerprint == HAND.fingerprint


@BOTH
def test_a_tokenizer_can_be_pickled(tokenizer: Tokenizer):
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.fingerprint == tokenizer.fingerprint
    assert copy.encode("the unaffable") == tokenizer.encode("the unaffable")


@BOTH
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.encode(7), r"texts\[0\] must be a string, got int"),
        (lambda t: t.encode("a", b"b"), r"pairs\[0\] must be a string, got bytes"),
        (lambda t: t.encode_batch("the"), "list of strings, got one string"),
        (lambda t: t.encode_batch(["the"], ["a", "b"]), "the same length, got 1 and 2"),
        (
            lambda t: t.encode_batch(["ok", "ab\ud800c"]),
            r"texts\[1\] has half a surrogate pair \(U\+D800\) at character 2",
        ),
        (
            lambda t: t.encode_ids(["ok", "so far\udc00"]),
            r"texts\[1\] has half a surrogate pair \(U\+DC00\) at character 6",
        ),
        (lambda t: t.encode_ids(["ok", None]), r"texts\[1\] must be a string, got NoneType"),
        (lambda t: t.encode_ids("the"), "list of strings, got one string"),
        (lambda t: t.encode("the", "un", max_length=2), "too small for the"),
        (lambda t: t.decode([10**6]), "1000000 is not an id of this tokenizer"),
        (lambda t: t.decode([-1]), "-1 is not an id"),
    ],
)
def test_bad_input(tokenizer: Tokenizer, call, message):
    with pytest.raises(TextError, match=message):
        call(tokenizer)
