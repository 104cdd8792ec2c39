"""A model of transformers and ours, with the same random weights: outputs, losses, every gradient, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

import glassbert
from tests.parity.reference import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE

Arrays = dict[str, np.ndarray]


def randomised(kind: type, config: Any, dtype: str, seed: int = 0) -> Any:
    """A model of this class without any accidental one or zero: norms scale and biases shift."""
    torch.manual_seed(seed)
    model = kind(config).to(getattr(torch, dtype)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, dtype=torch.float64)
            norm = any(part in name.lower() for part in ("norm", "ln_"))
            if name.endswith("bias") and parameter.ndim == 1:
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(1.0 + 0.2 * noise if norm else 0.1 * noise)
    return model


def opened(reference: Any, folder: Path, dtype: str, **options: Any) -> glassbert.Model:
    reference.save_pretrained(folder)
    return glassbert.load(folder, dtype=dtype, engine=options.pop("engine", "numpy"), **options)


def close(ours: Any, theirs: torch.Tensor, dtype: str, what: str, where: np.ndarray | None = None) -> None:
    a, b = np.asarray(ours, np.float64), theirs.detach().double().numpy()
    assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
    apart = float(np.abs(a - b if where is None else (a - b)[where]).max())
    assert apart <= OUTPUT_TOLERANCE[dtype], f"{what}: {apart:.2e} apart"


def compare_gradients(reference: Any, ours: Arrays, dtype: str, unused: tuple[str, ...] = ()) -> None:
    """Every gradient under their names; `unused` parameters have none in ours."""
    parameters = dict(reference.named_parameters())
    assert set(ours) == set(parameters) - set(unused)
    nothing = float(np.finfo(dtype).eps) * max(float(np.linalg.norm(a)) for a in ours.values())
    for name, a in ours.items():
        grad = parameters[name].grad
        b = np.zeros_like(a) if grad is None else grad.numpy()
        assert a.shape == b.shape and a.dtype == np.dtype(dtype), name
        distance, sizes = float(np.linalg.norm(a - b)), float(np.linalg.norm(a) + np.linalg.norm(b))
        small = sizes <= nothing or distance <= GRADIENT_TOLERANCE[dtype] * sizes
        assert small, f"{name}: relative {distance / sizes:.1e}, absolute {distance:.1e}"


def tensors(batch: dict[str, Any], dtype: str) -> dict[str, Any]:
    """A batch of arrays as tensors; floats in the precision of the model."""
    return {
        name: torch.from_numpy(values).to(getattr(torch, dtype) if values.dtype.kind == "f" else None)
        for name, values in batch.items()
    }


def same_files(
    reference: Any, ours: glassbert.Model, theirs_in: Path, ours_in: Path, unused: tuple[str, ...] = ()
) -> None:
    """Saved by us and opened by transformers, and the file itself: bit for bit what transformers wrote.

    `unused` tensors of theirs take no part in what the model computes.
    transformers opens the parameters that XLNet declares as FloatTensor in float32, whatever dtype is asked for.
    """
    ours.save(ours_in)
    again = type(reference).from_pretrained(ours_in, dtype=next(reference.parameters()).dtype)
    state = reference.state_dict()
    for name, tensor in again.state_dict().items():
        assert name in unused or torch.equal(tensor, state[name].to(tensor.dtype)), name
    written, original = load_file(ours_in / "model.safetensors"), load_file(theirs_in / "model.safetensors")
    assert set(written) == set(original)
    for name, array in original.items():
        assert name in unused or np.array_equal(written[name], array), name
    reopened = glassbert.load(ours_in, dtype=str(ours.engine.dtype_name), engine="numpy")
    for name, value in ours.parameters.items():
        assert np.array_equal(value, reopened.parameters[name]), name


def engines_agree(model: glassbert.Model, ids: np.ndarray, labels: Any, folder: Path, **inputs: Any) -> None:
    """Output, loss and every gradient on MLX and on NumPy, to 1e-4."""
    model.save(folder)
    other = glassbert.load(folder, engine="mlx")
    found = []
    for one in (model, other):
        output, cache = one.forward(ids, **inputs)
        values = {"output": output}
        if labels is None:
            gradients = one.backward(cache, np.random.default_rng(1).standard_normal(output.shape))
        else:
            values["loss"], cache = one.loss(ids, labels, **inputs)
            gradients = one.backward(cache)
        values |= {f"gradient of {name}": value for name, value in gradients.items()}
        found.append({name: np.asarray(one.engine.to_numpy(value), np.float64) for name, value in values.items()})
    largest = max(float(np.linalg.norm(value)) for name, value in found[0].items() if "gradient" in name)
    for name, a in found[0].items():
        b = found[1][name]
        distance, sizes = float(np.linalg.norm(a - b)), float(np.linalg.norm(a) + np.linalg.norm(b))
        assert sizes <= 1e-6 * largest or distance <= 1e-4 * sizes, f"{name}: {distance} of {sizes}"
