"""The two engines against each other in float32: outputs, losses and every gradient, both families, all heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import glassbert

pytest.importorskip("mlx.core")

TOLERANCE = 1e-4
SIZES = {
    "vocab_size": 41,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "max_position_embeddings": 200,
    "pad_token_id": 0,
}
CASES = {
    "bert": (glassbert.BertConfig(**SIZES), [11, 4, 0, 1]),
    "bert_untied": (glassbert.BertConfig(**SIZES, tie_word_embeddings=False, activation="gelu_tanh"), [6, 6]),
    "bert_130": (glassbert.BertConfig(**SIZES), [130, 70]),
    "modernbert": (glassbert.ModernBertConfig(**SIZES, local_window=2), [11, 4, 0, 1]),
    "modernbert_mean": (glassbert.ModernBertConfig(**SIZES, local_window=3, classifier_pooling="mean"), [9, 17]),
    "modernbert_130": (glassbert.ModernBertConfig(**SIZES, local_window=16), [130, 70]),
    "mini": (glassbert.MINI_BERT_CONFIG.replace(**SIZES), [11, 4]),
}


def randomised(config: glassbert.EncoderConfig, head: str | None, engine: str) -> glassbert.Model:
    model = glassbert.Model(config, head, 5, engine=engine)
    rng = np.random.default_rng(3)
    for name, value in model.parameters.items():
        noise = rng.standard_normal(tuple(value.shape)).astype(np.float32)
        is_norm_scale = ".norm.weight" in name or name == "final_norm.weight"
        model.parameters[name] = model.engine.array(1 + 0.2 * noise if is_norm_scale else 0.1 * noise)
    return model


@pytest.mark.parametrize("head", [None, "mlm", "sequence", "token"])
@pytest.mark.parametrize("case", CASES)
def test_the_engines_agree(case: str, head: str | None) -> None:
    config, lengths = CASES[case]
    rng = np.random.default_rng(7)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = rng.integers(0, config.vocab_size, mask.shape)
    types = rng.integers(0, 2, mask.shape) if config.type_vocab_size else None
    classes = config.vocab_size if head == "mlm" else 5
    labels = rng.integers(0, classes, len(mask) if head == "sequence" else mask.shape)
    labels = np.where(mask if labels.ndim == 2 else mask.any(1), labels, -100)
    d_output = rng.standard_normal((*mask.shape, config.hidden_size))
    found: dict[str, dict[str, Any]] = {}
    for engine in ("numpy", "mlx"):
        model = randomised(config, head, engine)
        output, cache = model.forward(ids, mask, types)
        values = {"output": output}
        if head is not None:
            values["loss"], cache = model.loss(ids, labels, mask, types)
        gradients = model.backward(cache, d_output if head is None else None)
        assert set(gradients) == set(model.parameters)
        values.update({f"gradient of {name}": gradient for name, gradient in gradients.items()})
        found[engine] = {name: np.asarray(model.engine.to_numpy(value)) for name, value in values.items()}
    eps = float(np.finfo(np.float32).eps)
    nothing = eps * max(float(np.linalg.norm(v)) for name, v in found["numpy"].items() if "gradient" in name)
    for name, a in found["numpy"].items():
        b = found["mlx"][name]
        assert a.shape == b.shape and np.isfinite(b).all(), name
        distance, sizes = float(np.linalg.norm(a - b)), float(np.linalg.norm(a) + np.linalg.norm(b))
        assert sizes <= nothing or distance <= TOLERANCE * sizes, f"{name}: {distance} of {sizes}"
        if name in ("output", "loss"):
            assert np.abs(a - b).max() <= TOLERANCE, name
