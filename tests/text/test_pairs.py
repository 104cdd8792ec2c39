"""Sentence pairs: the origin of A and B, and the labels."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.errors import ConfigError, TextError
from glassbert.text.batches import Batch
from glassbert.text.corpus.reader import Corpus, Split
from glassbert.text.masking import IGNORED
from glassbert.text.pairs import TASKS, PairDataGenerator
from tests.text.synthetic_corpus import CLS, PAD, SEP, SPECIAL, corpus, numbered, tokenizer

FIRST = 10
LENGTH = 40


def numbered_corpus(shards: list[list[list[int]]]) -> tuple[Corpus, Any]:
    """A corpus whose tokens are FIRST, FIRST + 1, ..., so that a token gives its position, and its tokenizer."""
    split = numbered(shards)
    shifted = replace(split, shards=[replace(one, tokens=one.tokens + FIRST) for one in split.shards])
    data = replace(corpus(), splits={"train": shifted, "validation": shifted})
    data_tokenizer = tokenizer()
    data_tokenizer.vocab_size = FIRST + split.tokens
    data_tokenizer.continues_word = np.zeros(data_tokenizer.vocab_size, bool)
    return data, data_tokenizer


def prose(seed: int = 0) -> list[list[list[int]]]:
    draw = np.random.default_rng(seed)
    return [[draw.integers(3, 15, draw.integers(1, 20)).tolist() for _ in range(60)] for _ in range(2)]


def pairs(batch: Batch) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """A, B and the label of every row; checks the layout of the row."""
    found = []
    original = np.where(batch.labels == IGNORED, batch.input_ids, batch.labels)
    assert batch.token_type_ids is not None
    assert batch.pair_labels is not None
    for row, segments, types, positions, label in zip(
        original, batch.segment_ids, batch.token_type_ids, batch.position_ids, batch.pair_labels, strict=True
    ):
        real = int((segments == 1).sum())
        assert (segments[:real] == 1).all()
        assert (row[real:] == PAD).all()
        assert (segments[real:] == 0).all()
        assert (types[real:] == 0).all()
        assert np.array_equal(positions[:real], np.arange(real))
        middle, end = np.flatnonzero(row == SEP)
        assert row[0] == CLS
        assert end == real - 1
        assert np.array_equal(types[:real], np.arange(real) > middle)
        found.append((row[1:middle] - FIRST, row[middle + 1 : end] - FIRST, int(label)))
    return found


def borders(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """The ends of sentences and documents in the tokens of the split."""
    sentences, documents, before = [], [], 0
    for one in split.shards:
        sentences.append(before + one.sentence_ends.astype(int))
        documents.append(before + one.document_token_ends.astype(int))
        before += len(one.tokens)
    return np.concatenate(sentences), np.concatenate(documents)


@pytest.mark.parametrize("task", TASKS)
def test_pairs_are_what_their_labels_say(task):
    data, data_tokenizer = numbered_corpus(prose())
    stream = PairDataGenerator(data, data_tokenizer, LENGTH, 16, task=task)
    sentences, documents = borders(data.split("train"))
    ends = {0, *sentences.tolist()}
    labels, cut = [], 0
    for epoch in range(2):
        for batch in stream.epoch(epoch):
            for a, b, label in pairs(batch):
                labels.append(label)
                for part in (a, b):
                    assert np.array_equal(part, np.arange(part[0], part[-1] + 1)), "a part is contiguous"
                    assert int(part[0]) in ends
                if int(a[-1]) + 1 not in ends or int(b[-1]) + 1 not in ends:
                    assert len(a) + len(b) == LENGTH - 3
                    assert (task, label) == ("next", 1), "only sentences of other documents may be cut"
                    cut += 1
                of_a, of_b = np.searchsorted(documents, [a[0], b[0]], side="right")
                assert np.searchsorted(documents, b[-1], side="right") == of_b
                if label == 0:
                    assert b[0] == a[-1] + 1
                    assert of_a == of_b
                elif task == "order":
                    assert a[0] == b[-1] + 1
                    assert of_a == of_b
                else:
                    assert of_a != of_b
    assert np.mean(labels) == pytest.approx(0.5, abs=0.08)
    assert cut < 0.03 * len(labels)


@pytest.mark.parametrize("task", TASKS)
def test_the_length_of_a_row_does_not_reveal_the_label(task):
    documents = [np.random.default_rng(i).integers(3, 15, 60).tolist() for i in range(120)]
    data, data_tokenizer = numbered_corpus([documents])
    lengths: dict[int, list[int]] = {0: [], 1: []}
    for batch in PairDataGenerator(data, data_tokenizer, LENGTH, 32, task=task):
        for a, b, label in pairs(batch):
            lengths[label].append(len(a) + len(b))
    assert np.mean(lengths[0]) == pytest.approx(np.mean(lengths[1]), abs=0.7)
    assert np.std(lengths[0]) == pytest.approx(np.std(lengths[1]), abs=1.0)


def test_every_neighbouring_pair_is_used_once_an_epoch():
    data, data_tokenizer = numbered_corpus(prose(3))
    stream = PairDataGenerator(data, data_tokenizer, LENGTH, 16, task="order", keep_last=True)
    seen = np.concatenate([np.concatenate([a, b]) for batch in stream for a, b, _ in pairs(batch)])
    assert len(np.unique(seen)) == len(seen), "no token comes twice"
    assert len(seen) > 0.8 * data.split("train").tokens


@given(st.integers(0, 2), st.integers(0, 8), st.integers(0, 8), st.sampled_from(TASKS))
@settings(deadline=None)
def test_a_part_of_a_batch_is_that_part_of_the_whole(epoch, begin, end, task):
    part = slice(min(begin, end), max(begin, end))
    whole, alone = STREAMS[task].batch(epoch, 2).rows(part), STREAMS[task].batch(epoch, 2, rows=part)
    for field in fields(Batch):
        assert np.array_equal(getattr(whole, field.name), getattr(alone, field.name))


STREAMS = {task: PairDataGenerator(corpus(), tokenizer(), LENGTH, 8, task=task) for task in TASKS}


def test_pairs_are_masked_and_differ_between_epochs():
    stream = STREAMS["order"]
    batch = stream.batch(0, 0)
    assert (batch.labels != IGNORED).any(1).all()
    assert not (batch.labels[batch.labels != IGNORED] < len(SPECIAL)).any()
    assert not np.array_equal(stream.batch(0, 0).input_ids, stream.batch(1, 0).input_ids)
    assert "pair_labels" not in batch.as_inputs()
    assert "token_type_ids" in batch.as_inputs()


def test_bad_input():
    data, data_tokenizer = numbered_corpus([[[5, 6, 7, 5]]])
    with pytest.raises(TextError, match="only one document"):
        PairDataGenerator(data, data_tokenizer, LENGTH, 1, task="next")
    assert len(PairDataGenerator(data, data_tokenizer, LENGTH, 1, task="order")) == 1
    data, data_tokenizer = numbered_corpus([[[5], [6], [7]]])
    with pytest.raises(TextError, match="no two adjacent sentences"):
        PairDataGenerator(data, data_tokenizer, LENGTH, 1)
    with pytest.raises(ConfigError, match="next, order"):
        PairDataGenerator(data, data_tokenizer, LENGTH, 1, task="previous")
    with pytest.raises(ConfigError, match="max_seq_length must be at least 5"):
        PairDataGenerator(data, data_tokenizer, 4, 1)
