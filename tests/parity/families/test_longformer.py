"""Longformer against transformers: windows, global tokens, every head, lengths that it pads, files, and both engines.

transformers computes its softmax in float32, also in a float64 model. For float64 the same function is run in float64
(`softmax_in_float64`). It pads rows to a multiple of the window and leaves the padding out of the result.
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

import glassbert
from tests.parity.families.comparison import (
    close,
    compare_gradients,
    engines_agree,
    opened,
    randomised,
    same_files,
    tensors,
)

CLASSES = {
    None: transformers.LongformerModel,
    "mlm": transformers.LongformerForMaskedLM,
    "sequence": transformers.LongformerForSequenceClassification,
    "token": transformers.LongformerForTokenClassification,
    "span": transformers.LongformerForQuestionAnswering,
}
SMALL = {
    "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 37,
    "max_position_embeddings": 90, "pad_token_id": 1, "sep_token_id": 2, "attention_window": 4,
}  # fmt: skip
CONFIGS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "window of 4": ({}, [13, 9, 8, 17]),
    "window of 6, three layers": ({"attention_window": 6, "num_hidden_layers": 3}, [13, 8]),
    "window of 16, wider than a row": ({"attention_window": 16}, [9, 8]),
    "length of a multiple of the window": ({"attention_window": [8, 8]}, [16, 11]),
    "padding elsewhere, one token type": ({"pad_token_id": 5, "type_vocab_size": 1}, [12, 8]),
    "untied": ({"tie_word_embeddings": False}, [13, 9]),
    "300 tokens, tiles": ({"attention_window": 32, "max_position_embeddings": 400}, [300, 210]),
}
QUESTION = 4  # tokens before the first separator


@contextlib.contextmanager
def softmax_in_float64(dtype: str) -> Iterator[None]:
    whole = torch.nn.functional.softmax

    def wide(x: torch.Tensor, dim: int | None = None, dtype: Any = None, **rest: Any) -> torch.Tensor:
        return whole(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype, **rest)

    with pytest.MonkeyPatch.context() as patch:
        if dtype == "float64":
            patch.setattr(torch.nn.functional, "softmax", wide)
        yield


def reference(head: str | None, dtype: str = "float32", **config: Any) -> Any:
    settings = transformers.LongformerConfig(**{**SMALL, "num_labels": 2 if head == "span" else 4, **config})
    return randomised(CLASSES[head], settings, dtype)


def batch_for(config: Any, lengths: list[int], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = rng.integers(6, 61, mask.shape)
    ids[:, 0], ids[:, QUESTION] = 0, 2
    ids[:, QUESTION + 1] = 2  # <s> question </s></s> text </s>
    ids[np.arange(len(ids)), mask.sum(1) - 1] = 2
    batch = {"input_ids": np.where(mask == 1, ids, config.pad_token_id), "attention_mask": mask}
    if config.type_vocab_size > 1:
        batch["token_type_ids"] = rng.integers(0, 2, mask.shape)
    return batch


def globals_for(how: str, mask: np.ndarray) -> np.ndarray | None:
    """Which tokens are global: by default, none, two or a few in some rows; also one in the padding."""
    chosen = np.zeros_like(mask)
    if how == "default":
        return None
    if how == "some":
        chosen[0, [0, 3, 5]] = 1
        chosen[-1, [0, -1]] = 1
    return chosen


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", ["default", "none", "some"])
@pytest.mark.parametrize("head", CLASSES)
@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_and_gradients(name: str, head: str | None, how: str, dtype: str, tmp_path: Path) -> None:
    config, lengths = CONFIGS[name]
    theirs = reference(head, dtype, **config)
    ours = opened(theirs, tmp_path / "theirs", dtype)
    batch = batch_for(theirs.config, lengths)
    chosen = globals_for(how, batch["attention_mask"])
    if chosen is not None:
        batch["global_attention_mask"] = chosen
    real = batch["attention_mask"] == 1
    output, cache = ours.forward(**batch)
    with softmax_in_float64(dtype):
        result = theirs(**tensors(batch, dtype))
    if head == "span":
        scores, where = torch.stack([result.start_logits, result.end_logits], 1), np.repeat(real[:, None], 2, 1)
    else:
        scores = result[0]
        where = np.ones(scores.shape[:1], bool) if head == "sequence" else real
    close(output, scores, dtype, "output", where)
    rng = np.random.default_rng(3)
    d = rng.standard_normal(tuple(scores.shape)) * where.reshape(*where.shape, *[1] * (scores.ndim - where.ndim))
    (scores * torch.from_numpy(d).to(scores.dtype)).sum().backward()
    unused = ("lm_head.bias",) if head == "mlm" and not theirs.config.tie_word_embeddings else ()
    compare_gradients(theirs, ours.to_huggingface(ours.backward(cache, d)), dtype, unused)
    if how == "default":
        same_files(theirs, ours, tmp_path / "theirs", tmp_path / "ours", unused)


@pytest.mark.parametrize("length", [13, 300])
@pytest.mark.parametrize("head", CLASSES)
def test_the_engines_agree(head: str | None, length: int, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    theirs = reference(head, attention_window=8, max_position_embeddings=400)
    ours = opened(theirs, tmp_path / "theirs", "float32")
    batch = batch_for(theirs.config, [length, length - 4])
    ids = batch.pop("input_ids")
    labels: Any = None
    if head is not None:
        shape = {"sequence": (2,), "span": (2, 2)}.get(head, ids.shape)
        labels = np.random.default_rng(0).integers(0, 4, shape)
    engines_agree(ours, ids, labels, tmp_path / "ours", **batch)


def test_windows_that_differ_between_layers_are_refused(tmp_path: Path) -> None:
    reference("mlm", attention_window=[4, 8]).save_pretrained(tmp_path)
    with pytest.raises(glassbert.CheckpointError, match=r"attention_window is \[4, 8\]; GlassBERT has one window"):
        glassbert.load(tmp_path)
