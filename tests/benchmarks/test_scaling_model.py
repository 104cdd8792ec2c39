"""The arithmetic of the scaling model; docs/scaling.md contains its table."""

from pathlib import Path

import pytest

from benchmarks.scaling_model import LINKS, WORKERS, Link, Prediction, markdown, predict, table_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "scaling.md"


def test_bandwidth_term():
    assert Link("a wire", 8e6, 0.0).exchange(2, 1e6) == pytest.approx(1.0)  # 2 (n - 1) / n = 1
    assert Link("a wire", 8e6, 0.0).exchange(1000, 1e6) == pytest.approx(2.0, rel=1e-2)  # at most 2


def test_latency_term():
    assert Link("far away", 1e30, 0.5).exchange(3, 9e6) == pytest.approx(4 * 3 * 0.5)


def test_overlap_excludes_the_embeddings():
    assert Prediction(compute=3.0, exchange=2.0, last=0.0).efficiency == 1.0
    assert Prediction(compute=3.0, exchange=2.0, last=1.0).efficiency == pytest.approx(0.75)
    assert Prediction(compute=3.0, exchange=8.0, last=1.0).efficiency == pytest.approx(3 / 9)
    assert Prediction(compute=3.0, exchange=9.0, last=1.0).efficiency_without_overlap == pytest.approx(0.25)


def test_faster_links_are_not_worse():
    for tasks in WORKERS.values():
        for task in tasks:
            found = [predict(task, link, 8).efficiency for link in LINKS]
            assert found == sorted(found)


def test_document_contains_the_table():
    assert markdown(table_of(8)) in DOCUMENT.read_text(encoding="utf-8")
