"""The load generator and the figures of the benchmark of serving; nothing is timed here."""

import asyncio
import itertools
import statistics

import pytest

from benchmarks.load import Generator, Load, arrivals, post
from benchmarks.serve import stages
from tests.finetuning.test_predictor import save
from tests.serving.running import serving


def test_arrivals_have_their_rate_and_are_the_same_again():
    times = list(arrivals(200.0, 20.0, seed=1))
    assert times == sorted(times) == list(arrivals(200.0, 20.0, seed=1)) and len(times) == pytest.approx(4000, rel=0.1)
    assert statistics.fmean(b - a for a, b in itertools.pairwise(times)) == pytest.approx(0.005, rel=0.1)


def test_percentiles_and_errors():
    load = Load([0.001 * i for i in range(1, 101)], duration=2.0)
    load.statuses.update({"200": 100, "429": 5, "500": 2, "lost": 1})
    assert load.percentile(0.5) == pytest.approx(0.051) and load.percentile(0.99) == pytest.approx(0.1)
    assert load.errors() == 3 and load.throughput == 50


def test_every_request_of_a_load_is_counted(tmp_path):
    with serving(save(tmp_path / "binary", "binary")) as running:
        requests = [post("/v1/embed", b'{"input": "the bird"}'), post("/v1/embed", b"{}")]
        found = asyncio.run(Generator(running.port, lambda i: requests[i % 2]).open_loop(100.0, 0.5))
        planned = len(list(arrivals(100.0, 0.5, 0)))
        assert sum(found.statuses.values()) == planned and found.statuses["200"] == -(-planned // 2)
        assert set(found.statuses) == {"200", "422"} and len(found.seconds) == found.statuses["200"]
        means = stages(running.ask("/metrics")[1].decode())
        assert set(means) == {"read", "encode", "queue", "compute", "the rest", "rows a batch"} and means["compute"] > 0


def test_a_server_that_is_not_there_is_told_from_a_lost_request():
    found = asyncio.run(Generator(9, lambda i: b"").open_loop(50.0, 0.1))
    assert set(found.statuses) <= {"refused"}
