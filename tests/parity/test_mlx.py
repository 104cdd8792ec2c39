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


# head type -> (its losses and their options, labels)
HEADS: dict[str, tuple[list[dict[str, Any]], int | None]] = {
    "binary": ([{}, {"focal_gamma": 2.0}], None),
    "multiclass": ([{}, {"class_weights": [0.5, 1, 2], "label_smoothing": 0.1}, {"focal_gamma": 2.0}], 3),
    "multilabel": ([{"positive_weights": [2.0, 1, 3]}, {"focal_gamma": 1.0}], 3),
    "regression": ([{"target_mean": [2.0], "target_scale": [3.0]}], None),
    "ordinal": ([{}], 4),
    "embedding": ([{"loss": "cosine"}, {"loss": "contrastive", "temperature": 0.5}, {"loss": "ranking"}], None),
    "token": ([{}, {"label_smoothing": 0.1, "class_weights": [0.5, 1, 2]}, {"focal_gamma": 2.0}], 3),
    "span": ([{}], None),
}
POOLINGS: dict[str, tuple[str | None, ...]] = {
    "bert": ("cls", "cls without the pooler", "mean", "max", "attention"),
    "modernbert": ("cls", "mean", "max", "attention"),
}
EVERY_HEAD = [
    (family, head, pooling, options)
    for family, poolings in POOLINGS.items()
    for head, (losses, _) in HEADS.items()
    for pooling in ((None,) if head in ("token", "span") else poolings)
    for options in losses
]


def answers_of(head: str, options: dict[str, Any], mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    rows, lengths = len(mask), mask.sum(1)
    pairs = np.repeat(rng.uniform(-1, 1, rows // 2), 2)
    return {
        "binary": rng.integers(0, 2, rows),
        "multiclass": rng.integers(0, 3, rows),
        "multilabel": rng.integers(0, 2, (rows, 3)),
        "regression": rng.uniform(0, 5, rows),
        "ordinal": rng.integers(0, 4, rows),
        "embedding": np.ones(rows) if options.get("loss") == "contrastive" else pairs,
        "token": np.where(mask, rng.integers(0, 3, mask.shape), -100),
        "span": np.sort(rng.integers(0, np.maximum(lengths, 1)[:, None], (rows, 2)), 1),
    }[head]


@pytest.mark.parametrize(("family", "head", "pooling", "options"), EVERY_HEAD)
def test_every_head_with_every_pooling_and_every_loss(
    family: str, head: str, pooling: str | None, options: dict[str, Any]
) -> None:
    config = CASES[family][0]
    if pooling == "cls without the pooler":
        config, pooling = config.replace(pooler=False), "cls"
    rng = np.random.default_rng(11)
    mask = (np.arange(9) < np.array([9, 4, 1, 7])[:, None]).astype(np.int64)
    ids = rng.integers(0, config.vocab_size, mask.shape) * mask
    answers = answers_of(head, options, mask, rng)
    found = {}
    for engine in ("numpy", "mlx"):
        model = glassbert.create_model(
            "bert_with_head", head_type=head, num_labels=HEADS[head][1], pooling=pooling, config=config, engine=engine,
            **options,
        )  # fmt: skip
        values = np.random.default_rng(12)
        for name, value in model.parameters.items():
            noise = values.standard_normal(tuple(value.shape)).astype(np.float32)
            model.parameters[name] = model.engine.array(1 + 0.2 * noise if "norm.weight" in name else 0.1 * noise)
        output = model.engine.to_numpy(model.forward(ids, mask)[0])
        loss, cache = model.loss(ids, answers, mask)
        gradients = {name: model.engine.to_numpy(g) for name, g in model.backward(cache).items()}
        found[engine] = output, float(loss), gradients
    (output, loss, gradients), (other_output, other_loss, other_gradients) = found["numpy"], found["mlx"]
    assert np.abs(output - other_output).max() <= TOLERANCE * max(1.0, float(np.abs(output).max()))
    assert other_loss == pytest.approx(loss, rel=TOLERANCE)
    largest = max(float(np.linalg.norm(g)) for g in gradients.values())
    for name, gradient in gradients.items():
        distance = float(np.linalg.norm(gradient - other_gradients[name]))
        assert distance <= TOLERANCE * max(float(np.linalg.norm(gradient)), 1e-2 * largest), name
