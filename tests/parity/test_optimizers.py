"""Our optimizers beside PyTorch's own, a hundred steps with the same gradients, to a millionth."""

import numpy as np
import pytest
import torch

from glassbert.training.optimizers import SGD, AdamW, Muon
from tests.models.small import BERT, make
from tests.training.test_optimizers import drive, gradients_of

STEPS = 100
DECAY = 0.05


def beside(model, start, optimizers, clip):
    """The same steps in PyTorch; `start` holds its parameters, `optimizers` move them."""
    for t in range(1, STEPS + 1):
        for name, gradient in gradients_of(model, t).items():
            start[name].grad = torch.tensor(gradient, dtype=start[name].dtype)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(start.values(), clip)
        for optimizer in optimizers:
            optimizer.step()
    return {name: value.detach().numpy() for name, value in start.items()}


def torch_parameters(model):
    return {name: torch.nn.Parameter(torch.tensor(np.array(values))) for name, values in model.parameters.items()}


def groups(parameters):
    """Norms and biases apart: they do not decay."""
    return [
        {"params": [p for p in parameters.values() if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in parameters.values() if p.ndim == 1], "weight_decay": 0.0},
    ]


def compare(model, expected):
    for name, values in expected.items():
        np.testing.assert_allclose(model.parameters[name], values, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_adamw(dtype, clip):
    model = make(dtype=dtype, threads=2)
    start = torch_parameters(model)
    theirs = torch.optim.AdamW(groups(start), lr=2e-3, betas=(0.9, 0.98), eps=1e-8)
    optimizer = AdamW(model, 2e-3, (0.9, 0.98), 1e-8, DECAY, clip)
    list(drive(optimizer, model, STEPS))
    compare(model, beside(model, start, [theirs], clip))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd(dtype, momentum):
    """Without decay: PyTorch adds it to the gradient, and so to the momentum; ours is decoupled as AdamW's."""
    model = make(dtype=dtype, threads=2)
    start = torch_parameters(model)
    theirs = torch.optim.SGD(start.values(), lr=0.02, momentum=momentum)
    optimizer = SGD(model, 0.02, momentum, 0.0, 0.5)
    list(drive(optimizer, model, STEPS))
    compare(model, beside(model, start, [theirs], 0.5))


def test_muon(monkeypatch):
    """PyTorch's computes its polynomial in bfloat16; in float64 the two are the same.

    Its matrices are whole parameters, so ours are kept from splitting queries, keys and values.
    """
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self.clone())
    monkeypatch.setattr("glassbert.training.optimizers.muon._stacked", lambda name, config: 1)
    model = make(BERT, threads=2)
    start = torch_parameters(model)
    optimizer = Muon(model, 2e-3, 0.95, 5, (0.9, 0.98), 1e-8, DECAY, None)
    inner = [start[name] for name in optimizer.matrices]
    outer = {name: value for name, value in start.items() if name not in optimizer.matrices}
    theirs = [
        torch.optim.Muon(inner, lr=2e-3, weight_decay=DECAY, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups(outer), lr=2e-3, betas=(0.9, 0.98), eps=1e-8),
    ]
    list(drive(optimizer, model, STEPS))
    compare(model, beside(model, start, theirs, None))
