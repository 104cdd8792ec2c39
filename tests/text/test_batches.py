"""Batches: the contents of rows, and that batches are a pure function of seed, epoch and index."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert import BertConfig, BertWithHead
from glassbert.errors import ConfigError, TextError
from glassbert.models.inputs import positions_in_segments
from glassbert.text.batches import Batch, RowReader
from glassbert.text.generator import MLMDataGenerator, prefetch
from glassbert.text.masking import IGNORED, Masking
from glassbert.text.packing import PACKINGS, plan_rows
from tests.text.synthetic_corpus import CLS, PAD, SEP, SPECIAL, VOCABULARY, corpus, numbered, tokenizer

FIRST = 10  # numbered tokens are ids from here on, above the special tokens


def same(one: Batch, other: Batch) -> bool:
    pairs = ((getattr(one, field.name), getattr(other, field.name)) for field in fields(Batch))
    return all((a is None and b is None) or np.array_equal(a, b) for a, b in pairs)


def generator(data: Any = None, length: int = 32, rows: int = 8, **options: Any) -> MLMDataGenerator:
    return MLMDataGenerator(data or corpus(), tokenizer(), length, rows, **options)


# ---- rows ------------------------------------------------------------------------------------------------------------

DOCUMENTS = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=8)


@given(st.lists(DOCUMENTS, min_size=1, max_size=3), st.integers(3, 40), st.sampled_from(PACKINGS), st.randoms())
@settings(deadline=None)
def test_rows_read_back_as_the_text(shards, length, packing, random):
    split = numbered(shards)
    shifted = [replace(shard, tokens=shard.tokens + FIRST) for shard in split.shards]
    plan = plan_rows(split, length, packing)
    rows = list(range(len(plan)))
    random.shuffle(rows)
    read = RowReader(replace(split, shards=shifted), plan, CLS, SEP, PAD)
    ids, segments, positions = read(np.array(rows))
    assert all(array.shape == (len(plan), length) and array.dtype == np.int32 for array in (ids, segments, positions))
    assert np.array_equal(segments == 0, ids == PAD)
    assert np.array_equal(positions, positions_in_segments(segments))
    found = []
    for row, row_segments in zip(ids, segments, strict=True):
        count = row_segments.max()
        assert np.array_equal(np.unique(row_segments[row_segments > 0]), np.arange(1, count + 1))
        assert (np.diff(row_segments[row_segments > 0]) >= 0).all()
        assert (row_segments[np.argmin(row_segments > 0) :] == 0).all() or row_segments.all(), "padding comes last"
        for segment in range(1, count + 1):
            tokens = row[row_segments == segment]
            assert tokens[0] == CLS
            assert tokens[-1] == SEP
            assert np.array_equal(np.diff(tokens[1:-1]), np.ones(len(tokens) - 3)), "a segment is contiguous"
            found.append(tokens[1:-1])
    assert np.array_equal(np.sort(np.concatenate(found)), FIRST + np.arange(split.tokens))


def test_no_row_is_read_as_nothing():
    made = generator().batch(0, 0, rows=slice(0, 0))
    assert made.input_ids.shape == (0, 32)


# ---- the stream ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 3), st.integers(0, 8), st.integers(0, 8), st.sampled_from([None, 0.4]))
@settings(deadline=None)
def test_a_part_of_a_batch_is_that_part_of_the_whole(epoch, begin, end, rate):
    some_rows = slice(min(begin, end), max(begin, end))
    whole = STREAM.batch(epoch, 3, mask_rate=rate)
    assert same(STREAM.batch(epoch, 3, rows=some_rows, mask_rate=rate), whole.rows(some_rows))


STREAM = generator()


def test_rows_and_masks_do_not_depend_on_the_batch_size():
    small, large = generator(rows=4), generator(rows=8)
    for index in range(5):
        halves = [small.batch(2, 2 * index), small.batch(2, 2 * index + 1)]
        whole = large.batch(2, index)
        assert same(halves[0], whole.rows(slice(0, 4)))
        assert same(halves[1], whole.rows(slice(4, 8)))


def test_the_same_stream_from_another_object_and_by_step():
    one, other = generator(seed=5), generator(seed=5)
    steps = [0, len(one) - 1, len(one), 2 * len(one) + 3]
    for step in reversed(steps):
        assert same(one.at(step), other.batch(step // len(one), step % len(one)))
    assert not same(one.at(0), generator(seed=6).at(0))
    assert [same(a, b) for a, b in zip(one, one.epoch(0), strict=True)] == [True] * len(one)


def test_epochs_differ_in_order_and_masks_and_hold_the_same_text():
    stream = generator(rows=1)

    def originals(epoch: int) -> list[bytes]:
        batches = list(stream.epoch(epoch))
        return [np.where(b.labels == IGNORED, b.input_ids, b.labels).tobytes() for b in batches]

    first, second = originals(0), originals(1)
    assert first != second
    assert sorted(first) == sorted(second)
    exact = generator(packing="tokens", rows=16)  # nearly all rows are laid out alike, so only the draw differs
    one, other = (exact.batch(epoch, 0).labels != IGNORED for epoch in (0, 1))
    assert (one == other).all(1).sum() <= 1


def test_the_rows_left_over():
    data = corpus()
    rows = len(generator(data, rows=1))
    train = generator(data, rows=rows - 3)
    assert len(train) == 1
    assert len(train.batch(0, 0)) == rows - 3
    whole = generator(data, rows=rows - 3, keep_last=True)
    assert [len(batch) for batch in whole] == [rows - 3, 3]
    held_out = generator(data, rows=10, split="validation")
    assert sum(len(batch) for batch in held_out) == len(held_out.plan)
    assert len(generator(data, rows=10_000, split="validation")) == 1


def test_sources_of_held_out_text():
    data = corpus()
    both = generator(data, split="validation")
    parts = [generator(data, split="validation", sources=[name]) for name in ("novels", "texts/letters.txt")]
    assert sum(part.plan.tokens for part in parts) == both.plan.tokens
    assert generator(data, split="validation", sources=[0, "letters.txt"]).plan.tokens == both.plan.tokens
    with pytest.raises(TextError, match=r"no source 'poems'; its sources are texts/novels\.txt\.xz, texts/let"):
        generator(data, sources=["poems"])


def test_masking_settings():
    stream = generator(masking=Masking(rate=0.5, whole_words=True))
    batch = stream.batch(0, 0)
    maskable = (np.where(batch.labels == IGNORED, batch.input_ids, batch.labels) >= len(SPECIAL)).sum()
    assert (batch.labels != IGNORED).sum() / maskable == pytest.approx(0.5, abs=0.05)
    other_rate = stream.batch(0, 0, mask_rate=0.1)
    assert (other_rate.labels != IGNORED).sum() / maskable == pytest.approx(0.1, abs=0.03)


def test_a_model_takes_a_batch():
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    model = BertWithHead(config, head_type="mlm", engine="numpy")
    batch = generator().batch(0, 0)
    assert batch.tokens > 0.9 * batch.input_ids.size
    loss, _ = model.loss(**batch.as_inputs())
    assert float(loss) == pytest.approx(np.log(VOCABULARY), rel=0.1)


def test_bad_input(tmp_path: Path):
    with pytest.raises(TextError, match=r"fewer than a batch of 100000: use a larger corpus"):
        generator(rows=100_000)
    with pytest.raises(TextError, match="was built with another tokenizer"):
        MLMDataGenerator(corpus(), tokenizer("b" * 64), 32, 8)
    with pytest.raises(TextError, match="there is no corpus"):
        generator(tmp_path / "missing")
    with pytest.raises(TextError, match="'test'"):
        generator(split="test")
    with pytest.raises(ConfigError, match="batch_size must be at least 1"):
        generator(rows=0)
    with pytest.raises(ConfigError, match="sentences, tokens"):
        generator(packing="words")
    with pytest.raises(ConfigError, match="masking rate"):
        generator().batch(0, 0, mask_rate=0.0)
    for epoch, index in ((0, -1), (0, 10_000), (-1, 0)):
        with pytest.raises(IndexError, match="does not exist; an epoch has 0 to"):
            generator().batch(epoch, index)


# ---- plans on disk ---------------------------------------------------------------------------------------------------


def plan_files(folder: Path) -> list[Path]:
    return sorted((folder / "plans").glob("*"))


def test_a_plan_is_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = generator(corpus(tmp_path))
    assert {path.suffix for path in plan_files(tmp_path)} == {".npy", ".json"}
    monkeypatch.setattr("glassbert.text.plan_cache.plan_rows", None)  # planning again would raise
    again = generator(corpus(tmp_path))
    assert again.plan.files
    assert same(first.batch(1, 2), again.batch(1, 2))


@pytest.mark.parametrize("damage", ["cut", "altered", "gone", "nonsense"])
def test_a_damaged_plan_is_computed_again(tmp_path: Path, damage: str):
    first = generator(corpus(tmp_path))
    for path in plan_files(tmp_path):
        content = path.read_bytes()
        if damage == "gone" and ".lengths." in path.name:
            path.unlink()
        elif damage == "nonsense" and path.suffix == ".json":
            path.write_text("[1, 2")
        elif damage == "cut":
            path.write_bytes(content[:-1])
        elif damage == "altered" and ".starts." in path.name:
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for name in ("starts", "lengths", "row_ends"):
        assert np.array_equal(getattr(generator(corpus(tmp_path)).plan, name), getattr(first.plan, name))
    assert generator(corpus(tmp_path)).plan.files, "and kept again"


def test_other_text_or_settings_have_another_plan(tmp_path: Path):
    options: list[dict[str, Any]] = [{}, {"length": 40}, {"packing": "tokens"}, {"sources": [1]}]
    for count, option in enumerate(options, 1):
        generator(corpus(tmp_path), **option)
        assert len(plan_files(tmp_path)) == 4 * count
    other = corpus(tmp_path, seed=1)
    assert same(generator(other).batch(0, 0), generator(corpus(seed=1)).batch(0, 0))


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "plans").write_text("in the way")  # for root, nothing is read-only
    assert same(generator(corpus(tmp_path)).batch(0, 0), generator().batch(0, 0))


# ---- prefetching -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "ahead"), [(1, None), (3, 2), (4, 9)])
def test_prefetching_keeps_the_order(workers, ahead):
    stream = generator()
    for step, batch in enumerate(prefetch(stream.at, range(12), workers, ahead)):
        assert same(batch, stream.at(step))
    assert step == 11
    assert list(prefetch(lambda item: -item, [], workers, ahead)) == []


def test_prefetching_passes_errors_on_and_leaves_no_thread():
    def make(item: int) -> int:
        if item == 5:
            raise ValueError("the fifth")
        return item

    before = threading.active_count()
    results = prefetch(make, range(100), workers=3)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="the fifth"):
        next(results)
    left = prefetch(make, iter(range(1000)), workers=2)
    next(left)
    left.close()
    assert threading.active_count() == before
    with pytest.raises(ConfigError, match="workers and ahead of at least 1"):
        prefetch(make, [], workers=0)


def test_prefetching_is_bounded():
    made = []
    results = prefetch(lambda item: made.append(item), iter(range(100)), workers=1, ahead=3)
    next(results)
    results.close()
    assert len(made) <= 4


# ---- from a text file ------------------------------------------------------------------------------------------------


def test_a_text_file_instead_of_a_corpus(tmp_path: Path):
    from glassbert.text import FastTokenizer
    from tests.text.sample_sentences import SENTENCES

    documents = [" ".join(SENTENCES[i : i + 4]) for i in range(len(SENTENCES) - 4)]
    trained = FastTokenizer.train(documents, vocab_size=300)
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    one, same_text = (MLMDataGenerator(path, trained, 32, 4) for _ in range(2))
    assert same(one.at(3), same_text.at(3))
    assert one.plan.tokens > 500
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside the file"
    shown = trained.decode(np.where(one.at(0).labels == IGNORED, one.at(0).input_ids, one.at(0).labels)[0])
    assert len(shown.split()) > 5
    with pytest.raises(TextError, match="fewer than a batch"):
        MLMDataGenerator(path, trained, 32, 4_000)
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    with pytest.raises(TextError, match="empty"):
        MLMDataGenerator(empty, trained, 32, 4)
