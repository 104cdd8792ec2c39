"""XLNet against transformers: both streams, every head, a memory over three segments, files, and both engines.

transformers makes its table of distances in float32, also in a float64 model, which is then right to seven digits only.
For float64 its own function is run in float64 (`distances_in_float64`).
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
from transformers.models.xlnet.modeling_xlnet import XLNetModel

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
    None: transformers.XLNetModel,
    "mlm": transformers.XLNetLMHeadModel,
    "sequence": transformers.XLNetForSequenceClassification,
    "token": transformers.XLNetForTokenClassification,
    "span": transformers.XLNetForQuestionAnsweringSimple,
}
SMALL = {"vocab_size": 61, "d_model": 24, "n_layer": 2, "n_head": 3, "d_inner": 37, "pad_token_id": 5}
CONFIGS: dict[str, dict[str, Any]] = {
    "small": {},
    "three layers, relu, other eps": {"n_layer": 3, "ff_activation": "relu", "layer_norm_eps": 1e-3},
    "one head, one layer": {"n_head": 1, "n_layer": 1},
    "untied": {"tie_word_embeddings": False},
}
LENGTHS = [9, 13, 1, 6]  # padded on the left, as its tokenizer does


@contextlib.contextmanager
def distances_in_float64(dtype: str) -> Iterator[None]:
    whole = XLNetModel.relative_positional_encoding

    def in_float64(self: Any, *arguments: Any, **options: Any) -> torch.Tensor:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(torch.Tensor, "float", torch.Tensor.double)
            return whole(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        if dtype == "float64":
            patch.setattr(XLNetModel, "relative_positional_encoding", in_float64)
        yield


def reference(head: str | None, dtype: str = "float32", **config: Any) -> Any:
    settings = transformers.XLNetConfig(**{**SMALL, "num_labels": 2 if head == "span" else 4, **config})
    return randomised(CLASSES[head], settings, dtype)


def batch_for(seed: int = 0, types: bool = True) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    width = max(LENGTHS)
    mask = (np.arange(width) >= width - np.array(LENGTHS)[:, None]).astype(np.int64)
    batch = {"input_ids": np.where(mask == 1, rng.integers(0, 61, mask.shape), 5), "attention_mask": mask}
    if types:  # <cls> is in part 2, padding in part 3, as in transformers
        batch["token_type_ids"] = np.where(mask == 1, rng.integers(0, 3, mask.shape), 3)
    return batch


def order_for(real: np.ndarray, seed: int = 1) -> np.ndarray:
    """About a third of the real tokens are predicted, in a random order; the first one is given.

    Without any key transformers attends to all of them, ours to none.
    """
    rng = np.random.default_rng(seed)
    chosen = (rng.random(real.shape) < 0.35) & real
    chosen[:, -1] = True
    chosen[np.arange(len(real)), real.argmax(1)] = False
    keys = np.where(chosen, rng.random(real.shape), np.inf)
    return np.where(chosen, keys.argsort(1).argsort(1) + 1, 0)


def their_order(order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """perm_mask [B, T, T], target_mapping [B, P, T], and which of the P are predicted tokens."""
    hidden = order[:, None, :] >= np.maximum(order, 1)[:, :, None]
    most = (order > 0).sum(1).max()
    mapping = np.zeros((len(order), most, order.shape[1]))
    for row, tokens in enumerate(order):
        for i, place in enumerate(np.flatnonzero(tokens)):
            mapping[row, i, place] = 1.0
    return hidden.astype(np.float64), mapping, mapping.any(-1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("head", CLASSES)
@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_gradients_and_files(name: str, head: str | None, dtype: str, tmp_path: Path) -> None:
    theirs = reference(head, dtype, **CONFIGS[name])
    ours = opened(theirs, tmp_path / "theirs", dtype)
    batch = batch_for(types=name != "untied")
    real = batch["attention_mask"] == 1
    rng = np.random.default_rng(3)
    with distances_in_float64(dtype):
        result = theirs(**tensors(batch, dtype))
    output, cache = ours.forward(**batch)
    if head == "span":
        scores = torch.stack([result.start_logits, result.end_logits], 1)
        where = np.repeat(real[:, None], 2, 1)
    else:
        scores = result[0]
        where = np.ones(scores.shape[:1], bool) if head == "sequence" else real
    close(output, scores, dtype, "output", where)
    d = rng.standard_normal(tuple(scores.shape)) * where.reshape(*where.shape, *[1] * (scores.ndim - where.ndim))
    (scores * torch.from_numpy(d).to(scores.dtype)).sum().backward()
    compare_gradients(theirs, ours.to_huggingface(ours.backward(cache, d)), dtype)
    same_files(theirs, ours, tmp_path / "theirs", tmp_path / "ours")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("name", CONFIGS)
def test_both_streams(name: str, types: bool, dtype: str, tmp_path: Path) -> None:
    """Permutation language modelling: the loss of the query stream and every gradient."""
    theirs = reference("mlm", dtype, **CONFIGS[name])
    ours = opened(theirs, tmp_path, dtype)
    batch = batch_for(types=types)
    order = order_for(batch["attention_mask"] == 1)
    hidden, mapping, predicted = their_order(order)
    labels = np.where(order > 0, batch["input_ids"], -100)
    with distances_in_float64(dtype):
        result = theirs(**tensors({**batch, "perm_mask": hidden, "target_mapping": mapping}, dtype))
    at = torch.from_numpy(np.where(predicted, np.take_along_axis(labels, mapping.argmax(-1), 1), -100))
    expected = torch.nn.functional.cross_entropy(result.logits.flatten(0, 1), at.flatten())
    ids = batch.pop("input_ids")
    output, _ = ours.forward(ids, **batch, prediction_order=order)
    close(np.asarray(output)[:, : predicted.shape[1]], result.logits, dtype, "scores", predicted)
    loss, cache = ours.loss(ids, labels, **batch, prediction_order=order)
    close(loss, expected, dtype, "loss")
    expected.backward()
    compare_gradients(theirs, ours.to_huggingface(ours.backward(cache)), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("memory_length", [None, 8])
@pytest.mark.parametrize("streams", [1, 2])
def test_a_memory_over_three_segments(streams: int, memory_length: int | None, dtype: str, tmp_path: Path) -> None:
    """Outputs, memories and the gradients of every segment, given the memory of the segments before it."""
    theirs = reference("mlm", dtype, mem_len=memory_length, n_layer=3)
    ours = opened(theirs, tmp_path, dtype)
    rng = np.random.default_rng(5)
    mems, memory = None, None
    for number, length in enumerate((7, 5, 6)):
        ids = rng.integers(0, 61, (3, length))
        types = rng.integers(0, 2, ids.shape)
        given: dict[str, Any] = {"input_ids": ids, "token_type_ids": types}
        inputs: dict[str, Any] = {}
        where = np.ones(ids.shape, bool)
        if streams == 2:
            order = order_for(where, number)
            hidden, mapping, where = their_order(order)
            given |= {"perm_mask": hidden, "target_mapping": mapping}
            inputs = {"prediction_order": order}
        theirs.zero_grad()
        with distances_in_float64(dtype):
            result = theirs(**tensors(given, dtype), mems=mems, use_mems=True)
        output, cache = ours.forward(ids, token_type_ids=types, memory=memory, **inputs)
        close(np.asarray(output)[:, : where.shape[1]], result.logits, dtype, f"segment {number}", where)
        d = rng.standard_normal(np.shape(output))
        d[:, : where.shape[1]] *= where[..., None]
        d[:, where.shape[1] :] = 0.0
        (result.logits * torch.from_numpy(d[:, : where.shape[1]]).to(result.logits.dtype)).sum().backward()
        compare_gradients(theirs, ours.to_huggingface(ours.backward(cache, d)), dtype)
        mems, memory = result.mems, cache.memory()
        for layer, mem in enumerate(mems):
            close(memory[layer][0], mem.transpose(0, 1), dtype, f"memory of layer {layer}")


@pytest.mark.parametrize("head", CLASSES)
def test_the_engines_agree(head: str | None, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    ours = opened(reference(head), tmp_path / "theirs", "float32")
    batch = batch_for()
    ids, real = batch.pop("input_ids"), batch["attention_mask"] == 1
    labels: Any = None
    if head is not None:
        shape = {"sequence": (len(ids),), "span": (len(ids), 2)}.get(head, ids.shape)
        labels = np.random.default_rng(0).integers(0, 4, shape)
        labels = np.full(shape, 12) if head == "span" else labels
    engines_agree(ours, ids, labels, tmp_path / "ours", **batch)
    if head == "mlm":
        order = order_for(real)
        memory = [(np.random.default_rng(i).standard_normal((len(ids), 4, 24)),) for i in range(2)]
        labels = np.where(order > 0, ids, -100)
        engines_agree(ours, ids, labels, tmp_path / "ours", **batch, prediction_order=order, memory=memory)


def test_other_values_are_refused(tmp_path: Path) -> None:
    for change in ({"attn_type": "uni"}, {"clamp_len": 20}, {"bi_data": True}, {"summary_type": "first"}):
        theirs = reference("sequence", **change)
        theirs.save_pretrained(tmp_path)
        with pytest.raises(glassbert.CheckpointError, match=f"{next(iter(change))} is .*GlassBERT supports only"):
            glassbert.load(tmp_path)
