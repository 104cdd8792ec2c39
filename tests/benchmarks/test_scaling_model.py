"""The arithmetic of the scaling model, and that the document prints what the model says."""

from pathlib import Path

import pytest

from benchmarks.scaling_model import LINKS, WORKERS, Link, Prediction, markdown, predict, table_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "scaling.md"


def test_two_workers_send_every_byte_once_each_way():
    assert Link("a wire", 8e6, 0.0).exchange(2, 1e6) == pytest.approx(1.0)  # half around, twice
    assert Link("a wire", 8e6, 0.0).exchange(1000, 1e6) == pytest.approx(2.0, rel=1e-2)  # never more than twice


def test_latency_is_paid_by_bucket_and_turn():
    assert Link("far away", 1e30, 0.5).exchange(3, 9e6) == pytest.approx(4 * 3 * 0.5)


def test_backward_hides_all_but_the_embeddings():
    assert Prediction(compute=3.0, exchange=2.0, last=0.0).efficiency == 1.0
    assert Prediction(compute=3.0, exchange=2.0, last=1.0).efficiency == pytest.approx(0.75)
    assert Prediction(compute=3.0, exchange=8.0, last=1.0).efficiency == pytest.approx(3 / 9)
    assert Prediction(compute=3.0, exchange=9.0, last=1.0).efficiency_without_overlap == pytest.approx(0.25)


def test_a_faster_link_is_never_worse():
    for tasks in WORKERS.values():
        for task in tasks:
            found = [predict(task, link, 8).efficiency for link in LINKS]
            assert found == sorted(found)


def test_the_document_prints_the_table():
    assert markdown(table_of(8)) in DOCUMENT.read_text(encoding="utf-8")
