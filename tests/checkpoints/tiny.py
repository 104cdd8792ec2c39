"""Small models with random parameters, and edits of their files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import glassbert

SIZES = {
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 10,
    "max_position_embeddings": 16,
    "pad_token_id": 0,
}
BERT = glassbert.BertConfig(**SIZES)
MODERNBERT = glassbert.ModernBertConfig(**SIZES, local_window=3)
MINI = glassbert.MINI_BERT_CONFIG.replace(**SIZES)
CONFIGS = {"bert": BERT, "modernbert": MODERNBERT, "mini": MINI}
HEADS = (None, "mlm", "sequence", "token")


def tiny(
    config: glassbert.EncoderConfig = BERT, head: str | None = "mlm", labels: int = 5, **options: Any
) -> glassbert.Model:
    """A model with random numbers everywhere, norms and biases included."""
    model = glassbert.Model(config, head, labels, **{"engine": "numpy", "threads": 1, **options})
    rng = np.random.default_rng(0)
    for name, value in model.parameters.items():
        model.parameters[name] = model.engine.array(rng.standard_normal(tuple(value.shape)))
    return model


def weights(model: glassbert.Model) -> dict[str, np.ndarray]:
    return {name: np.array(model.engine.to_numpy(value)) for name, value in model.parameters.items()}


def assert_same(one: glassbert.Model, other: glassbert.Model) -> None:
    a, b = weights(one), weights(other)
    assert list(a) == list(b)
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].tobytes() == b[name].tobytes(), name
    assert one.config == other.config and type(one.config) is type(other.config)
    assert (one.head is None) == (other.head is None)
    if one.head is not None and other.head is not None:
        mine, its = (one.head.kind, one.head.num_labels), (other.head.kind, other.head.num_labels)
        assert mine == its and one.head.loss_name == other.head.loss_name


def load(folder: Path, **options: Any) -> glassbert.Model:
    return glassbert.load(folder, **{"engine": "numpy", "threads": 1, **options})


def edit_config(folder: Path, **changes: Any) -> None:
    """Change keys of config.json; a value of `...` removes the key."""
    path = folder / "config.json"
    fields = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in fields.items() if value is not ...}))


def edit_tensors(folder: Path, edit: Callable[[dict[str, np.ndarray]], object]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
