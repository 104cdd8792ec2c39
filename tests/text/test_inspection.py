"""Traces of how words are split, and summaries of vocabularies."""

from __future__ import annotations

from glassbert.text import FastTokenizer, WordPieceTokenizer
from glassbert.text.inspection import summarise_vocabulary, trace_words
from glassbert.text.normalise import Normaliser
from glassbert.text.wordpiece_files import Description, as_json
from tests.text.tokenizers_for_tests import description, unigram_folder

HAND = WordPieceTokenizer(description())


def test_the_traces_give_the_tokens_of_the_text():
    text = "The unaffable Café [MASK] snow☃man " + "x" * 101
    traces = trace_words(HAND, text)
    assert [piece.token for trace in traces for piece in trace.pieces] == HAND.tokenize(text)
    assert [trace.written for trace in traces] == text.split()


def test_candidates_and_matches():
    (trace,) = trace_words(HAND, "unaffable")
    assert [piece.token for piece in trace.pieces] == ["un", "##aff", "##able"]
    assert [step.start for step in trace.steps] == [0, 2, 5]
    first, second, third = trace.steps
    assert first.tried == ["unaffa", "unaff", "unaf", "una"]  # the longest entry, [MASK], has six characters
    assert second.tried == ["##affabl", "##affab", "##affa"] and third.tried == []
    assert trace.reason == "un after unaffa, unaff, unaf and 1 more; ##aff after ##affabl, ##affab, ##affa; ##able"


def test_why_a_word_is_unknown():
    whole, stuck, too_long, special = trace_words(HAND, f"the snow☃man {'x' * 101} [SEP]")
    assert whole.reason == "the whole word is in the vocabulary" and not whole.is_unknown
    assert stuck.is_unknown and stuck.reason.startswith("no match at '☃': ##☃man, ##☃ma, ##☃m and 1 more")
    assert too_long.is_unknown and "101 characters" in too_long.reason
    assert special.reason == "a special token, not split" and not special.is_unknown


def test_summary_of_a_vocabulary():
    extra = ("[unused0]", "Upper", "##.", "two words")
    described = Description((*description().tokens, *extra))
    summary = summarise_vocabulary(WordPieceTokenizer(described), described.normaliser)
    assert summary.entries == len(described.tokens)
    assert summary.special["mask"] == ("[MASK]", 4)
    assert summary.continuations == sum(token.startswith("##") for token in described.tokens)
    assert summary.reserved == 1
    assert {"Upper", "##.", "two words", "café", "A"} <= set(summary.unreachable)
    assert not {"the", "##ing", ".", "中", "[unused0]"} & set(summary.unreachable)
    assert summary.characters["Latin"] >= 26 and summary.characters["CJK"] == 2
    assert "😀" in summary.only_first and "a" not in summary.only_first and "." not in summary.only_first
    assert summary.longest[0] == "two words"
    assert sum(summary.lengths.values()) == summary.entries - 5 - 1


def test_cased_entries_are_reachable_where_case_is_kept():
    described = description(Normaliser(lowercase=False))
    unreachable = summarise_vocabulary(FastTokenizer(as_json(described)), described.normaliser).unreachable
    assert "A" not in unreachable and "café" not in unreachable


def test_summary_of_other_kinds(tmp_path):
    summary = summarise_vocabulary(FastTokenizer.load(unigram_folder(tmp_path / "other")))
    assert summary.unreachable == [] and summary.continuations > 0
    assert summary.special["pad"] == ("[PAD]", 0)
