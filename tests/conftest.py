"""What tests of several rooms need: a toy corpus, and runs that neither measure the machine nor draw reports."""

import pytest

from tests.training.toy import make_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus") / "toy")


@pytest.fixture
def quick_runs(monkeypatch):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    monkeypatch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)


@pytest.fixture
def mask_with_several_results(monkeypatch):
    """Attention of MLX hands its mask to an operation with several results, as fused attention is one on CUDA."""
    mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
    attention = mx.fast.scaled_dot_product_attention

    def halved(q, k, v, *, scale, mask):
        mask = mx.broadcast_to(mask, (*q.shape[:3], k.shape[2]))
        return attention(q, k, v, scale=scale, mask=mx.concatenate(mx.split(mask, 2, -1), -1))

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", halved)


@pytest.fixture
def without_checksums(monkeypatch):
    """For tests that edit the files of a saved folder, as another tool may leave it."""
    monkeypatch.setenv("GLASSBERT_VERIFY", "0")
