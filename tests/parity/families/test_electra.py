"""ELECTRA against transformers: every head over a sweep of small configs, both precisions, both ways of exchange."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

import glassbert
from glassbert.errors import CheckpointError
from tests.parity.families.sweep import (
    CLASSES,
    DTYPES,
    RAGGED,
    SMALL,
    check_mlx,
    check_outputs_and_gradients,
    check_round_trips,
    random_model,
)

HEADS = {
    None: transformers.ElectraModel,
    "mlm": transformers.ElectraForMaskedLM,
    "discriminator": transformers.ElectraForPreTraining,
    "sequence": transformers.ElectraForSequenceClassification,
    "token": transformers.ElectraForTokenClassification,
    "span": transformers.ElectraForQuestionAnswering,
}
CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "narrow_embeddings": ({"embedding_size": 12}, RAGGED),
    "wide_embeddings": ({"embedding_size": 40}, RAGGED),
    "no_projection": ({"embedding_size": 32}, [7, 0, 4]),
    "odd_sizes": (
        {"hidden_size": 33, "num_attention_heads": 3, "intermediate_size": 41, "embedding_size": 7},
        [7, 3, 6],
    ),
    "one_token": ({"embedding_size": 12, "type_vocab_size": 1}, [1, 1]),
    "untied": ({"embedding_size": 12, "tie_word_embeddings": False, "layer_norm_eps": 1e-5}, RAGGED),
    "length_130": ({"embedding_size": 12, "max_position_embeddings": 130}, [130, 77]),
    "length_300": ({"embedding_size": 12, "max_position_embeddings": 512}, [300, 31]),
}


def electra(head: str | None, config: dict[str, Any], dtype: str = "float32") -> Any:
    labels = 2 if head == "span" else CLASSES
    return random_model(HEADS[head], transformers.ElectraConfig(**{**SMALL, **config}, num_labels=labels), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str, head: str | None, dtype: str, tmp_path: Path) -> None:
    config, lengths = CASES[name]
    reference = electra(head, config, dtype)
    check_outputs_and_gradients(reference, head, lengths, tmp_path, dtype, types=reference.config.type_vocab_size)


@pytest.mark.parametrize("head", [None, "discriminator", "sequence"])
def test_another_activation(head: str | None, tmp_path: Path) -> None:
    reference = electra(head, {"embedding_size": 12, "hidden_act": "relu"}, "float64")
    check_outputs_and_gradients(reference, head, RAGGED, tmp_path, "float64")


@pytest.mark.parametrize("head", HEADS)
def test_round_trips(head: str | None, tmp_path: Path) -> None:
    check_round_trips(electra(head, {"embedding_size": 12}), tmp_path)


@pytest.mark.parametrize("head", HEADS)
def test_mlx(head: str | None, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    check_mlx(electra(head, {"embedding_size": 12}), head, RAGGED, tmp_path)


def test_generator_with_another_activation_is_refused(tmp_path: Path) -> None:
    """transformers has a GELU in the head of the generator, whatever the layers have."""
    electra("mlm", {"hidden_act": "relu"}).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="hidden_act is 'relu'; GlassBERT supports only 'gelu'"):
        glassbert.load(tmp_path)


def test_published_sizes() -> None:
    """The numbers of parameters of the published models, computed by transformers."""
    for preset, kind in (
        ("electra-small", "discriminator"),
        ("electra-base", "discriminator"),
        ("electra-small-generator", "mlm"),
        ("electra-base-generator", "mlm"),
    ):
        config = glassbert.PRESETS[preset]
        theirs = transformers.ElectraConfig(
            hidden_size=config.hidden_size,
            embedding_size=config.embedding_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
        )
        count = HEADS[kind](theirs).num_parameters()
        assert glassbert.Model(config, kind, initialize=False).num_parameters == count
