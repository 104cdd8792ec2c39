"""What the parity tests of family members share: random models of transformers, and the comparison with ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import glassbert
from tests.parity.reference import compare, compare_gradients, ours_from, random_batch, random_labels

DTYPES = ("float32", "float64")
SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
RAGGED = [9, 12, 1, 5]
CLASSES = 5  # of classifiers


def random_model(kind: Any, config: Any, dtype: str = "float32", seed: int = 0) -> Any:
    """A model of transformers without any accidental one or zero: norms scale and biases shift."""
    torch.manual_seed(seed)
    model = kind(config).to(getattr(torch, dtype)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, dtype=torch.float64)
            if name.endswith("bias"):
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(1.0 + 0.2 * noise if "norm" in name.lower() else 0.05 * noise)
    return model


def labels_for(rng: np.random.Generator, head: str | None, batch: dict[str, np.ndarray], vocab: int) -> Any:
    if head is None or head == "span":
        return None
    if head == "discriminator":
        return np.where(batch["attention_mask"] == 1, rng.integers(0, 2, batch["attention_mask"].shape), -100)
    return random_labels(rng, head, batch, vocab if head == "mlm" else CLASSES)


def check_outputs_and_gradients(
    reference: Any, head: str | None, lengths: list[int], folder: Path, dtype: str, types: int = 0, **options: Any
) -> glassbert.Model:
    """Outputs, loss and every gradient of a model of transformers and of ours, on one ragged batch."""
    rng = np.random.default_rng(len(lengths) + sum(lengths))
    ours = ours_from(reference, folder, dtype=dtype, **options)
    config = reference.config
    batch = random_batch(rng, config.vocab_size, lengths, types=types)
    if head == "span":
        compare_scores(reference, ours, batch, dtype, lambda r: torch.stack([r.start_logits, r.end_logits], 1))
        return ours
    if head == "discriminator" and dtype == "float64":  # transformers computes its loss in float32
        compare_scores(reference, ours, batch, dtype, lambda r: r.logits)
        return ours
    labels = labels_for(rng, head, batch, config.vocab_size)
    d_output = rng.standard_normal((*batch["input_ids"].shape, config.hidden_size)) if head is None else None
    if d_output is not None:
        d_output *= batch["attention_mask"][..., None]
    compare(reference, ours, batch, labels, d_output, dtype, only_real_tokens=True)
    return ours


def compare_scores(
    reference: Any, ours: glassbert.Model, batch: dict[str, np.ndarray], dtype: str, scores: Callable[[Any], Any]
) -> None:
    """The scores [B, ..., T] of real tokens, and the gradients of their weighted sum."""
    rng = np.random.default_rng(3)
    real = batch["attention_mask"] == 1
    reference.zero_grad()
    result = reference(**{name: torch.from_numpy(values) for name, values in batch.items()})
    theirs = scores(result)
    real = np.broadcast_to(real[:, None] if theirs.ndim == 3 else real, tuple(theirs.shape))
    weights = rng.standard_normal(real.shape) * real
    (theirs * torch.from_numpy(weights).to(theirs.dtype)).sum().backward()
    output, cache = ours.forward(**batch)
    difference = np.abs(np.asarray(output) - theirs.detach().numpy())[real]
    assert difference.max() <= {"float32": 1e-5, "float64": 1e-10}[dtype]
    compare_gradients(reference, ours.to_huggingface(ours.backward(cache, weights)), dtype)


def check_round_trips(reference: Any, folder: Path) -> None:
    """Theirs -> ours -> theirs and ours -> theirs -> ours, bit by bit."""
    ours = ours_from(reference, folder / "theirs")
    ours.save(folder / "ours")
    again = type(reference).from_pretrained(folder / "ours")
    expected = dict(reference.named_parameters())
    found = dict(again.named_parameters())
    assert set(found) == set(expected)
    for name, parameter in expected.items():
        assert torch.equal(found[name], parameter), name
    again.save_pretrained(folder / "again")
    back = glassbert.load(folder / "again", engine="numpy")
    assert back.config == ours.config
    for name, value in ours.parameters.items():
        np.testing.assert_array_equal(back.parameters[name], value, name)


def check_mlx(reference: Any, head: str | None, lengths: list[int], folder: Path) -> None:
    """The same outputs and gradients on MLX as on NumPy, within 1e-4."""
    rng = np.random.default_rng(4)
    reference.save_pretrained(folder)
    batch = random_batch(rng, reference.config.vocab_size, lengths)
    labels = labels_for(rng, head, batch, reference.config.vocab_size)
    found = []
    for engine in ("numpy", "mlx"):
        model = glassbert.load(folder, engine=engine)
        if labels is None:
            output, cache = model.forward(**batch)
            mask = batch["attention_mask"]
            d_output = np.random.default_rng(5).standard_normal(tuple(output.shape))
            d_output *= mask[:, None] if head == "span" else mask[..., None]
            gradients = model.backward(cache, d_output)
        else:
            output, cache = model.loss(batch["input_ids"], labels, batch["attention_mask"])
            gradients = model.backward(cache)
        arrays = {name: np.array(model.engine.to_numpy(value)) for name, value in gradients.items()}
        found.append((np.array(model.engine.to_numpy(output)), arrays))
    (ours, gradients), (mlx, mlx_gradients) = found
    real = batch["attention_mask"] == 1
    if labels is None and head is None:
        ours, mlx = ours[real], mlx[real]
    np.testing.assert_allclose(mlx, ours, atol=1e-4)
    for name, gradient in gradients.items():
        scale = max(float(np.abs(gradient).max()), 1e-3)
        assert float(np.abs(mlx_gradients[name] - gradient).max()) <= 1e-4 * scale + 1e-6, name
