"""Makes the golden files: tiny models of transformers with their outputs and gradients, for machines without PyTorch.

    python -m tests.golden.make_golden        (where torch and transformers are installed)

Every folder holds a checkpoint as transformers writes it (float32) and `expected.safetensors`: inputs, labels, and what
transformers computes from them in float64.
"""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from tests.parity.reference import random_batch, random_labels, reference_model, rotary_in_float64

FOLDER = Path(__file__).parent
SIZES = {
    "vocab_size": 13,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 10,
    "pad_token_id": 0,
}
MODERN = {"local_attention": 4, "global_attn_every_n_layers": 2}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-mlm": ("bert", "mlm", {}),
    "bert-sequence": ("bert", "sequence", {"num_labels": 3}),
    "bert-token": ("bert", "token", {"num_labels": 3}),
    "modernbert-mlm": ("modernbert", "mlm", MODERN),
    "modernbert-sequence": ("modernbert", "sequence", {**MODERN, "num_labels": 3, "classifier_pooling": "mean"}),
    "modernbert-token": ("modernbert", "token", {**MODERN, "num_labels": 3}),
}


def make(name: str) -> None:
    family, head, config = CASES[name]
    rng = np.random.default_rng(list(CASES).index(name))
    model = reference_model(family, head, seed=1, **SIZES, **config)
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    batch = random_batch(rng, SIZES["vocab_size"], [10, 6, 1], types=2 if family == "bert" else 0)
    labels = random_labels(rng, head, batch, SIZES["vocab_size"] if head == "mlm" else 3)
    model = model.double()
    with rotary_in_float64() if family == "modernbert" else nullcontext():
        tensors = {key: torch.from_numpy(value) for key, value in batch.items()}
        hidden = model.base_model(**tensors)[0]
        logits = model(**tensors).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), torch.from_numpy(labels).flatten())
        loss.backward()
    expected = {
        **{f"inputs/{key}": value.astype(np.int8) for key, value in batch.items()},
        "labels": labels.astype(np.int8),
        "hidden": hidden.detach().numpy(),
        "logits": logits.detach().numpy(),
        "loss": loss.detach().numpy(),
    }
    for parameter_name, parameter in model.named_parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        expected[f"gradients/{parameter_name}"] = np.ascontiguousarray(grad.numpy())
    save_file(expected, folder / "expected.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors writes files for the owner alone


if __name__ == "__main__":
    for case in CASES:
        make(case)
