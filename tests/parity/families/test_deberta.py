"""DeBERTa v2 / v3 against transformers: every head over a sweep of small configs, both precisions, both ways.

transformers divides the scores by a scale that it computes in float32, in a float64 model too: there the comparison
replaces that function. Unless `problem_type` is set, it computes the loss of a sequence in float32 as well. Its padding
attends to nothing and ours to the real tokens, so only real tokens are compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.deberta_v2 import modeling_deberta_v2

import glassbert
from glassbert.families.deberta import DebertaConfig
from glassbert.layers.disentangled import bucket_rows
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
    None: transformers.DebertaV2Model,
    "mlm": transformers.DebertaV2ForMaskedLM,
    "sequence": transformers.DebertaV2ForSequenceClassification,
    "token": transformers.DebertaV2ForTokenClassification,
    "span": transformers.DebertaV2ForQuestionAnswering,
}
V3: dict[str, Any] = {
    "relative_attention": True,
    "position_buckets": 8,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "v3": ({}, RAGGED),
    "all_padding_row": ({}, [7, 0, 4]),
    "one_token": ({}, [1, 1]),
    "own_projections": ({"share_att_key": False, "norm_rel_ebd": "none"}, RAGGED),
    "content_to_position": ({"pos_att_type": "c2p", "share_att_key": False}, RAGGED),
    "position_to_content": ({"pos_att_type": ["p2c"]}, RAGGED),
    "no_buckets": ({"position_buckets": -1, "max_relative_positions": 5}, RAGGED),
    "no_buckets_no_limit": ({"position_buckets": -1}, [30, 11]),
    "convolution": ({"conv_kernel_size": 3, "conv_act": "gelu"}, RAGGED),
    "wide_convolution_tanh": ({"conv_kernel_size": 5, "position_buckets": 12}, [20, 3, 1]),
    "absolute_positions_and_types": ({"position_biased_input": True, "type_vocab_size": 3}, RAGGED),
    "odd_sizes": ({"hidden_size": 33, "num_attention_heads": 3, "intermediate_size": 41, "hidden_act": "relu"}, [9, 2]),
    "untied": ({"tie_word_embeddings": False}, RAGGED),
    "not_relative": (
        {"relative_attention": False, "position_biased_input": True, "pos_att_type": None, "norm_rel_ebd": "none"},
        RAGGED,
    ),
    "length_130": ({"max_position_embeddings": 512, "position_buckets": 32}, [130, 77]),
    "length_300": ({"max_position_embeddings": 512, "position_buckets": 256, "num_hidden_layers": 1}, [300, 31]),
}


def deberta(head: str | None, config: dict[str, Any], dtype: str = "float32") -> Any:
    labels = 2 if head == "span" else CLASSES
    problem = {"problem_type": "single_label_classification"} if head == "sequence" else {}
    settings = transformers.DebertaV2Config(**{**SMALL, **V3, **config}, **problem, num_labels=labels)
    return random_model(HEADS[head], settings, dtype)


@contextlib.contextmanager
def scale_in_float64() -> Iterator[None]:
    def scaled_size_sqrt(layer: Any, factor: int) -> Any:
        return torch.sqrt(torch.tensor(layer.size(-1), dtype=torch.float64) * factor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_deberta_v2, "scaled_size_sqrt", scaled_size_sqrt)
        yield


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name: str, head: str | None, dtype: str, tmp_path: Path) -> None:
    config, lengths = CASES[name]
    reference = deberta(head, config, dtype)
    with scale_in_float64() if dtype == "float64" else contextlib.nullcontext():
        types = reference.config.type_vocab_size
        check_outputs_and_gradients(reference, head, lengths, tmp_path, dtype, types=types)


def test_without_the_patch_transformers_is_no_witness_for_ten_digits(tmp_path: Path) -> None:
    reference = deberta(None, {}, "float64")
    with pytest.raises(AssertionError):
        check_outputs_and_gradients(reference, None, RAGGED, tmp_path, "float64")


@pytest.mark.parametrize("how", ["three_threads", "checkpointing", "skip_padding"])
def test_every_way_to_compute(how: str, tmp_path: Path) -> None:
    from tests.parity.reference import compare, ours_from, random_batch, random_labels

    reference = deberta("mlm", {"conv_kernel_size": 3, "num_hidden_layers": 3})
    ours = ours_from(reference, tmp_path, threads=3 if how == "three_threads" else 2)
    ours.set_checkpointing(how == "checkpointing")
    rng = np.random.default_rng(6)
    batch = random_batch(rng, 61, [9, 30, 1, 5, 17])
    packed = {"skip_padding": True} if how == "skip_padding" else {}
    compare(reference, ours, batch, random_labels(rng, "mlm", batch, 61), only_real_tokens=True, **packed)


@pytest.mark.parametrize("name", ["v3", "own_projections", "convolution", "absolute_positions_and_types", "no_buckets"])
@pytest.mark.parametrize("head", HEADS)
def test_round_trips(head: str | None, name: str, tmp_path: Path) -> None:
    check_round_trips(deberta(head, CASES[name][0]), tmp_path)


@pytest.mark.parametrize("name", ["v3", "own_projections", "convolution"])
@pytest.mark.parametrize("head", HEADS)
def test_mlx(head: str | None, name: str, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    check_mlx(deberta(head, CASES[name][0]), head, RAGGED, tmp_path)


def test_the_other_head_of_masked_words_is_read(tmp_path: Path) -> None:
    """legacy=False has other names for the same head; it is written under those of the legacy one."""
    reference = deberta("mlm", {"legacy": False}, "float64")
    reference.save_pretrained(tmp_path / "theirs")
    ours = glassbert.load(tmp_path / "theirs", engine="numpy", dtype="float64")
    ids = np.array([[5, 9, 3, 44, 7]])
    with scale_in_float64():
        expected = reference(torch.from_numpy(ids)).logits.detach().numpy()
    np.testing.assert_allclose(ours.predict(ids), expected, atol=1e-10)
    ours.save(tmp_path / "ours")
    again = transformers.DebertaV2ForMaskedLM.from_pretrained(tmp_path / "ours", dtype=torch.float64).eval()
    assert again.legacy
    with scale_in_float64():
        np.testing.assert_allclose(again(torch.from_numpy(ids)).logits.detach().numpy(), expected, atol=1e-10)


@pytest.mark.parametrize(("buckets", "furthest"), [(256, 512), (32, 64), (8, 64), (12, 512), (50, 130), (256, 1024)])
def test_buckets(buckets: int, furthest: int) -> None:
    """The same row for every distance, beyond the furthest one as well."""
    for length in (1, 2, 7, 64, 700):
        query = torch.zeros(1, length, 4)
        theirs = modeling_deberta_v2.build_relative_position(query, query, buckets, furthest)[0]
        theirs = torch.clamp(theirs + buckets, 0, 2 * buckets - 1).numpy()
        first, last, index = bucket_rows(length, buckets, furthest)
        i = np.arange(length)
        np.testing.assert_array_equal(first + index[i[:, None] - i + length - 1], theirs)
        assert last == theirs.max() + 1


@pytest.mark.parametrize("preset", ["deberta-v3-xsmall", "deberta-v3-small"])
def test_published_sizes(preset: str) -> None:
    config = glassbert.PRESETS[preset]
    assert isinstance(config, DebertaConfig)
    with torch.device("meta"):
        theirs = transformers.DebertaV2Model(
            transformers.DebertaV2Config(
                **{**V3, "position_buckets": 256},
                hidden_size=config.hidden_size,
                num_hidden_layers=config.num_hidden_layers,
                num_attention_heads=config.num_attention_heads,
                intermediate_size=config.intermediate_size,
            )
        )
    assert glassbert.Model(config, initialize=False).num_parameters == sum(p.numel() for p in theirs.parameters())
