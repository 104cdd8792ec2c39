"""Parity with stored outputs and gradients of transformers for tiny checkpoints, in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import glassbert

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.glob("*/expected.safetensors"))
OUTPUT_TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
GRADIENT_TOLERANCE = {"float32": 1e-4, "float64": 1e-8}


def test_there_are_golden_files() -> None:
    assert {folder.name.split("-")[0] for folder in FOLDERS} == {"bert", "modernbert"} and len(FOLDERS) == 6


@pytest.mark.parametrize(("engine", "dtype"), [("numpy", "float32"), ("numpy", "float64"), ("mlx", "float32")])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_outputs_and_gradients(folder: Path, engine: str, dtype: str) -> None:
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    expected = load_file(folder / "expected.safetensors")
    inputs = {
        key.removeprefix("inputs/"): v.astype(np.int64) for key, v in expected.items() if key.startswith("inputs/")
    }
    model = glassbert.load(folder, engine=engine, dtype=dtype)
    core = glassbert.load(folder, engine=engine, dtype=dtype, head="core")
    hidden, _ = core.forward(**inputs)
    logits, _ = model.forward(**inputs)
    ids = inputs.pop("input_ids")
    loss, cache = model.loss(ids, expected["labels"].astype(np.int64), **inputs)
    for name, value in {"hidden": hidden, "logits": logits, "loss": loss}.items():
        difference = np.abs(np.asarray(model.engine.to_numpy(value), np.float64) - expected[name]).max()
        assert difference <= OUTPUT_TOLERANCE[dtype], f"{name}: {difference}"
    gradients = model.to_huggingface(model.backward(cache))
    wanted = {key.removeprefix("gradients/"): v for key, v in expected.items() if key.startswith("gradients/")}
    assert set(gradients) == set(wanted)
    # The gradient of a key's bias is only rounding, smaller than that of the largest gradient.
    nothing = float(np.finfo(dtype).eps) * max(float(np.linalg.norm(values)) for values in wanted.values())
    for name, ours in gradients.items():
        theirs = wanted[name]
        distance, sizes = float(np.linalg.norm(ours - theirs)), float(np.linalg.norm(ours) + np.linalg.norm(theirs))
        assert sizes <= nothing or distance <= GRADIENT_TOLERANCE[dtype] * sizes, f"{name}: {distance} of {sizes}"
