"""Losses against those of PyTorch, values and gradients, in float64; ours divide by how many targets count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from glassbert import ops

RNG = np.random.default_rng(11)
LOGITS = 3.0 * RNG.standard_normal((9, 5))
TARGETS = np.array([4, 0, -100, 2, 2, 1, -100, 3, 0])
WEIGHTS = (0.2, 1.0, 3.0, 0.5, 2.0)
ANSWERS = RNG.random((9, 5))
CLOSE = {"rtol": 1e-12, "atol": 1e-14}


def theirs(loss: torch.Tensor, *inputs: torch.Tensor) -> tuple[float, list[np.ndarray]]:
    loss.backward()
    return float(loss.detach()), [x.grad.numpy() for x in inputs if x.grad is not None]


def leaf(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(values, requires_grad=True)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("smoothing", [0.0, 0.15])
def test_cross_entropy(weights: Any, smoothing: float) -> None:
    z = leaf(LOGITS)
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    total = F.cross_entropy(
        z, torch.tensor(TARGETS), weight=weight, label_smoothing=smoothing, ignore_index=-100, reduction="sum"
    )
    value, (gradient,) = theirs(total / int((TARGETS != -100).sum()), z)
    ours, cache = ops.cross_entropy(LOGITS, TARGETS, weights=weights, smoothing=smoothing)
    assert ours == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(ops.cross_entropy_backward(np.float64(1), cache), gradient, **CLOSE)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_binary_cross_entropy(weights: Any) -> None:
    z = leaf(LOGITS)
    positive = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    value, (gradient,) = theirs(F.binary_cross_entropy_with_logits(z, torch.tensor(ANSWERS), pos_weight=positive), z)
    ours, cache = ops.binary_cross_entropy(LOGITS, ANSWERS, weights)
    assert ours == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(ops.binary_cross_entropy_backward(np.float64(1), cache), gradient, **CLOSE)


def test_focal_losses_by_autograd() -> None:
    """PyTorch has no focal loss; its autograd differentiates the formula."""
    z, kept = leaf(LOGITS), torch.tensor(TARGETS != -100)
    log_p = F.log_softmax(z, -1)[kept].gather(1, torch.tensor(TARGETS)[kept][:, None])[:, 0]
    weight = torch.tensor(WEIGHTS, dtype=torch.float64)[torch.tensor(TARGETS)[kept]]
    value, (gradient,) = theirs((-weight * (1 - log_p.exp()) ** 2.5 * log_p).mean(), z)
    ours, cache = ops.focal_loss(LOGITS, TARGETS, 2.5, WEIGHTS)
    assert ours == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(ops.focal_loss_backward(np.float64(1), cache), gradient, rtol=1e-9, atol=1e-14)
    z, y = leaf(LOGITS), torch.tensor(ANSWERS)
    p = torch.sigmoid(z)
    each = -y * (1 - p) ** 2 * F.logsigmoid(z) - (1 - y) * p**2 * F.logsigmoid(-z)
    value, (gradient,) = theirs(each.mean(), z)
    ours, cache = ops.binary_focal_loss(LOGITS, ANSWERS, 2.0)
    assert ours == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(ops.binary_focal_loss_backward(np.float64(1), cache), gradient, rtol=1e-9, atol=1e-14)


def test_cosine_loss() -> None:
    a, b = leaf(LOGITS), leaf(RNG.standard_normal(LOGITS.shape))
    wanted = RNG.uniform(-1, 1, 9)
    value, gradients = theirs(F.mse_loss(F.cosine_similarity(a, b), torch.tensor(wanted)), a, b)
    ours, cache = ops.cosine_loss(a.detach().numpy(), b.detach().numpy(), wanted)
    assert ours == pytest.approx(value, rel=1e-9)
    for found, expected in zip(ops.cosine_loss_backward(np.float64(1), cache), gradients, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-11)


def test_contrastive_loss() -> None:
    a, b = leaf(LOGITS), leaf(RNG.standard_normal(LOGITS.shape))
    scores = F.normalize(a) @ F.normalize(b).T / 0.07
    value, gradients = theirs(F.cross_entropy(scores, torch.arange(9)), a, b)
    ours, cache = ops.contrastive_loss(a.detach().numpy(), b.detach().numpy(), np.ones(9), 0.07)
    assert ours == pytest.approx(value, rel=1e-9)
    for found, expected in zip(ops.contrastive_loss_backward(np.float64(1), cache), gradients, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)


def test_ranking_loss() -> None:
    """CoSENT, as sentence-transformers writes it: log-sum-exp over the differences of ordered pairs, and 0."""
    a, b = leaf(LOGITS), leaf(RNG.standard_normal(LOGITS.shape))
    wanted = np.round(RNG.uniform(-1, 1, 9), 1)
    scores = F.cosine_similarity(a, b) * 20
    ordered = torch.tensor(wanted[:, None] < wanted[None])
    excess = (scores[:, None] - scores[None])[ordered]
    value, gradients = theirs(torch.logsumexp(torch.cat([torch.zeros(1, dtype=excess.dtype), excess]), 0), a, b)
    ours, cache = ops.ranking_loss(a.detach().numpy(), b.detach().numpy(), wanted, 0.05)
    assert ours == pytest.approx(value, rel=1e-9)
    for found, expected in zip(ops.ranking_loss_backward(np.float64(1), cache), gradients, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_soft_targets(temperature: float) -> None:
    """DistilBERT's loss: KLDivLoss over softened scores, times T²."""
    z, wanted, kept = leaf(LOGITS), 2.0 * RNG.standard_normal(LOGITS.shape), TARGETS != -100
    divergence = F.kl_div(
        F.log_softmax(z[kept] / temperature, -1),
        F.softmax(torch.tensor(wanted)[kept] / temperature, -1),
        reduction="batchmean",
    )
    value, (gradient,) = theirs(divergence * temperature**2, z)
    ours, state = ops.soft_target_loss(LOGITS, wanted, TARGETS, temperature=temperature)
    assert ours == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(ops.soft_target_loss_backward(np.float64(1), state), gradient, **CLOSE)


def test_cosine_distance() -> None:
    x, wanted, kept = leaf(LOGITS), RNG.standard_normal(LOGITS.shape), TARGETS != -100
    ones = torch.ones(int(kept.sum()), dtype=torch.float64)
    value, (gradient,) = theirs(F.cosine_embedding_loss(x[kept], torch.tensor(wanted)[kept], ones), x)
    ours, state = ops.cosine_distance_loss(LOGITS, wanted, TARGETS)
    assert ours == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(ops.cosine_distance_loss_backward(np.float64(1), state), gradient, rtol=1e-9, atol=1e-11)
