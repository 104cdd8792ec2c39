"""Real jobs under mlx.launch with the ring backend, on a CPU: the same losses as one process."""

import importlib.util

import numpy as np
import pytest

from tests.training.jobs import Job, launcher

LAUNCH = launcher("mlx.launch")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mlx") is None or LAUNCH is None, reason="MLX is not installed"
)


def test_two_ranks_train_like_one_process(corpus, tmp_path):
    options = ["--engine", "mlx", "--steps", "6", "--hidden", "16"]
    ring = [LAUNCH, "-n", "2", "--backend", "ring", "--"]
    jobs = [Job(launch, corpus, tmp_path / f"{i}.json", *options) for i, launch in enumerate([[], ring])]
    one, two = (job.result() for job in jobs)
    assert (one["size"], two["size"]) == (1, 2)
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=0, atol=1e-5)
    assert two["shared"] == ["from 0: é", [[0.1], [True]]]


def test_small_gradients_are_grouped():
    from glassbert.training.distributed.mlx_workers import buckets

    sizes = {"head": 5, "layers.1": 3, "layers.0": 3, "embeddings": 1}
    assert list(buckets(sizes, 6)) == [["head", "layers.1"], ["layers.0", "embeddings"]]
    assert list(buckets(sizes, 100)) == [list(sizes)]
    assert list(buckets({}, 100)) == []
