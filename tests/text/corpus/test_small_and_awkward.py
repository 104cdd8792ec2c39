"""Corpora of awkward files: a single document, small texts, other encodings, no cleaning, unclosed HTML."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from glassbert.text.corpus import build_corpus
from glassbert.text.corpus.cleaning import clean
from glassbert.text.corpus.markdown import plain_text
from glassbert.text.corpus.merging import split_document
from glassbert.text.corpus.storage import TokenizedDocuments
from tests.text.corpus.sample_corpora import stories

PARAGRAPHS = [story.replace("\n", " ") for story in stories(60)]


def build(tmp_path: Path, content: bytes | str, name: str = "a.txt", **options):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return build_corpus([path], tmp_path / "corpus", vocab_size=300, workers=1, **options)


def test_one_document_is_split_by_paragraphs(tmp_path):
    corpus = build(tmp_path, "\n".join(PARAGRAPHS), layout="file")
    train, held = corpus.split("train"), corpus.split("validation")
    assert train.documents == held.documents == 1
    assert f"the last 3 of {len(PARAGRAPHS)} paragraphs" in corpus.manifest["notes"][-1]
    shard = held.shards[0]
    first = corpus.tokenizer.decode(np.asarray(shard.tokens[: shard.sentence_ends[0]]))
    assert PARAGRAPHS[-3].lower().startswith(first[:15])
    corpus.verify()


def test_nothing_is_held_out_where_nothing_is_asked(tmp_path):
    corpus = build(tmp_path, "\n".join(PARAGRAPHS), layout="file", validation=0)
    assert corpus.split("validation").documents == 0


@pytest.mark.parametrize(
    ("sentences", "paragraphs", "cut"),
    [([3, 4, 5, 6], [2, 2], 2), ([3, 4, 5, 6], [4], 3), ([3, 4], [], 1), ([3], [1], 1)],
)
def test_where_a_document_is_split(sentences, paragraphs, cut):
    tokens = np.arange(sum(sentences))
    only = TokenizedDocuments(tokens, np.array(sentences), np.array([len(sentences)]), np.array([0]))
    first, last, notes = split_document(only, paragraphs, 0.01)
    assert first.sentence_tokens.tolist() == sentences[:cut] and last.sentence_tokens.tolist() == sentences[cut:]
    assert np.concatenate([first.tokens, last.tokens]).tolist() == tokens.tolist()
    assert bool(notes) == (cut < len(sentences))


def test_other_encodings_and_small_vocabularies_are_in_the_notes(tmp_path):
    corpus = build(tmp_path, "Größe und Café sind Wörter.\n\nEin zweiter Text ist länger.".encode("cp1252"))
    notes = corpus.manifest["notes"]
    assert "a.txt was read as cp1252" in notes[0] and "the text is small" in notes[1]
    assert corpus.vocab_size < 300
    assert corpus.manifest["counts"]["unknown_tokens"] == 0


def test_without_cleaning_nothing_is_cleaned(tmp_path):
    page = "<div><p>x</p><p>y</p><p>z</p></div>\n----\n" + "\n\n".join(["ok", "12345"]) + "\n\n" + PARAGRAPHS[0]
    corpus = build(tmp_path, page, clean=False, near_duplicates=None)
    counts = corpus.manifest["counts"]
    assert counts["documents_kept"] == counts["documents_read"] == 3
    shards = [shard for split in corpus.splits.values() for shard in split.shards]
    text = " ".join(corpus.tokenizer.decode(np.asarray(shard.tokens)) for shard in shards)
    assert "div" in text.replace(" ", "") and counts["unknown_tokens"] == 0  # the vocabulary saw the tags as well
    assert not any(corpus.manifest["cleaning"].values())


@pytest.mark.parametrize("opening", ["<nav>", "<script>", "<!-- ", "<NAV class=x>"])
def test_unclosed_blocks_cost_linear_time(opening):
    """1.5 MB; in quadratic time this test would take hours."""
    page = "<p>a story that goes on</p>\n" * 20 + f"{opening} some words\n" * 100_000
    lines, reason = clean(page, Counter())
    assert not reason and "a story that goes on" in lines and "some words" in lines[-1]


def test_closed_blocks_are_removed():
    page = "<p>one</p>" * 10 + "<nav>menu</nav><p>two</p><!-- no <p> --><style>x</style><nav>open <p>three</p>"
    lines, _ = clean(page, Counter())
    text = " ".join(lines)
    assert "two" in text and "open three" in text and not {"menu", "no", "x"} & set(text.split())


def test_unclosed_comments_in_markdown():
    assert plain_text("a <!-- gone --> b\n\n" + "<!-- open " * 100_000).startswith("a  b")


@pytest.mark.skipif(sys.platform != "linux", reason="file names of other systems are always text")
def test_a_file_name_that_is_not_utf8(tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    Path(name).write_text("\n\n".join(stories(10)))
    corpus = build_corpus([tmp_path], tmp_path / "corpus", vocab_size=100, workers=1, near_duplicates=None)
    assert corpus.manifest["sources"][0]["name"].endswith("caf\\xe9.txt")
