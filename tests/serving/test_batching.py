"""The queue: which rows share a batch, what happens when it is full, and whose error an error is."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.serving.batching import Batcher, Full, Job, similar
from tests.serving.running import until


class Lane:
    """Outputs are lengths; it can be held up, and fails for items that say so."""

    def __init__(self):
        self.batches, self.free = [], threading.Event()
        self.free.set()

    def run(self, members):
        assert self.free.wait(60)
        self.batches.append([int(item.lengths[unit]) for item, unit in members])
        if any(item.bad for item, _ in members):
            raise ValueError("a bad item")
        return [int(item.lengths[unit]) for item, unit in members]


class Asker:
    def __init__(self, batcher, lane):
        self.batcher, self.lane, self.found = batcher, lane, {}

    def __call__(self, name, *lengths, bad=False, kind=None):
        item = SimpleNamespace(lengths=np.array(lengths), kind=kind, bad=bad)
        job = Job(self.lane, item, list, lambda *answer: self.found.__setitem__(name, answer))
        self.batcher.submit(job)
        return job


@pytest.fixture
def asker(request):
    batcher, lane = Batcher(**{"threads": 1, **getattr(request, "param", {})}), Lane()
    batcher.start()
    yield Asker(batcher, lane)
    lane.free.set()
    batcher.close()


def queue_up(asker):
    """Keep the only thread busy, so that what is asked next waits."""
    asker.lane.free.clear()
    asker("first", 1)
    until(lambda: asker.batcher.waiting == 0)


@settings(deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=60), st.integers(1, 64), st.integers(1, 4096))
def test_a_batch_has_the_oldest_row_and_keeps_to_its_budget(lengths, most, budget):
    chosen = similar(lengths, most, budget)
    assert 0 in chosen and len(set(chosen)) == len(chosen) <= max(1, most)
    assert len(chosen) == 1 or len(chosen) * max(lengths[i] for i in chosen) <= budget
    ordered = sorted(lengths)
    low, high = min(lengths[i] for i in chosen), max(lengths[i] for i in chosen)
    inside = sum(low < one < high for one in ordered)
    assert inside == sum(low < lengths[i] < high for i in chosen)  # neighbours in length, none left out between


def test_rows_of_several_requests_share_a_batch_of_similar_lengths(asker):
    asker.batcher.batch_tokens = 64
    queue_up(asker)
    asker("short", 8, 9)
    asker("long", 60)
    asker("also short", 10, 8)
    asker.lane.free.set()
    until(lambda: len(asker.found) == 4)
    assert sorted(asker.lane.batches[1]) == [8, 8, 9, 10] and asker.lane.batches[2] == [60]
    assert asker.found["short"][0] == [8, 9] and asker.found["also short"][0] == [10, 8]
    assert asker.found["long"][2].batch == 1 and asker.found["short"][2].batch == 4


def test_rows_of_another_kind_are_computed_apart(asker):
    queue_up(asker)
    asker("pairs", 5, kind=2)
    asker("texts", 5, kind=1)
    asker.lane.free.set()
    until(lambda: len(asker.found) == 3)
    assert asker.lane.batches[1:] == [[5], [5]]


@pytest.mark.parametrize("asker", [{"room": 4}], indirect=True)
def test_a_full_queue_says_when_to_come_back(asker):
    queue_up(asker)
    asker("a", 1, 1, 1)
    with pytest.raises(Full) as full:
        asker("b", 1, 1)
    assert 1 <= full.value.retry <= 60 and asker.batcher.waiting == 3
    asker("c", 1)
    asker.lane.free.set()
    until(lambda: len(asker.found) == 3)
    asker("larger than the queue, but alone", *[1] * 9)
    until(lambda: len(asker.found) == 4)


def test_an_error_belongs_to_one_request(asker):
    queue_up(asker)
    asker("good", 3)
    asker("bad", 3, 4, bad=True)
    asker("also good", 3)
    asker.lane.free.set()
    until(lambda: len(asker.found) == 4)
    assert asker.found["good"][0] == [3] and asker.found["also good"][0] == [3]
    assert isinstance(asker.found["bad"][1], ValueError) and asker.batcher.waiting == 0


def test_what_nobody_waits_for_is_not_computed(asker):
    queue_up(asker)
    job = asker("gone", 7, 7)
    asker("stays", 7)
    asker.batcher.cancel(job)
    assert asker.batcher.waiting == 1
    asker.lane.free.set()
    until(lambda: len(asker.found) == 2)
    assert asker.lane.batches[1] == [7] and "gone" not in asker.found


@pytest.mark.parametrize("asker", [{"wait": 2.0}], indirect=True)
def test_a_row_waits_for_others_until_its_deadline(asker):
    start = time.perf_counter()
    asker("a", 4)
    asker("b", 4)
    until(lambda: len(asker.found) == 2)
    assert asker.lane.batches == [[4, 4]] and time.perf_counter() - start >= 1.9


def test_closing_computes_what_is_queued():
    batcher, lane = Batcher(threads=2, wait=5.0), Lane()
    batcher.start()
    asker = Asker(batcher, lane)
    for i in range(20):
        asker(i, i + 1)
    batcher.close()
    assert len(asker.found) == 20
    with pytest.raises(Full):
        asker("late", 1)
