"""How a word fell apart, told in words; and what a vocabulary is made of."""

from __future__ import annotations

from glassbert.text import FastTokenizer, WordPieceTokenizer
from glassbert.text.anatomy import dissect
from glassbert.text.explaining import explain
from glassbert.text.normalise import Normaliser
from glassbert.text.wordpiece_files import Description, as_json
from tests.text.tokenizers_for_tests import description, unigram_folder

HAND = WordPieceTokenizer(description())


def test_the_stories_give_the_tokens_of_the_text():
    text = "The unaffable Café [MASK] snow☃man " + "x" * 101
    stories = explain(HAND, text)
    assert [piece.token for story in stories for piece in story.pieces] == HAND.tokenize(text)
    assert [story.written for story in stories] == text.split()


def test_what_was_tried_and_what_matched():
    (story,) = explain(HAND, "unaffable")
    assert [piece.token for piece in story.pieces] == ["un", "##aff", "##able"]
    assert [step.start for step in story.steps] == [0, 2, 5]
    first, second, third = story.steps
    assert first.tried == ["unaffa", "unaff", "unaf", "una"]  # the longest entry, [MASK], has six characters
    assert second.tried == ["##affabl", "##affab", "##affa"] and third.tried == []
    assert story.reason == "un after unaffa, unaff, unaf and 1 more; ##aff after ##affabl, ##affab, ##affa; ##able"


def test_why_a_word_is_unknown():
    whole, stuck, too_long, special = explain(HAND, f"the snow☃man {'x' * 101} [SEP]")
    assert whole.reason == "in the vocabulary as a whole" and not whole.is_unknown
    assert stuck.is_unknown and stuck.reason.startswith("nothing fits at '☃': ##☃man, ##☃ma, ##☃m and 1 more")
    assert too_long.is_unknown and "101 characters" in too_long.reason
    assert special.reason == "a special token, taken as it is written" and not special.is_unknown


def test_the_make_up_of_a_vocabulary():
    extra = ("[unused0]", "Upper", "##.", "two words")
    described = Description((*description().tokens, *extra))
    anatomy = dissect(WordPieceTokenizer(described), described.normaliser)
    assert anatomy.entries == len(described.tokens)
    assert anatomy.special["mask"] == ("[MASK]", 4)
    assert anatomy.continuations == sum(token.startswith("##") for token in described.tokens)
    assert anatomy.reserved == 1
    assert {"Upper", "##.", "two words", "café", "A"} <= set(anatomy.unreachable)
    assert not {"the", "##ing", ".", "中", "[unused0]"} & set(anatomy.unreachable)
    assert anatomy.characters["Latin"] >= 26 and anatomy.characters["CJK"] == 2
    assert "😀" in anatomy.only_first and "a" not in anatomy.only_first and "." not in anatomy.only_first
    assert anatomy.longest[0] == "two words"
    assert sum(anatomy.lengths.values()) == anatomy.entries - 5 - 1


def test_cased_entries_are_reachable_where_case_is_kept():
    described = description(Normaliser(lowercase=False))
    unreachable = dissect(FastTokenizer(as_json(described)), described.normaliser).unreachable
    assert "A" not in unreachable and "café" not in unreachable


def test_other_kinds_have_an_anatomy_too(tmp_path):
    anatomy = dissect(FastTokenizer.load(unigram_folder(tmp_path / "other")))
    assert anatomy.unreachable == [] and anatomy.continuations > 0
    assert anatomy.special["pad"] == ("[PAD]", 0)
