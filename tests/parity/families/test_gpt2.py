"""GPT-2 against transformers: every head, outputs and gradients, files both ways, and both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import glassbert
from glassbert.generation.continuation import next_scores
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
    None: transformers.GPT2Model,
    "causal": transformers.GPT2LMHeadModel,
    "sequence": transformers.GPT2ForSequenceClassification,
    "token": transformers.GPT2ForTokenClassification,
    "span": transformers.GPT2ForQuestionAnswering,
}
SMALL = {"vocab_size": 61, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 40, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 1}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "small": {},
    "inner size": {"n_inner": 37, "n_layer": 3},
    "relu, other eps": {"activation_function": "relu", "layer_norm_epsilon": 1e-3},
    "one head, one layer": {"n_head": 1, "n_layer": 1},
    "untied": {"tie_word_embeddings": False},
    "padding elsewhere": {"pad_token_id": 7},
}
LENGTHS = [9, 13, 1, 6]


def reference(head: str | None, dtype: str = "float32", **config: Any) -> Any:
    settings = transformers.GPT2Config(**{**SMALL, "num_labels": 2 if head == "span" else 4, **config})
    return randomised(CLASSES[head], settings, dtype)


def batch_for(config: Any, lengths: list[int] = LENGTHS) -> dict[str, np.ndarray]:
    """Real tokens are never the padding id, by which transformers finds the last token."""
    rng = np.random.default_rng(sum(lengths))
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = rng.integers(8, config.vocab_size, mask.shape)
    return {"input_ids": np.where(mask == 1, ids, config.pad_token_id), "attention_mask": mask}


def labels_for(head: str, batch: dict[str, np.ndarray], classes: int) -> np.ndarray:
    rng, mask = np.random.default_rng(3), batch["attention_mask"]
    if head == "sequence":
        return rng.integers(0, classes, len(mask))
    if head == "span":
        return np.stack([np.zeros(len(mask), np.int64), mask.sum(1) - 1], 1)
    tokens = batch["input_ids"] if head == "causal" else rng.integers(0, classes, mask.shape)
    return np.where(mask == 1, tokens, -100)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("head", CLASSES)
@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_gradients_and_files(name: str, head: str | None, dtype: str, tmp_path: Path) -> None:
    theirs = reference(head, dtype, **CONFIGS[name])
    ours = opened(theirs, tmp_path / "theirs", dtype)
    batch = batch_for(theirs.config)
    real = batch["attention_mask"] == 1
    if head is None:
        d = np.random.default_rng(0).standard_normal((*real.shape, 24)) * real[..., None]
        output, cache = ours.forward(**batch)
        hidden = theirs(**tensors(batch, dtype)).last_hidden_state
        close(output, hidden, dtype, "hidden states", real)
        (hidden * torch.from_numpy(d).to(hidden.dtype)).sum().backward()
        gradients = ours.backward(cache, d)
    else:
        labels = labels_for(head, batch, 4)
        output, _ = ours.forward(**batch)
        loss, cache = ours.loss(batch["input_ids"], labels, batch["attention_mask"])
        result = theirs(**tensors(batch, dtype))
        expected = their_loss(result, labels, head, real)
        close(loss, expected, dtype, "loss")
        logits = torch.stack([result.start_logits, result.end_logits], 1) if head == "span" else result.logits
        where = {"sequence": None, "span": np.repeat(real[:, None], 2, 1)}.get(head, real)
        close(output, logits, dtype, "output", where)
        expected.backward()
        gradients = ours.backward(cache)
    compare_gradients(theirs, ours.to_huggingface(gradients), dtype)
    same_files(theirs, ours, tmp_path / "theirs", tmp_path / "ours")


def their_loss(result: Any, labels: np.ndarray, head: str, real: np.ndarray) -> torch.Tensor:
    """Their formula in the precision of the model: their own loss of language models rounds to float32.

    Their loss of spans leaves scores of padding in; ours masks them, so they are masked here.
    """
    wanted = torch.from_numpy(labels)
    if head == "span":
        parts = [
            scores.masked_fill(torch.from_numpy(~real), -1e4) for scores in (result.start_logits, result.end_logits)
        ]
        both = [torch.nn.functional.cross_entropy(part, wanted[:, i]) for i, part in enumerate(parts)]
        return (both[0] + both[1]) / 2
    scores = result.logits
    if head == "causal":
        scores, wanted = scores[:, :-1], wanted[:, 1:]
    return torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), wanted.reshape(-1))


def test_the_loss_is_theirs(tmp_path: Path) -> None:
    theirs = reference("causal")
    ours = opened(theirs, tmp_path, "float32")
    batch = batch_for(theirs.config)
    labels = labels_for("causal", batch, 0)
    loss, _ = ours.loss(batch["input_ids"], labels, batch["attention_mask"])
    close(loss, theirs(**tensors(batch, "float32"), labels=torch.from_numpy(labels)).loss, "float32", "loss")


@pytest.mark.parametrize("head", CLASSES)
def test_the_engines_agree(head: str | None, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    theirs = reference(head)
    ours = opened(theirs, tmp_path / "theirs", "float32")
    batch = batch_for(theirs.config)
    labels = None if head is None else labels_for(head, batch, 4)
    engines_agree(ours, batch["input_ids"], labels, tmp_path / "ours", attention_mask=batch["attention_mask"])


def test_the_most_probable_continuation_is_theirs(tmp_path: Path) -> None:
    """With our cache and with theirs, token by token."""
    theirs = reference("causal", eos_token_id=None)
    ours = opened(theirs, tmp_path, "float32")
    prompt = np.random.default_rng(2).integers(8, 61, (2, 6))
    wanted = theirs.generate(
        torch.from_numpy(prompt), attention_mask=torch.ones(2, 6), max_new_tokens=30, do_sample=False, pad_token_id=0
    ).numpy()
    ids, memory, unread = prompt, None, prompt
    for _ in range(30):
        scores, memory = next_scores(ours, unread, np.zeros(2, np.int64), memory)
        unread = scores.argmax(-1)[:, None]
        ids = np.concatenate([ids, unread], 1)
    assert np.array_equal(ids, wanted)


def test_adapters_open_in_peft(tmp_path: Path) -> None:
    """Its matrices are stored as [input, output], which peft must be told."""
    peft = pytest.importorskip("peft")
    theirs = reference("sequence")
    base = opened(theirs, tmp_path / "theirs", "float32")
    adapted = glassbert.LowRank(base, rank=2, targets=("query", "value", "ffn"))
    rng = np.random.default_rng(0)
    for name, value in adapted.parameters.items():
        adapted.parameters[name] = 0.2 * rng.standard_normal(value.shape).astype(np.float32)
    adapted.save(tmp_path / "adapters")
    batch = batch_for(theirs.config)
    with_adapters = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapters").eval()
    close(adapted.forward(**batch)[0], with_adapters(**tensors(batch, "float32")).logits, "float32", "logits")
