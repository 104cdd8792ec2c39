"""Our models against those of transformers, over sizes, lengths, masks, windows and heads, in both precisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.parity.reference import (
    compare,
    compare_gradients,
    ours_from,
    random_batch,
    random_labels,
    reference_model,
    rotary_in_float64,
)

HEADS = (None, "mlm", "sequence", "token")
SMALL = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
RAGGED = [9, 12, 1, 5]

# name -> (config, row lengths)
BERT_CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "ragged": ({}, RAGGED),
    "one_token": ({}, [1, 1]),
    "one_row": ({}, [17]),
    "all_padding_row": ({}, [7, 0, 4]),
    "odd_sizes": (
        {"hidden_size": 33, "num_attention_heads": 3, "intermediate_size": 41, "num_hidden_layers": 3},
        [7, 3, 6],
    ),
    "one_head": ({"num_attention_heads": 1, "num_hidden_layers": 1}, RAGGED),
    "relu_and_other_eps": ({"hidden_act": "relu", "layer_norm_eps": 1e-5}, RAGGED),
    "gelu_tanh": ({"hidden_act": "gelu_new"}, RAGGED),
    "pad_id_elsewhere": ({"pad_token_id": 7, "type_vocab_size": 3}, RAGGED),
    "no_pad_id": ({"pad_token_id": None, "type_vocab_size": 1}, RAGGED),
    "untied": ({"tie_word_embeddings": False}, RAGGED),
    "length_130": ({"max_position_embeddings": 130}, [130, 77]),
    "length_257": ({"max_position_embeddings": 512}, [257, 31]),
    "length_512": ({"max_position_embeddings": 512}, [512, 300]),
}
MODERNBERT_CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "ragged": ({"num_hidden_layers": 4, "local_attention": 6}, RAGGED),
    "one_token": ({"local_attention": 4}, [1, 1]),
    "all_padding_row": ({"local_attention": 4}, [7, 0, 4]),
    "every_layer_global": ({"global_attn_every_n_layers": 1}, RAGGED),
    "every_second_global": ({"num_hidden_layers": 5, "global_attn_every_n_layers": 2, "local_attention": 2}, [30, 11]),
    "biases_and_mean_pooling": (
        {
            "attention_bias": True,
            "mlp_bias": True,
            "norm_bias": True,
            "classifier_bias": True,
            "classifier_pooling": "mean",
            "local_attention": 8,
        },
        RAGGED,
    ),
    "odd_sizes": (
        {"hidden_size": 30, "num_attention_heads": 3, "intermediate_size": 41, "local_attention": 5, "norm_eps": 1e-6},
        [23, 3],
    ),
    "other_thetas": (
        {"global_rope_theta": 500.0, "local_rope_theta": 50.0, "local_attention": 10, "max_position_embeddings": 200},
        [40, 13],
    ),
    "gelu_tanh": ({"hidden_activation": "gelu_new", "classifier_activation": "gelu_new", "local_attention": 4}, RAGGED),
    "pad_id_elsewhere": ({"pad_token_id": 7}, RAGGED),
    "untied_without_bias": ({"tie_word_embeddings": False, "decoder_bias": False}, RAGGED),
    "length_130_window_of_128": ({"max_position_embeddings": 130, "num_hidden_layers": 3}, [130, 77]),
    "length_300_window_of_32": (
        {"max_position_embeddings": 512, "local_attention": 32, "num_hidden_layers": 3},
        [300, 120],
    ),
    "length_512_window_of_128": ({"max_position_embeddings": 512, "num_hidden_layers": 3}, [512, 300]),
}
CASES = [
    pytest.param(family, {**SMALL, **config}, lengths, id=f"{family}-{name}")
    for family, cases in (("bert", BERT_CASES), ("modernbert", MODERNBERT_CASES))
    for name, (config, lengths) in cases.items()
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("family", "config", "lengths"), CASES)
def test_outputs_and_gradients(
    family: str, config: dict[str, Any], lengths: list[int], head: str | None, dtype: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(len(lengths) + sum(lengths))
    labels_wanted = 5 if head in ("sequence", "token") else 2
    reference = reference_model(family, head, dtype, num_labels=labels_wanted, **config)
    ours = ours_from(reference, tmp_path, dtype=dtype)
    types = reference.config.type_vocab_size if family == "bert" else 0
    batch = random_batch(rng, config["vocab_size"], lengths, types=types)
    classes = config["vocab_size"] if head == "mlm" else labels_wanted
    labels = None if head is None else random_labels(rng, head, batch, classes)
    d_output = rng.standard_normal((*batch["input_ids"].shape, config["hidden_size"])) if head is None else None
    if family == "modernbert" and dtype == "float64":
        with rotary_in_float64():
            compare(reference, ours, batch, labels, d_output, dtype)
    else:
        compare(reference, ours, batch, labels, d_output, dtype)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize(
    ("problem", "classes"), [("regression", 1), ("regression", 3), ("multi_label_classification", 4)]
)
def test_other_losses_of_the_sequence_head(family: str, problem: str, classes: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    reference = reference_model(family, "sequence", num_labels=classes, problem_type=problem, **SMALL)
    ours = ours_from(reference, tmp_path)
    batch = random_batch(rng, SMALL["vocab_size"], RAGGED)
    compare(reference, ours, batch, random_labels(rng, "sequence", batch, classes, problem))


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("head", ["mlm", "sequence"])
@pytest.mark.parametrize("how", ["one_thread", "three_threads", "checkpointing", "skip_padding"])
def test_every_way_to_compute(family: str, head: str, how: str, tmp_path: Path) -> None:
    """Threads, recomputed blocks and packed rows change how a batch is computed, and nothing of what."""
    rng = np.random.default_rng(6)
    config = {**SMALL, "num_hidden_layers": 4, **({"local_attention": 6} if family == "modernbert" else {})}
    reference = reference_model(family, head, num_labels=3, **config)
    ours = ours_from(reference, tmp_path, threads={"one_thread": 1, "three_threads": 3}.get(how))
    ours.set_checkpointing(how == "checkpointing")
    batch = random_batch(rng, config["vocab_size"], [9, 30, 1, 5, 17])
    labels = random_labels(rng, head, batch, config["vocab_size"] if head == "mlm" else 3)
    packed = {"skip_padding": True} if how == "skip_padding" else {}
    compare(reference, ours, batch, labels, only_real_tokens=how == "skip_padding", **packed)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_wider_model(family: str, tmp_path: Path) -> None:
    """The width of a small real model, in float32, where rounding has more to add up."""
    rng = np.random.default_rng(8)
    config = {
        "vocab_size": 1_000,
        "hidden_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 12,
        "intermediate_size": 1_536,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
    }
    reference = reference_model(family, "mlm", **config)
    ours = ours_from(reference, tmp_path)
    batch = random_batch(rng, 1_000, [128, 60, 33, 90])
    compare(reference, ours, batch, random_labels(rng, "mlm", batch, 1_000))


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    """A gradient a thousandth too long, a window one token too narrow, a weight moved a little: none of them passes."""
    rng = np.random.default_rng(9)
    reference = reference_model("modernbert", "mlm", **{**SMALL, "local_attention": 6})
    ours = ours_from(reference, tmp_path)
    batch = random_batch(rng, SMALL["vocab_size"], RAGGED)
    labels = random_labels(rng, "mlm", batch, SMALL["vocab_size"])
    compare(reference, ours, batch, labels)
    _, cache = ours.loss(batch["input_ids"], labels, batch["attention_mask"])
    gradients = ours.to_huggingface(ours.backward(cache))
    compare_gradients(reference, gradients, "float32")
    for name in gradients:
        with pytest.raises(AssertionError, match=name):
            compare_gradients(reference, {**gradients, name: gradients[name] * np.float32(1.001)}, "float32")
    reference.config.local_attention = 4
    with pytest.raises(AssertionError, match="apart"):
        compare(reference, ours, batch, labels)
    reference.config.local_attention = 6
    ours.parameters["layers.1.ffn.norm.weight"][3] += 0.01
    with pytest.raises(AssertionError, match="apart"):
        compare(reference, ours, batch, labels)
